/* Numbers, times and names in short form with the exact value as title. */
import { html, useEffect, useReducer } from "/static/preact.js";
import {
  dateTime, longDuration, longNumber, longTime, relativeTime, shortDuration, shortNumber, shortRate, shortSize,
} from "/static/formatting.js";
import { jobPath, tubePath } from "/static/route.js";

/* A number as {text, title, faint}: short, exact if that differs, and whether it is of no interest. */
const number = (text, title, faint = false) => ({ text, title: title === text ? null : title, faint });
const UNKNOWN = number("–", "unknown", true);
export const countOf = (value) => (value == null ? UNKNOWN : number(shortNumber(value), longNumber(value), value === 0));
export const rateOf = (value) => (value == null ? UNKNOWN : number(shortRate(value), longNumber(value) + " per second", !value));
export const sizeOf = (value) => (value == null ? UNKNOWN : number(shortSize(value), longNumber(value) + " bytes"));
export const durationOf = (value) => (value == null ? UNKNOWN : number(shortDuration(value), longDuration(value)));

const Short = ({ text, title, faint }) => html`<span class=${faint ? "faint" : null} title=${title}>${text}</span>`;
export const Count = ({ value, zero = true }) => Short({ ...countOf(value), ...(!zero && value != null && { faint: false }) });
export const Rate = ({ value }) => Short(rateOf(value));
export const Duration = ({ value }) => Short(durationOf(value));

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
