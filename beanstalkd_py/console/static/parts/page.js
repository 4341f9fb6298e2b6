/* The frame of a page: heading, actions, sections, facts. */
import { html, useEffect, useRef } from "/static/preact.js";
import { labelOf, valueOf } from "/static/parts/units.js";

export function Page({ title, label = title, trail = null, actions = null, badges = null, fill = false, wide = true, children }) {
  const heading = useRef(null);
  useEffect(() => {
    document.title = label + " · beanstalkd_py console";
  }, [label]);
  return html`<div class=${"page" + (fill ? " page-fill" : "") + (wide ? "" : " page-text")}>
    <header class="page-header">
      <div class="page-title">
        ${trail && html`<nav class="trail" aria-label="Breadcrumb"><a href=${trail.href}>${trail.text}</a>
          <span aria-hidden="true">/</span></nav>`}
        <h1 ref=${heading} tabindex="-1">${title}</h1>
        ${badges}
      </div>
      ${actions && html`<div class="page-actions">${actions}</div>`}
    </header>
    ${children}
  </div>`;
}

export const Section = ({ title, note = null, actions = null, flush = false, children }) =>
  html`<section class=${"card" + (flush ? " card-flush" : "")} aria-label=${title}>
    <header class="card-header"><h2>${title}</h2>
      ${note && html`<p class="card-note">${note}</p>`}${actions && html`<div class="card-actions">${actions}</div>`}</header>
    <div class="card-body">${children}</div>
  </section>`;

export const Figure = ({ label, title = null, tone = null, href = null, children }) =>
  html`<div class=${"figure" + (tone ? " figure-" + tone : "")} title=${title}>
    <dt>${label}</dt><dd>${href ? html`<a href=${href}>${children}</a>` : children}</dd>
  </div>`;

export const Figures = ({ children }) => html`<dl class="figures">${children}</dl>`;

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/* All keys and values of an object; `show` and `labels` override single values and labels. */
export const Facts = ({ values, show = {}, labels = {}, skip = [] }) =>
  html`<dl class="facts">
    ${Object.entries(values)
      .filter(([key]) => !skip.includes(key))
      .map(([key, value]) => html`<div key=${key}><dt title=${key}>${labels[key] ?? labelOf(key)}</dt><dd>
        ${show[key] ? show[key](value) : isObject(value) ? html`<${Facts} values=${value} />` : valueOf(key, value)}</dd></div>`)}
  </dl>`;
