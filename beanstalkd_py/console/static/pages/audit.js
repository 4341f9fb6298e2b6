import { html, useState } from "/static/preact.js";
import { useData, withQuery } from "/static/api.js";
import { FilterBar, FilterText } from "/static/parts/filters.js";
import { Empty, WhenLoaded } from "/static/parts/notices.js";
import { Page } from "/static/parts/page.js";
import { DataTable } from "/static/parts/table.js";
import { Badge, DateTime } from "/static/parts/values.js";

const textOf = (value) => {
  if (value == null || value === "") return "";
  if (typeof value !== "object") return String(value);
  return Object.entries(value).map(([key, one]) => key + " " + (typeof one === "object" ? JSON.stringify(one) : one)).join(", ");
};

const change = (row) => {
  const [before, after] = [textOf(row.before), textOf(row.after)];
  return before || after ? html`<span>${before || "–"}</span> <span class="faint">→</span> <span>
    ${after || "–"}</span>` : html`<span class="faint">–</span>`;
};

const OUTCOMES = { done: "good", begun: "neutral", stopped: "neutral" };

const outcome = (row) =>
  OUTCOMES[row.outcome] ? html`<${Badge} kind=${OUTCOMES[row.outcome]}>${row.outcome}<//>`
    : html`<span class="danger-text">${row.outcome}</span>`;

const COLUMNS = [
  { key: "at", label: "Time", cell: (row) => html`<${DateTime} epoch=${row.at} />` },
  { key: "user", label: "User", cell: (row) => html`<span title=${row.address}>${row.user || "–"}</span>` },
  { key: "address", label: "Address", hide: "large", cell: (row) => html`<span class="mono">${row.address}</span>` },
  { key: "server", label: "Server", hide: "narrow", cell: (row) => row.server || html`<span class="faint">–</span>` },
  { key: "action", label: "Action", cell: (row) => html`<b>${row.action}</b>` },
  { key: "arguments", label: "Arguments", hide: "narrow", className: "cell-wrap", cell: (row) => html`<span class="mono">
    ${textOf(row.arguments)}</span>` },
  { key: "change", label: "Before and after", hide: "narrow", className: "cell-wrap", cell: change },
  { key: "outcome", label: "Outcome", className: "cell-wrap", cell: outcome },
];

export function AuditPage() {
  const [positions, setPositions] = useState([]);
  const [text, setText] = useState("");
  const source = useData(withQuery("/audit", { before: positions[positions.length - 1] }), { everyS: 10 });
  const matches = (row) => !text || JSON.stringify(row).toLowerCase().includes(text.toLowerCase());
  return html`<${Page} title="Audit log"
    badges=${html`<span class="page-note">Every change that was made with this console, newest first.</span>`}>
    <${FilterBar} label="Filter the audit log"><${FilterText} label="Contains" value=${text} onChange=${setText}
      search=${true} placeholder="user, action or tube" delayMs=${80} /><//>
    <${WhenLoaded} source=${source}>${({ entries }) => html`<div class="card card-flush">
      <${DataTable} cards=${true} label="Audit log" columns=${COLUMNS} rows=${entries.filter(matches)}
        rowKey=${(row) => row.at + row.action + row.address}
        empty=${text
          ? html`<${Empty} title="No entry of this page matches.">The filter applies only to the entries of this page. Older ones are on the next pages.<//>`
          : html`<${Empty} title="No entries.">Logins and changes appear here with user, address and outcome.<//>`} /></div>
      ${(positions.length > 0 || entries.length > 0) && html`<nav class="pager" aria-label="Pages of the audit log">
        <button class="button small" disabled=${!positions.length}
          onClick=${() => setPositions((old) => old.slice(0, -1))}>Newer</button>
        <button class="button small" disabled=${!entries.length}
          onClick=${() => setPositions((old) => [...old, entries[entries.length - 1].at])}>Older</button></nav>`}`}<//>
  <//>`;
}
