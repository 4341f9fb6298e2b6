/* The body of a job or message as text, JSON or hex. */
import { html, useMemo, useState } from "/static/preact.js";
import { counted } from "/static/formatting.js";
import { indentJson } from "/static/parts/json_text.js";

const HEX_BYTES = 16;
const SHOWN_BYTES = 1 << 16;
const SHOWN_CHARACTERS = 1 << 18;

const bytesOf = (body) =>
  body.base64 == null ? new TextEncoder().encode(body.text) : Uint8Array.from(atob(body.base64), (one) => one.charCodeAt(0));

const hexOf = (byte) => byte.toString(16).padStart(2, "0");

function hexDump(bytes) {
  const lines = [];
  const end = Math.min(bytes.length, SHOWN_BYTES);
  for (let at = 0; at < end; at += HEX_BYTES) {
    const part = [...bytes.subarray(at, Math.min(at + HEX_BYTES, end))];
    const hex = part.map(hexOf).join(" ").padEnd(HEX_BYTES * 3);
    const text = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(at.toString(16).padStart(8, "0") + "  " + hex + " " + text);
  }
  return lines.join("\n");
}

/* One line for tables. */
export const bodyLine = (body, length = 120) => {
  if (!body) return "";
  const text = body.text ?? new TextDecoder("latin1").decode(bytesOf(body)).replace(/[^\x20-\x7e]/g, ".");
  return text.length > length ? text.slice(0, length) + "…" : text;
};

export function JobBody({ body }) {
  const json = useMemo(() => (body?.text ? indentJson(body.text) : null), [body]);
  const [chosen, setChosen] = useState(null);
  if (!body) return html`<p class="faint">The body is not available.</p>`;
  const isText = body.text != null;
  const views = [...(json ? ["JSON"] : []), ...(isText ? ["Text"] : []), "Hex"];
  const view = chosen && views.includes(chosen) ? chosen : views[0];
  const content = view === "JSON" ? json.slice(0, SHOWN_CHARACTERS) : view === "Text" ? body.text.slice(0, SHOWN_BYTES) : hexDump(bytesOf(body));
  const cut = body.truncated || (body.size ?? 0) > SHOWN_BYTES;
  return html`<div class="body-view">
    <div class="body-bar">
      <div class="segments" role="group" aria-label="View of the body">
        ${views.map((one) => html`<button key=${one} type="button" aria-pressed=${one === view}
          onClick=${() => setChosen(one)}>${one}</button>`)}
      </div>
      <span class="faint">${counted(body.size ?? bytesOf(body).length, "byte")}${cut ? ", only the start is shown" : ""}</span>
    </div>
    <pre class="code" tabindex="0" role="region" aria-label="Body">${content || html`<span class="faint">empty</span>`}</pre>
  </div>`;
}
