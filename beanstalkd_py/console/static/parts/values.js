/* Numbers, times and names in short form with the exact value as title. */
import { html, useEffect, useReducer } from "/static/preact.js";
import {
  dateTime, longDuration, longNumber, longTime, relativeTime, shortDuration, shortNumber, shortRate, shortSize,
} from "/static/formatting.js";
import { jobPath, tubePath } from "/static/route.js";

export const Count = ({ value, zero = true }) => {
  if (value == null) return html`<span class="faint" title="unknown">–</span>`;
  const text = shortNumber(value);
  return html`<span class=${value === 0 && zero ? "faint" : null} title=${longNumber(value)}>${text}</span>`;
};

export const Rate = ({ value }) =>
  html`<span class=${value ? null : "faint"} title=${value == null ? "unknown" : longNumber(value) + " per second"}>
    ${shortRate(value)}</span>`;

export const Size = ({ value }) => html`<span title=${value == null ? "unknown" : longNumber(value) + " bytes"}>
  ${shortSize(value)}</span>`;

export const Duration = ({ value }) =>
  html`<span class=${value == null ? "faint" : null} title=${longDuration(value)}>${shortDuration(value)}</span>`;

/* A relative time that renews itself every 10 seconds. */
export function Time({ epoch }) {
  const [, render] = useReducer((value) => value + 1, 0);
  useEffect(() => {
    const timer = setInterval(render, 10000);
    return () => clearInterval(timer);
  }, []);
  if (!epoch) return html`<span class="faint">never</span>`;
  return html`<time title=${longTime(epoch)} datetime=${new Date(epoch * 1000).toISOString()}>${relativeTime(epoch)}</time>`;
}

export const DateTime = ({ epoch }) =>
  epoch
    ? html`<time title=${longTime(epoch)} datetime=${new Date(epoch * 1000).toISOString()}>${dateTime(epoch)}</time>`
    : html`<span class="faint">never</span>`;

export const TubeLink = ({ server, tube }) =>
  html`<a class="tube-name" href=${tubePath(server, tube)} title=${tube}>${tube}</a>`;

export const JobLink = ({ server, id }) => html`<a class="job-id" href=${jobPath(server, id)}>${id}</a>`;

export const State = ({ state }) => html`<span class=${"state state-" + state}>${state}</span>`;

export const Badge = ({ kind = "neutral", title = null, children }) =>
  html`<span class=${"badge badge-" + kind} title=${title}>${children}</span>`;
