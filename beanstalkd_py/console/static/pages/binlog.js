import { html } from "/static/preact.js";
import { useData } from "/static/api.js";
import { keyLabel, longNumber, shortDuration, shortNumber, shortSize } from "/static/formatting.js";
import { useLive } from "/static/live.js";
import { may, useSession } from "/static/session.js";
import { useAction } from "/static/parts/action_dialog.js";
import { Empty, WhenLoaded } from "/static/parts/notices.js";
import { Facts, Page, Section } from "/static/parts/page.js";
import { DataTable } from "/static/parts/table.js";
import { Badge } from "/static/parts/values.js";

/* Units by the ends of the keys: -bytes, -s, -ms, -us. */
function shown(key, value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (value == null) return "–";
  if (key === "state") return html`<${Badge} kind=${value === "serving" ? "good" : "warning"}>${value}<//>`;
  if (typeof value !== "number") return Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value);
  const units = [[/[-_]bytes$|^size$|[-_]size$/, shortSize], [/[-_]us$/, (one) => shortDuration(one / 1e6)], [/[-_]ms$/, (one) => shortDuration(one / 1e3)], [/[-_]s$/, shortDuration]];
  const unit = units.find(([end]) => end.test(key));
  if (unit) return html`<span title=${longNumber(value)}>${unit[1](value)}</span>`;
  if (/^(pid|worker|offset)$/.test(key)) return String(value);
  return html`<span title=${longNumber(value)}>${shortNumber(value)}</span>`;
}

const labelOf = (key) => keyLabel(key.replace(/[-_](bytes|s|ms|us)$/, ""));

const FIRST = ["worker", "state", "pid", "connections", "tubes", "cpu-s", "memory-bytes", "restarts"];

function columnsOf(rows) {
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((key) => rows.every((row) => row[key] === null || typeof row[key] !== "object"));
  const ordered = [...FIRST.filter((key) => keys.includes(key)), ...keys.filter((key) => !FIRST.includes(key))];
  return ordered.map((key) => ({ key, label: labelOf(key), title: key, numeric: rows.some((row) => typeof row[key] === "number") && key !== "worker", cell: (row) => shown(key, row[key]) }));
}

function Disk({ disk }) {
  const used = disk.size - disk.free;
  const share = disk.size ? used / disk.size : 0;
  return html`<div class=${"disk" + (share > 0.9 ? " disk-full" : "")}>
    <progress aria-label="Used space of the disk" max="1" value=${share}></progress>
    <p><b>${shortSize(disk.free)}</b> free of <span title=${longNumber(disk.size) + " bytes"}>${shortSize(disk.size)}</span> <span class="faint">(${Math.round(share * 100)}% used)</span></p></div>`;
}

const showOf = (values) => Object.fromEntries(Object.keys(values).filter((key) => values[key] === null || typeof values[key] !== "object").map((key) => [key, (value) => shown(key, value)]));

function Actions({ onDone }) {
  const session = useSession();
  const openAction = useAction();
  const live = useLive();
  if (!may(session, "compact")) return null;
  const draining = String(live?.survey?.server.draining) === "true";
  const open = (action) => () => openAction({ ...action, done: onDone });
  return html`
    <button class="button" onClick=${open({ kind: "compact", button: "Compact", title: "Compact the binlog", arguments: {}, note: "Clients are served meanwhile." })}>Compact</button>
    <button class="button" onClick=${open({ kind: "reload", button: "Reload", title: "Reload the options", arguments: {}, note: "The server reads its configuration file and certificates again." })}>Reload options</button>
    ${draining
      ? html`<button class="button primary" onClick=${open({ kind: "drain", button: "Accept jobs", title: "Accept new jobs again", arguments: { on: false } })}>End drain</button>`
      : html`<button class="button danger-outline" onClick=${open({ kind: "drain", button: "Drain", danger: true, title: "Drain the server", arguments: { on: true }, note: "The server rejects new jobs until the drain is ended. Clients get DRAINING." })}>Drain</button>`}`;
}

export function BinlogPage({ server }) {
  const source = useData("/s/" + server + "/binlog", { everyS: 5 });
  return html`<${Page} title="Binlog and workers" actions=${html`<${Actions} onDone=${source.reload} />`}>
    <${WhenLoaded} source=${source}>${(data) => html`
      <div class="grid-2">
        <${Section} title="Disk">${data.disk ? html`<${Disk} disk=${data.disk} />` : html`<p class="faint">The server has no binlog folder, or the console cannot read it.</p>`}<//>
        <${Section} title="History">${data.history ? html`<${Facts} values=${data.history} show=${showOf(data.history)} />` : html`<p class="faint">The server keeps no history. Start it with --history DIR to keep ended jobs.</p>`}<//>
      </div>
      <${Section} title="Binlog">${data.binlog && Object.keys(data.binlog).length ? html`<${Facts} values=${data.binlog} show=${showOf(data.binlog)} />` : html`<p class="faint">The server has no binlog. Start it with -b DIR so that jobs survive a restart.</p>`}<//>
      <${Section} title="Workers" flush=${true}>
        <${DataTable} label="Workers" columns=${columnsOf(data.workers ?? [])} rows=${data.workers ?? []} rowKey=${(row) => row.worker} empty=${html`<${Empty}>The processes of the server appear here if the console can open its control socket.<//>`} />
      <//>`}<//>
  <//>`;
}
