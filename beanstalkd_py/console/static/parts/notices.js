/* Sentences in the place of content: loading, errors, nothing to show, a feature that is missing. */
import { html } from "/static/preact.js";

export const Empty = ({ title, children }) =>
  html`<div class="empty">${title && html`<p class="empty-title">${title}</p>`}<p>${children}</p></div>`;

export const Loading = ({ text = "Loading" }) => html`<p class="loading" role="status"><span class="spinner"
  aria-hidden="true"></span>${text}</p>`;

export const Failure = ({ error, retry = null }) =>
  html`<div class="notice notice-danger" role="alert">
    <p>${error.message}</p>
    ${retry && html`<button class="button small" onClick=${retry}>Try again</button>`}
  </div>`;

const NEEDS = {
  control: "This page needs the control socket of a beanstalkd_py server on the same machine.",
  history: "The history needs a beanstalkd_py server on the same machine that was started with --history DIR.",
  schedules: "Schedules need the control socket of a beanstalkd_py server, and a [schedule.NAME] table in its configuration file.",
  policies: "Policies need the control socket of a beanstalkd_py server on the same machine.",
  replication: "This page needs a beanstalkd_py server that is started with replication.",
  connections: "The list of connections needs the control socket of a beanstalkd_py server on the same machine.",
};

export const Needs = ({ feature }) => html`<div class="empty"><p>${NEEDS[feature]}</p></div>`;

/* Show the children when the data of `useData` is there; else loading or the error. */
export function WhenLoaded({ source, children }) {
  if (source.error && !source.data) return html`<${Failure} error=${source.error} retry=${source.reload} />`;
  if (!source.data) return html`<${Loading} />`;
  return html`${source.error && html`<${Failure} error=${source.error} retry=${source.reload} />`}${children(source.data)}`;
}
