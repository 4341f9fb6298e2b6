/* The dialog of an operation. It first asks the server for the number of affected jobs (dry run), and
   enables the button when the answer is shown, unless it would change nothing.
   An action is {kind, title, button, arguments, fields, danger, tube, note, done(operation)}. A field is
   {name, label, type, value, hint, optional, options}; types: text, number, time, body, file, select, states. */
import { createContext, html, useContext, useEffect, useMemo, useState } from "/static/preact.js";
import { post } from "/static/api.js";
import { longNumber } from "/static/formatting.js";
import { pathOf } from "/static/route.js";
import { Dialog } from "/static/parts/dialog.js";
import { useToast } from "/static/parts/toast.js";

const TYPED_FROM = 100;
const DRY_RUN_DELAY_MS = 250;
const DESTRUCTIVE = new Set(["delete", "truncate"]);
const INPUT_TYPES = { number: "number", time: "datetime-local" };
const MOST_FILE_BYTES = 2_000_000;
const JOB_STATES = ["ready", "delayed", "buried"];

export const ActionContext = createContext(() => {});
export const useAction = () => useContext(ActionContext);

function valueOf(field, entered) {
  if (field.type === "number") return entered === "" ? null : Number(entered);
  return entered;
}

function isComplete(field, entered) {
  if (field.type === "states") return entered.length > 0;
  if (field.type === "body") return true;
  if (entered === "") return Boolean(field.optional);
  return field.type !== "number" || (Number.isFinite(Number(entered)) && Number(entered) >= (field.min ?? 0));
}

/* Gives the text of a file, or "" with the reason below the field. */
function FileInput({ common, onChange }) {
  const [fault, setFault] = useState(null);
  const read = async (event) => {
    const file = event.currentTarget.files[0];
    let text = "";
    let found = null;
    try {
      if (file && file.size > MOST_FILE_BYTES) found = "This file has more than 2 MB.";
      else if (file) text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    } catch {
      found = "This file is not in UTF-8, or cannot be read.";
    }
    setFault(found);
    onChange(text);
  };
  return html`<input ...${common} type="file" onChange=${read} />
    ${fault && html`<p class="danger-text" role="alert">${fault}</p>`}`;
}

function Field({ field, value, onChange, first }) {
  const id = "field-" + field.name;
  const hint = field.hint ? id + "-hint" : null;
  const common = { id, "aria-describedby": hint, autofocus: first };
  const input = (event) => onChange(event.currentTarget.value);
  if (field.type === "states") {
    return html`<fieldset class="field"><legend>${field.label}</legend><div class="choices">
      ${JOB_STATES.map((state) => html`<label key=${state}><input type="checkbox" checked=${value.includes(state)}
        onChange=${(event) => onChange(event.currentTarget.checked ? [...value, state] : value.filter((one) => one !== state))} /> ${state}</label>`)}
    </div></fieldset>`;
  }
  let control;
  if (field.type === "body") control = html`<textarea ...${common} rows="5" spellcheck=${false} class="code"
    value=${value} onInput=${input}></textarea>`;
  else if (field.type === "file") {
    control = html`<${FileInput} common=${common} onChange=${onChange} />`;
  } else if (field.type === "select") {
    control = html`<select ...${common} value=${value} onChange=${input}>
    ${field.options.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select>`;
  } else {
    control = html`<input ...${common} type=${INPUT_TYPES[field.type] ?? "text"}
    min=${field.type === "number" ? (field.min ?? 0) : null} step=${field.type === "number" ? "any" : null}
      value=${value} autocomplete="off" spellcheck=${false} required=${!field.optional} onInput=${input}
      list=${field.list ?? null} />`;
  }
  return html`<div class=${"field" + (field.half ? " field-half" : "")}><label for=${id}>
    ${field.label}${field.optional && html` <span class="faint">optional</span>`}</label>
      ${control}${hint && html`<p class="hint" id=${hint}>${field.hint}</p>`}</div>`;
}

export function ActionDialog({ action, server, onClose }) {
  const toast = useToast();
  const fields = action.fields ?? [];
  const [values, setValues] = useState(() => Object.fromEntries(fields.map((one) => [one.name, one.value ?? (one.type === "states" ? [] : "")])));
  const [dry, setDry] = useState({ count: null, text: null, error: null, of: null });
  const [typed, setTyped] = useState("");
  const [sending, setSending] = useState(false);
  const [error, setError] = useState(null);
  const complete = fields.every((one) => isComplete(one, values[one.name]));
  const data = useMemo(() => {
    const given = Object.fromEntries(fields.map((one) => [one.name, valueOf(one, values[one.name])]));
    return action.build ? action.build(given) : { ...action.arguments, ...given };
  }, [values]);
  const request = JSON.stringify(data);

  useEffect(() => {
    if (!complete) return undefined;
    const aborter = new AbortController();
    const timer = setTimeout(
      () =>
        post("/s/" + server + "/operations", { kind: action.kind, dry_run: true, ...data }, aborter.signal).then(
          (answer) => setDry({ ...answer, error: null, of: request }),
          (failure) => failure.name === "AbortError" || setDry({ count: null, text: null, error: failure.message, of: request }),
        ),
      dry.of === null ? 0 : DRY_RUN_DELAY_MS,
    );
    return () => {
      clearTimeout(timer);
      aborter.abort();
    };
  }, [request, complete]);

  const current = complete && dry.of === request;
  const mustType = DESTRUCTIVE.has(action.kind) && current && !dry.error && (dry.count === null || dry.count > TYPED_FROM) && Boolean(action.tube);
  const ready = current && !dry.error && dry.count !== 0 && (!mustType || typed === action.tube) && !sending;

  const submit = async (event) => {
    event.preventDefault();
    if (!ready) return;
    setSending(true);
    setError(null);
    try {
      const operation = await post("/s/" + server + "/operations", { kind: action.kind, dry_run: false, ...data });
      if (operation.error) toast(operation.error, { danger: true, href: pathOf(server, "operations") });
      else toast(operation.text || action.title + ": done", { href: pathOf(server, "operations") });
      action.done?.(operation);
      onClose();
    } catch (failure) {
      setError(failure.message);
      setSending(false);
    }
  };

  let answer;
  if (!complete) answer = html`<p class="faint">Fill in the fields to see what this does.</p>`;
  else if (!current) answer = html`<p class="faint"><span class="spinner" aria-hidden="true"></span>Asking the server</p>`;
  else if (dry.error) answer = html`<p class="danger-text">${dry.error}</p>`;
  else answer = html`<p class="dry-count">${dry.count != null && html`<b>${longNumber(dry.count)}</b>`}<span>
  ${dry.text}</span></p>`;

  return html`<${Dialog} title=${action.title} onClose=${onClose}>
    <form onSubmit=${submit} class="form">
      ${action.note && html`<p class="dialog-note">${action.note}</p>`}
      <div class="fields">
        ${fields.map((one, at) => html`<${Field} key=${one.name} field=${one} first=${at === 0}
          value=${values[one.name]} onChange=${(value) => setValues((old) => ({ ...old, [one.name]: value }))} />`)}
      </div>
      <div class="dry-run" aria-live="polite">${answer}</div>
      ${mustType && html`<div class="field"><label for="typed-name">Type the name of the tube to confirm: <code>
        ${action.tube}</code></label>
        <input id="typed-name" type="text" autocomplete="off" spellcheck=${false} value=${typed}
          onInput=${(event) => setTyped(event.currentTarget.value)} /></div>`}
      ${error && html`<p class="danger-text" role="alert">${error}</p>`}
      <footer class="dialog-footer">
        <button type="button" class="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class=${"button " + (action.danger ? "danger" : "primary")} disabled=${!ready}>
          ${action.button}</button>
      </footer>
    </form>
  <//>`;
}
