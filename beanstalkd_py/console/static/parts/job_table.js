/* Jobs of a tube: filters, pages and selection. The server filters and pages. */
import { html, useEffect, useMemo, useState } from "/static/preact.js";
import { useData, withQuery } from "/static/api.js";
import { counted, longNumber } from "/static/formatting.js";
import { useEndedOperations } from "/static/live.js";
import { may, useSession } from "/static/session.js";
import { useAction } from "/static/parts/action_dialog.js";
import { FilterBar, FilterSelect, FilterText } from "/static/parts/filters.js";
import { Empty, Failure, Loading } from "/static/parts/notices.js";
import { Pager, usePages } from "/static/parts/paging.js";
import { DataTable } from "/static/parts/table.js";
import { JobLink, State, countOf, durationOf, sizeOf } from "/static/parts/values.js";

const STATES = [["any", "Any state"], ["ready", "Ready"], ["reserved", "Reserved"], ["delayed", "Delayed"], ["buried", "Buried"]];
const LIMITS = [["50", "50 jobs"], ["100", "100 jobs"], ["500", "500 jobs"], ["1000", "1,000 jobs"]];
const FILTERS = ["state", "min_age", "max_age", "min_pri", "max_pri", "body"];
const TEXTS = ["state", "body"];

/* The arguments of an operation on all jobs that match. */
function filterOf(tube, filters) {
  const given = FILTERS.filter((key) => filters[key] && filters[key] !== "any");
  return { tube, ...Object.fromEntries(given.map((key) => [key, TEXTS.includes(key) ? filters[key] : Number(filters[key])])) };
}

function columnsOf(server, isChosen, rows, onChoose, selectable) {
  const all = rows.length > 0 && rows.every((row) => isChosen(row.id));
  const number = (key, label, hide, title = null) => ({ key, label, title, numeric: true, width: 84, hide, number: (row) => countOf(row[key]) });
  const time = (key, label, hide, title = null) => ({ key, label, title, numeric: true, width: 84, hide, number: (row) => durationOf(row[key]) });
  const choice = {
    key: "choice", label: "", width: 40, rowHeader: false, className: "cell-choice",
    header: html`<label class="choice"><span class="hidden">All jobs of this page</span><input type="checkbox"
    checked=${all} onChange=${() => onChoose(all ? [] : rows.map((row) => row.id), true)} /></label>`,
    cell: (row) => html`<label class="choice"><span class="hidden">Job ${row.id}</span><input type="checkbox"
      checked=${isChosen(row.id)} onChange=${() => onChoose([row.id], false)} /></label>`,
  };
  return [
    ...(selectable ? [choice] : []),
    { key: "id", label: "Job", width: 110, narrowWidth: 96, cell: (row) => html`<${JobLink} server=${server} id=${row.id} />` },
    { key: "state", label: "State", width: 100, cell: (row) => html`<${State} state=${row.state} />` },
    { key: "pri", label: "Priority", numeric: true, width: 100, cell: (row) => longNumber(row.pri) },
    time("age", "Age"),
    {
      ...time("time_left", "Time left", "narrow", "Of a reserved job until its time to run ends, of a delayed job until it is ready"),
      number: (row) => durationOf(row.state === "reserved" || row.state === "delayed" ? row.time_left : null),
    },
    time("ttr", "TTR", "medium", "Time to run"),
    number("reserves", "Reserves", "narrow"),
    number("timeouts", "Timeouts", "medium"),
    number("releases", "Releases", "large"),
    number("buries", "Buries", "medium"),
    number("kicks", "Kicks", "large"),
    { key: "bytes", label: "Size", numeric: true, width: 90, hide: "narrow", number: (row) => sizeOf(row.bytes) },
  ];
}

export function JobTable({ server, tube, filters, onFilters, fill = false, before = null }) {
  const session = useSession();
  const openAction = useAction();
  const [limit, setLimit] = useState("100");
  const pages = usePages(0);
  const [chosen, setChosen] = useState(() => new Set());
  const [allMatching, setAllMatching] = useState(false);
  const [more, setMore] = useState(() => FILTERS.some((key) => key !== "state" && key !== "body" && filters[key]));
  const chooseNone = () => {
    setChosen(new Set());
    setAllMatching(false);
  };
  const filterKey = JSON.stringify(filters) + limit + tube;
  const [pageOf, setPageOf] = useState(filterKey);
  if (pageOf !== filterKey) {
    // Another filter starts at the first page; the old position has no meaning there.
    setPageOf(filterKey);
    pages.reset();
    chooseNone();
  }
  const path = withQuery("/s/" + server + "/jobs", {
    tube, state: filters.state || "any", after: pages.at, limit, min_age: filters.min_age, max_age: filters.max_age, min_pri: filters.min_pri, max_pri: filters.max_pri, body: filters.body,
  });
  const source = useData(pageOf === filterKey ? path : null);
  const rows = source.data?.jobs ?? [];
  const next = source.data?.next || null;
  const isSearching = rows.length === 0 && next !== null;
  useEffect(() => {
    if (isSearching) pages.goOn(next);
  }, [source.data]);
  const reload = () => {
    pages.again();
    source.reload();
  };
  useEndedOperations(() => {
    // A search that goes on is not begun again, or it might never end.
    if (pages.at === pages.begin || (source.data && !isSearching)) reload();
  });
  const selectable = may(session, "kick");
  const onChoose = (ids, replace) => {
    setChosen((old) => {
      if (replace) return new Set(ids);
      const next = new Set(allMatching ? rows.map((row) => row.id) : old);
      ids.forEach((id) => next.delete(id) || next.add(id));
      return next;
    });
    setAllMatching(false);
  };
  const isChosen = (id) => allMatching || chosen.has(id);
  const columns = useMemo(() => columnsOf(server, isChosen, rows, onChoose, selectable), [server, chosen, allMatching, rows, selectable]);
  useEffect(chooseNone, [pages.begin]);
  const set = (key) => (value) => onFilters({ ...filters, [key]: value });
  const bulk = (kind, button, danger) => () =>
    openAction({
      kind, button, danger, tube, title: button + " " + (allMatching ? "all jobs" : counted(chosen.size, "job")) + " of " + tube + (allMatching && isFiltered ? " that match" : ""),
      arguments: allMatching ? { filter: filterOf(tube, filters) } : { ids: [...chosen] },
      note: kind === "delete" ? "The jobs are deleted. This cannot be undone." : null,
      done: () => { chooseNone(); reload(); },
    });
  const canChooseMore = source.data?.exact && filters.state !== "reserved" && rows.length > 0 && rows.every((row) => chosen.has(row.id));
  const isFiltered = FILTERS.some((key) => filters[key] && filters[key] !== "any");
  return html`<div class=${"job-table" + (fill ? " job-table-fill" : "")}>
    <${FilterBar} label="Filter jobs">
      ${before}
      <${FilterText} label="Body contains" value=${filters.body ?? ""} onChange=${set("body")} search=${true}
        placeholder="text in the body" />
      <${FilterSelect} label="State" value=${filters.state || "any"} onChange=${set("state")} options=${STATES} />
      ${more
        ? html`<${FilterText} label="Min. age (s)" type="number" value=${filters.min_age ?? ""} onChange=${set("min_age")} />
          <${FilterText} label="Max. age (s)" type="number" value=${filters.max_age ?? ""} onChange=${set("max_age")} />
          <${FilterText} label="Min. priority" type="number" value=${filters.min_pri ?? ""} onChange=${set("min_pri")} />
          <${FilterText} label="Max. priority" type="number" value=${filters.max_pri ?? ""} onChange=${set("max_pri")} />`
        : html`<button type="button" class="button" onClick=${() => setMore(true)}>Age and priority</button>`}
      <${FilterSelect} label="Page" value=${limit} onChange=${setLimit} options=${LIMITS} />
      <button type="button" class="button" onClick=${reload}>Reload</button>
    <//>
    ${source.data?.exact === false && html`<p class="hint">This server cannot list jobs. Only jobs near the heads of its queues are shown.</p>`}
    <div class="bulk-bar" hidden=${chosen.size === 0 && !allMatching} role="group" aria-label="Chosen jobs">
      <b>${allMatching ? "All jobs" + (isFiltered ? " that match are" : " are") : counted(chosen.size, "job")} chosen</b>
      ${canChooseMore && !allMatching && html`<button class="link-button" onClick=${() => setAllMatching(true)}>
        Choose all ${isFiltered ? "that match" : "of the tube"}</button>`}
      <button class="button small" onClick=${bulk("kick", "Kick")}>Kick</button>
      <button class="button small" onClick=${bulk("bury", "Bury")}>Bury</button>
      <button class="button small danger-outline" onClick=${bulk("delete", "Delete", true)}>Delete</button>
      <button class="link-button" onClick=${chooseNone}>Choose none</button>
    </div>
    ${source.error && html`<${Failure} error=${source.error} retry=${source.reload} />`}
    ${(isSearching || (!source.data && !source.error)) && html`<${Loading}
      text=${pages.at > pages.begin ? "Searching, up to job " + longNumber(pages.at) : "Searching"} />`}
    ${source.data && !isSearching && html`<${DataTable} label=${"Jobs of " + tube} fill=${fill && rows.length > 0} columns=${columns}
      rows=${rows} rowKey=${(row) => row.id}
      rowClass=${(row) => (isChosen(row.id) ? "row-chosen" : null)}
      empty=${isFiltered
        ? html`<${Empty} title="No job matches.">Jobs whose state, age, priority and body match the filter appear here.<//>`
        : html`<${Empty} title="No jobs.">Jobs appear here when a client puts them into this tube.<//>`} />`}
    <${Pager} pages=${pages} following=${isSearching ? null : next} label="Pages of jobs" backwards="Previous"
      forwards="Next" />
  </div>`;
}
