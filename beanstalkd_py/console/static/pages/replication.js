import { html } from "/static/preact.js";
import { useData } from "/static/api.js";
import { keyLabel } from "/static/formatting.js";
import { Empty, WhenLoaded } from "/static/parts/notices.js";
import { Facts, Page, Section } from "/static/parts/page.js";
import { DataTable } from "/static/parts/table.js";
import { labelOf, valueOf } from "/static/parts/units.js";
import { Badge } from "/static/parts/values.js";

const isTable = (value) => Array.isArray(value) && value.length > 0 && value.every((one) => one && typeof one === "object" && !Array.isArray(one));

const cellOf = (key, value) =>
  key.endsWith("primary") && typeof value === "boolean" ? html`<${Badge} kind=${value ? "accent" : "neutral"}>
  ${value ? "primary" : "standby"}<//>` : valueOf(key, value);

const columnsOf = (rows) =>
  [...new Set(rows.flatMap((row) => Object.keys(row)))].map((key) => ({
    key, label: /^is.primary$/.test(key) ? "Role" : labelOf(key), numeric: rows.every((row) => typeof row[key] === "number"), cell: (row) => cellOf(key, row[key]),
  }));

export function ReplicationPage({ server }) {
  const source = useData("/s/" + server + "/replication", { everyS: 5 });
  return html`<${Page} title="Replication"><${WhenLoaded} source=${source}>${(data) => {
    if (!data.replication) return html`<${Empty} title="No replication.">The primary, its standbys and how far they are behind appear here when the server is started with replication.<//>`;
    const entries = Object.entries(data.replication);
    const facts = Object.fromEntries(entries.filter(([, value]) => !isTable(value)));
    return html`
      <${Section} title="State"><${Facts} values=${facts} /><//>
      ${entries.filter(([, value]) => isTable(value)).map(([key, rows]) => html`<${Section} key=${key}
        title=${keyLabel(key)} flush=${true}>
        <${DataTable} label=${keyLabel(key)} columns=${columnsOf(rows)} rows=${rows}
          rowKey=${(row) => row.address ?? JSON.stringify(row)} /><//>`)}`;
  }}<//><//>`;
}
