import { html, useMemo, useState } from "/static/preact.js";
import { useData, withQuery } from "/static/api.js";
import { counted } from "/static/formatting.js";
import { navigate, pathOf } from "/static/route.js";
import { JobLinks, TubeLinks, Waiting } from "/static/parts/connection_facts.js";
import { FilterBar, FilterSelect, FilterText, TubeNames } from "/static/parts/filters.js";
import { Empty, Failure, Loading } from "/static/parts/notices.js";
import { Page } from "/static/parts/page.js";
import { DataTable, sortRows, useSort } from "/static/parts/table.js";
import { TubeLink } from "/static/parts/values.js";

const LIMIT = 1000;
const ROLES = [["", "All connections"], ["waiting", "Waiting for a job"], ["holding", "Holding jobs"], ["idle", "Neither"]];
const ROLE_TESTS = {
  waiting: (row) => row.waiting,
  holding: (row) => row.holds > 0,
  idle: (row) => !row.waiting && row.holds === 0,
};

const columnsOf = (server) => [
  { key: "address", label: "Address", width: 190, narrowWidth: 150, cell: (row) => html`<span class="mono"
    title=${"Connection " + row.id}>${row.address}</span>` },
  { key: "waiting", label: "Waits", width: 100, numeric: true, sortBy: (row) => (row.waiting ? (row.waits_s ?? Infinity) : -1), cell: (row) => html`<${Waiting} waits=${row.waiting}
    seconds=${row.waits_s} />` },
  { key: "reserved", label: "Holds jobs", width: 230, sortBy: (row) => row.holds, cell: (row) => html`<${JobLinks} server=${server}
    ids=${row.reserved} count=${row.holds} />` },
  { key: "watched", label: "Watches", className: "cell-name", sortBy: (row) => row.watched.join(), cell: (row) => html`<${TubeLinks} server=${server}
    tubes=${row.watched} count=${row.watching} />` },
  { key: "used", label: "Puts into", width: 180, hide: "narrow", cell: (row) => row.used && html`<${TubeLink} server=${server}
    tube=${row.used} />` },
];

export function ConnectionsPage({ server, query }) {
  const tube = query.tube ?? "";
  const source = useData(withQuery("/s/" + server + "/connections", { tube, limit: LIMIT }), { everyS: 5 });
  const [role, setRole] = useState("");
  const [address, setAddress] = useState("");
  const [sort, onSort] = useSort({ key: "reserved", down: true });
  const columns = useMemo(() => columnsOf(server), [server]);
  const all = source.data?.connections ?? [];
  const rows = useMemo(() => {
    const test = ROLE_TESTS[role];
    return sortRows(all.filter((row) => (!test || test(row)) && (!address || row.address.includes(address))), columns, sort);
  }, [all, role, address, sort, columns]);
  return html`<${Page} title="Connections" fill=${true}
    badges=${source.data && html`<span class="page-note" role="status">
      ${counted(rows.length, "connection")}${all.length >= LIMIT ? " (the first " + LIMIT + ")" : ""}</span>`}>
    <${TubeNames} id="tube-names" />
    <${FilterBar} label="Filter connections">
      <${FilterText} label="Address" value=${address} onChange=${setAddress} search=${true}
        placeholder="part of the address" delayMs=${80} />
      <${FilterText} label="Tube" value=${tube}
        onChange=${(value) => navigate(pathOf(server, "connections", null, { tube: value }), { replace: true })}
        list="tube-names" placeholder="used or watched" delayMs=${500} />
      <${FilterSelect} label="Show" value=${role} onChange=${setRole} options=${ROLES} />
    <//>
    ${source.error && html`<${Failure} error=${source.error} retry=${source.reload} />`}
    ${source.loading && html`<${Loading} />`}
    ${source.data && html`<${DataTable} label="Connections" minWidth=${720} fill=${rows.length > 0} columns=${columns}
      rows=${rows} rowKey=${(row) => row.id} sort=${sort} onSort=${onSort}
      empty=${html`<${Empty} title="No connections.">Clients appear here when they connect: consumers with the jobs that they hold, and producers with their tube.<//>`} />`}
  <//>`;
}
