import { html } from "/static/preact.js";
import { useData } from "/static/api.js";
import { may, useSession } from "/static/session.js";
import { useAction } from "/static/parts/action_dialog.js";
import { Empty, WhenLoaded } from "/static/parts/notices.js";
import { Page } from "/static/parts/page.js";
import { DataTable } from "/static/parts/table.js";
import { Badge, Time, TubeLink, countOf } from "/static/parts/values.js";

export function SchedulesPage({ server }) {
  const session = useSession();
  const openAction = useAction();
  const source = useData("/s/" + server + "/schedules", { everyS: 10 });
  const run = (name) => openAction({
    kind: "schedule-run", button: "Put now", title: "Put the job of " + name, arguments: { name }, done: source.reload,
    note: "The job is put at once. The times of the schedule do not change.",
  });
  const columns = [
    { key: "name", label: "Schedule", cell: (row) => html`<b>${row.name}</b>` },
    { key: "cron", label: "Times", cell: (row) => html`<code>${row.cron}</code> <span class="faint">${row.timezone}</span>` },
    { key: "tube", label: "Tube", cell: (row) => html`<${TubeLink} server=${server} tube=${row.tube} />` },
    { key: "last-put", label: "Last", hide: "narrow", cell: (row) => html`<${Time} epoch=${row["last-put"]} />` },
    { key: "next-tick", label: "Next", cell: (row) => html`<${Time} epoch=${row["next-tick"]} />` },
    { key: "puts", label: "Puts", numeric: true, hide: "narrow", number: (row) => countOf(row.puts) },
    { key: "errors", label: "Errors", numeric: true, hide: "narrow", number: (row) => countOf(row.errors) },
    { key: "error", label: "State", className: "cell-wrap", cell: (row) => (row.error ? html`<${Badge} kind="danger">failing<//> ${row.error}` : html`<${Badge} kind="good">ok<//>`) },
    ...(may(session, "schedule-run") ? [{ key: "run", label: "Action", plain: true, cell: (row) => html`<button class="button small"
      onClick=${() => run(row.name)} aria-label=${"Put now: the job of " + row.name}>Put now</button>` }] : []),
  ];
  return html`<${Page} title="Schedules"><${WhenLoaded} source=${source}>${(data) => html`<div class="card card-flush">
    <${DataTable} cards=${true} label="Schedules" columns=${columns} rows=${data.schedules} rowKey=${(row) => row.name}
      empty=${html`<${Empty} title="No schedules.">A schedule puts a job at the times of a cron expression. It appears here after a reload when the configuration file has a table [schedule.NAME].<//>`} /></div>`}<//><//>`;
}
