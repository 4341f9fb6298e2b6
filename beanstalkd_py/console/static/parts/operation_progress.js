/* The progress of an operation. */
import { html } from "/static/preact.js";
import { longNumber, shortNumber } from "/static/formatting.js";

export const operationState = (one) => (one.error ? "failed" : one.ended ? "done" : "running");

export function Progress({ operation }) {
  const { done, total, ended } = operation;
  const share = total ? Math.min(1, done / total) : operation.error ? 0 : ended ? 1 : null;
  const exact = longNumber(done) + (total != null ? " of " + longNumber(total) : "");
  return html`<span class="progress-line" title=${exact}>
    <progress aria-label=${"Progress of " + operation.kind + " " + (operation.target ?? "")} max="1" value=${share}></progress>
    <span class="progress-text">${shortNumber(done)}${total != null ? " / " + shortNumber(total) : ""}</span>
  </span>`;
}

export const OperationProgress = ({ operation }) =>
  html`<div class="operation"><p><b>${operation.kind}</b> <span class="tube-name">
    ${operation.target}</span> <span class="faint">by ${operation.user || "anybody"}</span></p>
    <${Progress} operation=${operation} /></div>`;
