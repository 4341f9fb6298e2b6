import { html, useEffect, useState } from "/static/preact.js";
import { post, useData } from "/static/api.js";
import { longDuration, shortDuration } from "/static/formatting.js";
import { useLive } from "/static/live.js";
import { may, useSession } from "/static/session.js";
import { Empty, Failure, Loading } from "/static/parts/notices.js";
import { Progress, operationState } from "/static/parts/operation_progress.js";
import { Page } from "/static/parts/page.js";
import { DataTable } from "/static/parts/table.js";
import { useToast } from "/static/parts/toast.js";
import { Badge, Time } from "/static/parts/values.js";

const KINDS = { failed: "danger", done: "good", running: "accent" };

function StopButton({ server, operation, onDone }) {
  const toast = useToast();
  const [sending, setSending] = useState(false);
  const stop = async () => {
    setSending(true);
    try {
      await post("/s/" + server + "/operations/" + encodeURIComponent(operation.id) + "/stop");
      toast("The operation stops.");
      onDone();
    } catch (error) {
      toast(error.message, { danger: true });
      setSending(false);
    }
  };
  return html`<button class="button small" disabled=${sending} onClick=${stop}
    aria-label=${"Stop " + operation.kind + " " + (operation.target ?? "")}>Stop</button>`;
}

export function OperationsPage({ server }) {
  const session = useSession();
  const live = useLive();
  const source = useData("/s/" + server + "/operations", { everyS: 10 });
  useEffect(source.reload, [live?.hello]);
  const known = new Map((source.data?.operations ?? []).map((one) => [one.id, one]));
  for (const one of live?.operations ?? []) known.set(one.id, one);
  const rows = [...known.values()].sort((a, b) => b.begun - a.begun);
  const columns = [
    { key: "kind", label: "Operation", cell: (row) => html`<b>${row.kind}</b> <span class="tube-name">${row.target}</span>` },
    { key: "state", label: "State", cell: (row) => html`<${Badge} kind=${KINDS[operationState(row)]}>
      ${operationState(row)}<//>` },
    { key: "done", label: "Progress", cell: (row) => html`<${Progress} operation=${row} />` },
    { key: "text", label: "Result", className: "cell-wrap", hide: "narrow", cell: (row) => (row.error ? html`<span class="danger-text">
      ${row.error}</span>` : row.text) },
    { key: "user", label: "User", hide: "narrow", cell: (row) => row.user || html`<span class="faint">–</span>` },
    { key: "begun", label: "Begun", cell: (row) => html`<${Time} epoch=${row.begun} />` },
    { key: "ended", label: "Duration", numeric: true, hide: "narrow", cell: (row) => (row.ended ? html`<span title=${longDuration(row.ended - row.begun)}>
      ${shortDuration(row.ended - row.begun)}</span>` : "–") },
    { key: "stop", label: "Action", plain: true, cell: (row) => !row.ended && row.can_stop && may(session, row.kind) && html`<${StopButton} server=${server}
      operation=${row} onDone=${source.reload} />` },
  ];
  return html`<${Page} title="Operations">
    ${source.error && html`<${Failure} error=${source.error} retry=${source.reload} />`}
    ${source.loading && html`<${Loading} />`}
    ${source.data && html`<div class="card card-flush"><${DataTable} cards=${true} label="Operations" columns=${columns}
      rows=${rows} rowKey=${(row) => row.id}
      empty=${html`<${Empty} title="No operations.">Kicks, moves, redrives and other changes that are made with this console appear here with their progress.<//>`} /></div>`}
  <//>`;
}
