/* Fields of a filter bar. */
import { html, useEffect, useRef, useState } from "/static/preact.js";
import { useLiveOnce } from "/static/live.js";

const TYPING_MS = 300;

export const FilterBar = ({ label, children }) => html`<form class="filters" role="search" aria-label=${label}
  onSubmit=${(event) => event.preventDefault()}>${children}</form>`;

/* A text field that reports its value after a pause in typing, or at Enter. */
export function FilterText({ label, value, onChange, search = false, placeholder = null, type = "text", size = null, list = null, delayMs = TYPING_MS }) {
  const [text, setText] = useState(value);
  // Another field may have changed since this one began to wait.
  const latest = useRef(onChange);
  latest.current = onChange;
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return undefined;
    const timer = setTimeout(() => latest.current(text), delayMs);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<label class=${"filter" + (search ? " filter-search" : "")}><span>${label}</span>
    <input type=${type} data-search=${search ? "" : null} value=${text} placeholder=${placeholder} size=${size}
      list=${list} autocomplete="off" spellcheck=${false}
      min=${type === "number" ? 0 : null}
      onInput=${(event) => setText(event.currentTarget.value)}
      onKeyDown=${(event) => {
        if (event.key === "Enter") onChange(text);
        if (event.key === "Escape") event.currentTarget.blur();
      }} /></label>`;
}

export const FilterSelect = ({ label, value, onChange, options }) =>
  html`<label class="filter"><span>${label}</span>
    <select value=${value} onChange=${(event) => onChange(event.currentTarget.value)}>
      ${options.map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}
    </select></label>`;

/* Suggestions of tube names: the fullest ones, at most 200, because browsers are slow with thousands. */
export function TubeNames({ id, also = [] }) {
  const live = useLiveOnce();
  const names = [...(live?.tubes.values() ?? [])].sort((a, b) => b.ready + b.buried - a.ready - a.buried).slice(0, 200).map((one) => one.tube);
  return html`<datalist id=${id}>
    ${[...new Set([...also, ...names])].map((name) => html`<option key=${name} value=${name} />`)}</datalist>`;
}
