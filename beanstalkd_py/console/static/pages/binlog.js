import { html } from "/static/preact.js";
import { useData } from "/static/api.js";
import { longNumber, shortSize } from "/static/formatting.js";
import { useLive } from "/static/live.js";
import { may, useSession } from "/static/session.js";
import { useAction } from "/static/parts/action_dialog.js";
import { Empty, WhenLoaded } from "/static/parts/notices.js";
import { Facts, Page, Section } from "/static/parts/page.js";
import { DataTable } from "/static/parts/table.js";
import { labelOf, valueOf } from "/static/parts/units.js";
import { Badge } from "/static/parts/values.js";

const cellOf = (key, value) => (key === "state" ? html`<${Badge} kind=${value === "serving" ? "good" : "warning"}>
  ${value}<//>` : valueOf(key, value));

const FIRST = ["worker", "state", "pid", "connections", "tubes", "cpu-s", "memory-bytes", "restarts"];

function columnsOf(rows) {
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((key) => rows.every((row) => row[key] === null || typeof row[key] !== "object"));
  const ordered = [...FIRST.filter((key) => keys.includes(key)), ...keys.filter((key) => !FIRST.includes(key))];
  return ordered.map((key) => ({ key, label: labelOf(key), title: key, numeric: rows.some((row) => typeof row[key] === "number") && key !== "worker", cell: (row) => cellOf(key, row[key]) }));
}

function Disk({ disk }) {
  const used = disk.size - disk.free;
  const share = disk.size ? used / disk.size : 0;
  return html`<div class=${"disk" + (share > 0.9 ? " disk-full" : "")}>
    <progress aria-label="Used space of the disk" max="1" value=${share}></progress>
    <p><b>${shortSize(disk.free)}</b> free of <span title=${longNumber(disk.size) + " bytes"}>
      ${shortSize(disk.size)}</span> <span class="faint">(${Math.round(share * 100)}% used)</span></p></div>`;
}

function Actions({ onDone }) {
  const session = useSession();
  const openAction = useAction();
  const live = useLive();
  if (!may(session, "compact")) return null;
  const draining = String(live?.survey?.server.draining) === "true";
  const open = (action) => () => openAction({ ...action, done: onDone });
  return html`
    <button class="button"
      onClick=${open({ kind: "compact", button: "Compact", title: "Compact the binlog", arguments: {}, note: "Clients are served meanwhile." })}>Compact</button>
    <button class="button"
      onClick=${open({ kind: "reload", button: "Reload", title: "Reload the options", arguments: {}, note: "The server reads its configuration file and certificates again." })}>Reload options</button>
    ${draining
      ? html`<button class="button primary"
        onClick=${open({ kind: "drain", button: "Accept jobs", title: "Accept new jobs again", arguments: { on: false } })}>End drain</button>`
      : html`<button class="button danger-outline"
        onClick=${open({ kind: "drain", button: "Drain", danger: true, title: "Drain the server", arguments: { on: true }, note: "The server rejects new jobs until the drain is ended. Clients get DRAINING." })}>Drain</button>`}`;
}

export function BinlogPage({ server }) {
  const source = useData("/s/" + server + "/binlog", { everyS: 5 });
  return html`<${Page} title="Binlog and workers" actions=${html`<${Actions} onDone=${source.reload} />`}>
    <${WhenLoaded} source=${source}>${(data) => html`
      <div class="grid-2">
        <div class="stack"><${Section} title="Disk">
          ${data.disk ? html`<${Disk} disk=${data.disk} />` : html`<p class="faint">The server has no binlog folder, or the console cannot read it.</p>`}<//>
        <${Section} title="Binlog">
          ${data.binlog && Object.keys(data.binlog).length ? html`<${Facts} values=${data.binlog} />` : html`<p class="faint">The server has no binlog. Start it with -b DIR so that jobs survive a restart.</p>`}<//></div>
        <${Section} title="History">
          ${data.history ? html`<${Facts} values=${data.history} />` : html`<p class="faint">The server keeps no history. Start it with --history DIR to keep ended jobs.</p>`}<//>
      </div>
      <${Section} title="Workers" flush=${true}>
        <${DataTable} label="Workers" columns=${columnsOf(data.workers ?? [])} rows=${data.workers ?? []}
          rowKey=${(row) => row.worker}
          empty=${html`<${Empty}>The processes of the server appear here if the console can open its control socket.<//>`} />
      <//>`}<//>
  <//>`;
}
