import { html, useMemo } from "/static/preact.js";
import { useLive } from "/static/live.js";
import { navigate, pathOf, tubePath } from "/static/route.js";
import { FilterBar, FilterText, TubeNames } from "/static/parts/filters.js";
import { JobTable } from "/static/parts/job_table.js";
import { Empty } from "/static/parts/notices.js";
import { Page, Section } from "/static/parts/page.js";
import { DataTable, sortRows } from "/static/parts/table.js";
import { countOf } from "/static/parts/values.js";

const SHOWN = 20;

function Choice({ server }) {
  const live = useLive();
  const columns = useMemo(() => [
    { key: "tube", label: "Tube", cell: (row) => html`<a class="tube-name"
      href=${pathOf(server, "jobs", null, { tube: row.tube })}>${row.tube}</a>` },
    ...["ready", "reserved", "delayed", "buried"].map((key) => ({ key, label: key[0].toUpperCase() + key.slice(1), numeric: true, hide: key === "delayed" ? "narrow" : null, number: (row) => countOf(row[key]) })),
    { key: "jobs", label: "Jobs", numeric: true, hide: "narrow", sortBy: (row) => row.ready + row.reserved + row.delayed + row.buried, number: (row) => countOf(row.ready + row.reserved + row.delayed + row.buried) },
  ], [server]);
  const rows = sortRows([...(live?.tubes.values() ?? [])], columns, { key: "jobs", down: true }).slice(0, SHOWN);
  return html`<${Section} title="Choose a tube" flush=${true} note="The fullest tubes">
    <${DataTable} label="The fullest tubes" columns=${columns} rows=${rows} rowKey=${(row) => row.tube}
      empty=${html`<${Empty}>Tubes appear here when clients put jobs into them.<//>`} />
  <//>`;
}

export function JobsPage({ server, query }) {
  const { tube, ...filters } = query;
  const go = (next) => navigate(pathOf(server, "jobs", null, next), { replace: true });
  const choice = html`<${FilterText} label="Tube" value=${tube ?? ""}
    onChange=${(value) => go({ ...filters, tube: value })} list="tube-names" placeholder="name of a tube"
    search=${!tube} delayMs=${500} />`;
  return html`<${Page} title="Jobs" label=${tube ? "Jobs of " + tube : "Jobs"} fill=${Boolean(tube)}
    badges=${tube && html`<span class="page-note">of <a class="tube-name" href=${tubePath(server, tube)}>${tube}</a></span>`}>
    <${TubeNames} id="tube-names" />
    ${tube ? html`<${JobTable} before=${choice} server=${server} tube=${tube} filters=${filters} fill=${true}
      onFilters=${(next) => go({ ...next, tube })} />` : html`<${FilterBar} label="Choose a tube">${choice}<//>
      <${Choice} server=${server} />`}
  <//>`;
}
