import { html, useEffect, useMemo, useState } from "/static/preact.js";
import { useData, withQuery } from "/static/api.js";
import { counted, longNumber } from "/static/formatting.js";
import { navigate, pathOf } from "/static/route.js";
import { may, useSession } from "/static/session.js";
import { useAction } from "/static/parts/action_dialog.js";
import { FilterBar, FilterSelect, FilterText, TubeNames } from "/static/parts/filters.js";
import { JobBody, bodyLine } from "/static/parts/job_body.js";
import { Empty, Failure, Loading, WhenLoaded } from "/static/parts/notices.js";
import { Pager, usePages } from "/static/parts/paging.js";
import { Facts, Page, Section } from "/static/parts/page.js";
import { DataTable, sortRows, useSort } from "/static/parts/table.js";
import { putAgain, rateField } from "/static/parts/tube_actions.js";
import { DateTime, State, countOf } from "/static/parts/values.js";

const EVENTS = ["", "deleted", "truncated", "expired", "moved", "dead-lettered", "discarded"].map((one) => [one, one || "Any end"]);
const LIMIT = 100;

/* The value of a datetime-local field as epoch seconds, in the time zone of the browser. */
const epochOf = (text) => (text ? new Date(text).getTime() / 1000 : null);

const topicColumns = (server) => [
  { key: "tube", label: "Tube", cell: (row) => html`<a class="tube-name"
    href=${pathOf(server, "history", null, { tube: row.tube })}>${row.tube}</a>` },
  { key: "messages", label: "Ended jobs", numeric: true, number: (row) => countOf(row.messages) },
  { key: "first", label: "First", hide: "narrow", cell: (row) => html`<${DateTime} epoch=${row.first} />` },
  { key: "last", label: "Last", cell: (row) => html`<${DateTime} epoch=${row.last} />` },
];

function Topics({ server, topics }) {
  const [sort, onSort] = useSort({ key: "last", down: true });
  const columns = useMemo(() => topicColumns(server), [server]);
  const rows = useMemo(() => sortRows(topics, columns, sort), [topics, columns, sort]);
  return html`<${Section} title="Tubes in the history" flush=${true}>
    <${DataTable} label="Tubes in the history" columns=${columns} rows=${rows} rowKey=${(row) => row.tube} sort=${sort}
      onSort=${onSort}
      empty=${html`<${Empty} title="The history is empty.">Jobs appear here when they have ended: deleted, expired, moved or truncated.<//>`} />
  <//>`;
}

/* Ended jobs, newest first. Another query needs another `key`, so that it begins at its first page. */
function Messages({ server, wanted }) {
  const session = useSession();
  const openAction = useAction();
  const pages = usePages(null);
  const source = useData(withQuery("/s/" + server + "/history/messages", { ...wanted, limit: LIMIT, before: pages.at }));
  const messages = source.data?.messages ?? [];
  const next = source.data?.next ?? null;
  const isSearching = messages.length === 0 && next !== null;
  useEffect(() => {
    if (isSearching) pages.goOn(next);
  }, [source.data]);
  const [opened, setOpened] = useState(null);
  const columns = useMemo(() => [
    { key: "key", label: "Job", cell: (row) => html`<button class="group-toggle" aria-expanded=${opened === row.offset}
      onClick=${() => setOpened(opened === row.offset ? null : row.offset)}><span class="caret"
      aria-hidden="true"></span><span class="job-id">${row.key}</span></button>` },
    ...(wanted.tube ? [] : [{ key: "tube", label: "Tube", cell: (row) => html`<span class="tube-name">${row.tube}</span>` }]),
    { key: "event", label: "End", cell: (row) => html`<${State} state=${row.event} />` },
    { key: "stored", label: "Stored", cell: (row) => html`<${DateTime} epoch=${row.stored} />` },
    { key: "reserves", label: "Reserves", numeric: true, hide: "narrow", cell: (row) => row.properties?.reserves ?? "–" },
    { key: "body", label: "Body", hide: "narrow", className: "cell-body", cell: (row) => html`<span class="mono">
      ${bodyLine(row.body, 80)}</span>` },
  ], [opened]);
  const renderRow = (row, at, width) => row.detailsOf && html`<tr key=${"details " + row.detailsOf.offset} data-row=${at}
    class="row-details"><td colspan=${width}>
      <div class="message-details">
        <${JobBody} body=${row.detailsOf.body} />
        <${Facts} values=${{ offset: row.detailsOf.offset, ...row.detailsOf.properties }} />
        <p class="buttons">
          ${row.detailsOf.key && may(session, "undelete") && html`<button class="button small"
            onClick=${() => openAction(putAgain(row.detailsOf))}>Put again</button>`}
          <a href=${pathOf(server, "jobs", String(row.detailsOf.key))}>Open job ${row.detailsOf.key}</a></p>
      </div></td></tr>`;
  return html`
    ${source.error && html`<${Failure} error=${source.error} retry=${source.reload} />`}
    ${(isSearching || (!source.data && !source.error)) && html`<${Loading}
      text=${pages.at !== pages.begin ? "Searching, back to offset " + longNumber(pages.at) : "Searching"} />`}
    ${source.data && !isSearching && html`<${DataTable} label="Ended jobs" columns=${columns}
      rows=${messages.flatMap((one) => (one.offset === opened ? [one, { detailsOf: one }] : [one]))}
      rowKey=${(row) => row.offset} renderRow=${renderRow}
      empty=${html`<${Empty} title="No ended job matches.">Ended jobs appear here if tube, key, body, end and time match.<//>`} />`}
    <${Pager} pages=${pages} following=${isSearching ? null : next} label="Pages of the history" backwards="Newer"
      forwards="Older" />`;
}

export function HistoryPage({ server, query }) {
  const session = useSession();
  const openAction = useAction();
  const topics = useData("/s/" + server + "/history/topics");
  const { tube = "", key = "", from = "", to = "", event = "", body = "" } = query;
  const set = (name) => (value) =>
    navigate(pathOf(server, "history", null, { ...query, [name]: value }), { replace: true });
  const wanted = { tube, key, from: epochOf(from), to: epochOf(to), event, body };
  const isFiltered = Boolean(tube || key || from || to || event || body);
  const filters = [event && "the end " + event, key && "the key " + key, body && "“" + body + "” in the body"].filter(Boolean);
  const replay = () => openAction({
    kind: "replay", button: "Replay", title: "Replay ended jobs of " + tube, tube,
    note: "The ended jobs of this time" + (filters.length ? " with " + filters.join(" and ") : "") + " are put again, as new jobs.",
    fields: [
      { name: "from", label: "From", type: "time", value: from, optional: true, half: true, hint: "In the time zone of this browser." },
      { name: "to", label: "To", type: "time", value: to, optional: true, half: true },
      { name: "where", label: "Conditions", optional: true, hint: "Such as buries>0 & pri<1024, as of beanstalkd-py history replay --filter." },
      { name: "to_tube", label: "Into the tube", value: tube, list: "tube-names" },
      { name: "pri", label: "Priority", type: "number", optional: true, half: true, hint: "Empty: that of each job." },
      { name: "ttr", label: "Time to run in seconds", type: "number", optional: true, half: true, min: 1, hint: "Empty: that of each job." },
      { name: "delay", label: "Delay in seconds", type: "number", optional: true, half: true, hint: "Empty: no delay." },
      { ...rateField, half: true },
    ],
    build: (values) => ({
      ...values, tube, from: epochOf(values.from), to: epochOf(values.to), event: event || null, key: key || null, body: body || null, where: values.where || null,
    }),
  });
  return html`<${Page} title=${tube ? html`History of <span class="tube-name">${tube}</span>` : "History"}
    trail=${tube ? { href: pathOf(server, "history"), text: "History" } : null} label=${tube ? "History of " + tube : "History"}
    badges=${!isFiltered && topics.data && html`<span class="page-note">
      ${counted(topics.data.topics.reduce((sum, one) => sum + one.messages, 0), "ended job")}</span>`}
    actions=${tube && may(session, "replay") && html`<button class="button" onClick=${replay}>Replay</button>`}>
    <${TubeNames} id="tube-names" also=${(topics.data?.topics ?? []).slice(0, 200).map((one) => one.tube)} />
    <${FilterBar} label="Search the history">
      <${FilterText} label="Tube" value=${tube} onChange=${set("tube")} list="tube-names" search=${!tube}
        placeholder="name of a tube" delayMs=${500} />
      <${FilterText} label="Job id or key" value=${key} onChange=${set("key")} search=${Boolean(tube)} />
      <${FilterText} label="Body contains" value=${body} onChange=${set("body")} placeholder="text in the body" />
      <${FilterText} label="From" type="datetime-local" value=${from} onChange=${set("from")} />
      <${FilterText} label="To" type="datetime-local" value=${to} onChange=${set("to")} />
      <${FilterSelect} label="End" value=${event} onChange=${set("event")} options=${EVENTS} />
    <//>
    ${isFiltered
      ? html`<${Section} title="Ended jobs" flush=${true}><${Messages} key=${JSON.stringify(wanted)} server=${server}
        wanted=${wanted} /><//>`
      : html`<${WhenLoaded} source=${topics}>${(data) => html`<${Topics} server=${server} topics=${data.topics} />`}<//>`}
  <//>`;
}
