import { html, useMemo } from "/static/preact.js";
import { counted, longNumber, shortDuration, shortNumber, shortRate } from "/static/formatting.js";
import { useLive } from "/static/live.js";
import { pathOf } from "/static/route.js";
import { Chart } from "/static/parts/chart.js";
import { Empty, Loading } from "/static/parts/notices.js";
import { OperationProgress } from "/static/parts/operation_progress.js";
import { Figure, Figures, Page, Section } from "/static/parts/page.js";
import { Sparkline } from "/static/parts/sparkline.js";
import { DataTable } from "/static/parts/table.js";
import { TubeBadges, lacksConsumer } from "/static/parts/tube_badges.js";
import { Count, TubeLink, countOf, durationOf, rateOf } from "/static/parts/values.js";

const SHOWN = 8;
const LEAST_S = 0.001;

function Totals({ live, server }) {
  const stats = live.survey.server;
  const jobs = (state) => Number(stats["current-jobs-" + state] ?? 0);
  const { rates } = live.survey;
  const per = (value) => (value == null ? "unknown" : longNumber(value) + " per second");
  return html`<${Figures}>
    <${Figure} label="Ready"><${Count} value=${jobs("ready")} zero=${false} /><//>
    <${Figure} label="Reserved"><${Count} value=${jobs("reserved")} zero=${false} /><//>
    <${Figure} label="Delayed"><${Count} value=${jobs("delayed")} zero=${false} /><//>
    <${Figure} label="Buried" tone=${jobs("buried") ? "warning" : null}
      href=${jobs("buried") ? pathOf(server, "dead-letters") : null}><${Count} value=${jobs("buried")} zero=${false} /><//>
    <${Figure} label="Puts/s" title=${per(rates.puts)}>${shortRate(rates.puts)}<//>
    <${Figure} label="Reserves/s" title=${per(rates.reserves)}>${shortRate(rates.reserves)}<//>
    <${Figure} label="Deletes/s" title=${per(rates.deletes)}>${shortRate(rates.deletes)}<//>
    <${Figure} label="Timeouts/s" title=${per(rates.timeouts)} tone=${rates.timeouts > 0 ? "warning" : null}>
      ${shortRate(rates.timeouts)}<//>
    <${Figure} label="Connections"><${Count} value=${Number(stats["current-connections"] ?? 0)} zero=${false} /><//>
    <${Figure} label="Consumers waiting"><${Count} value=${Number(stats["current-waiting"] ?? 0)} zero=${false} /><//>
    <${Figure} label="CPU">${rates.cpu == null ? "–" : Math.round(rates.cpu * 100) + "%"}<//>
    <${Figure} label="Uptime" title=${longNumber(Number(stats.uptime)) + " seconds"}>${shortDuration(Number(stats.uptime))}<//>
  <//>`;
}

/* The durations that a control socket reports; a server elsewhere has none. */
function DurationCharts({ samples }) {
  return html`<div class="grid-2">
    <${Section} title="Time in the queue">
      <${Chart} label="Time from when a job became ready until a client got it" at=${samples.at}
        format=${shortDuration} least=${LEAST_S} series=${[
          { label: "Median", values: samples.queue_p50, color: "--series-1" },
          { label: "99%", values: samples.queue_p99, color: "--series-4", dash: [5, 3] },
        ]} />
    <//>
    <${Section} title="Syncs of the binlog">
      <${Chart} label="Time of a sync of the binlog" at=${samples.at} format=${shortDuration} least=${LEAST_S}
        series=${[{ label: "99%", values: samples.sync_p99, color: "--series-2" }]} />
    <//>
  </div>`;
}

function busiestColumns(server) {
  return [
    { key: "tube", label: "Tube", cell: (row) => html`<${TubeLink} server=${server} tube=${row.tube} />` },
    { key: "line", label: "Lately", cell: (row) => html`<${Sparkline} values=${row.history.values()}
      label=${"Ready jobs of " + row.tube} />`, hide: "narrow" },
    { key: "ready", label: "Ready", numeric: true, number: (row) => countOf(row.ready) },
    { key: "putsPerS", label: "Puts/s", numeric: true, number: (row) => rateOf(row.putsPerS) },
    { key: "reservesPerS", label: "Res./s", numeric: true, number: (row) => rateOf(row.reservesPerS), hide: "narrow" },
    { key: "deletesPerS", label: "Del./s", numeric: true, number: (row) => rateOf(row.deletesPerS), hide: "large" },
  ];
}

function attentionColumns(server) {
  return [
    { key: "tube", label: "Tube", cell: (row) => html`<${TubeLink} server=${server} tube=${row.tube} />` },
    { key: "ready", label: "Ready", numeric: true, number: (row) => countOf(row.ready) },
    { key: "oldest", label: "Oldest", numeric: true, number: (row) => durationOf(row.oldestReadyS) },
    { key: "badges", label: "Condition", cell: (row) => html`<${TubeBadges} tube=${row} />`, hide: "narrow" },
  ];
}

const activity = (tube) => (tube.putsPerS ?? 0) + (tube.reservesPerS ?? 0) + (tube.deletesPerS ?? 0);

/* Return the first rows of the order without sorting all of them. */
function best(tubes, value) {
  const found = [];
  for (const tube of tubes) {
    const points = value(tube);
    if (points <= 0) continue;
    if (found.length < SHOWN || points > found[found.length - 1][0]) {
      found.push([points, tube]);
      found.sort((a, b) => b[0] - a[0]);
      found.length = Math.min(found.length, SHOWN);
    }
  }
  return found.map(([, tube]) => tube);
}

export function OverviewPage({ server }) {
  const live = useLive();
  const busiestTableColumns = useMemo(() => busiestColumns(server), [server]);
  const attentionTableColumns = useMemo(() => attentionColumns(server), [server]);
  if (!live?.survey) return html`<${Page} title="Overview">
    ${live?.trouble ? null : html`<${Loading} text="Waiting for the first numbers" />`}<//>`;
  const { samples } = live;
  const tubes = [...live.tubes.values()];
  const busiest = best(tubes, activity);
  const stuck = tubes.filter(lacksConsumer);
  const unserved = best(stuck, (tube) => tube.ready);
  const running = (live.operations ?? []).filter((one) => !one.ended);
  const draining = String(live.survey.server.draining) === "true";
  return html`<${Page} title="Overview"
    badges=${html`<span class="page-note">
      ${live.hello?.kind ?? ""} ${live.hello?.version ?? ""}, ${counted(live.tubes.size, "tube")}</span>`}>
    ${draining && html`<div class="notice notice-warning"><p>
      <b>The server drains.</b> It rejects new jobs until this is ended.</p></div>`}
    <${Totals} live=${live} server=${server} />
    <div class="grid-2">
      <${Section} title="Rates per second">
        <${Chart} label="Puts, reserves and deletes per second" at=${samples.at} format=${shortRate} series=${[
          { label: "Puts", values: samples.puts, color: "--series-1" },
          { label: "Reserves", values: samples.reserves, color: "--series-2" },
          { label: "Deletes", values: samples.deletes, color: "--series-3", dash: [5, 3] },
        ]} />
      <//>
      <${Section} title="Jobs by state">
        <${Chart} label="Jobs by state" at=${samples.at} format=${shortNumber} series=${[
          { label: "Ready", values: samples.ready, color: "--series-1" },
          { label: "Reserved", values: samples.reserved, color: "--series-2" },
          { label: "Delayed", values: samples.delayed, color: "--series-3", dash: [5, 3] },
          { label: "Buried", values: samples.buried, color: "--series-4" },
        ]} />
      <//>
    </div>
    ${live.survey.durations && html`<${DurationCharts} samples=${samples} />`}
    <div class="grid-2">
      <${Section} title="Busiest tubes" flush=${true} actions=${html`<a href=${pathOf(server, "tubes")}>All tubes</a>`}>
        <${DataTable} label="Busiest tubes" columns=${busiestTableColumns} rows=${busiest} rowKey=${(row) => row.tube}
          empty=${html`<${Empty}>Tubes with puts, reserves or deletes appear here.<//>`} />
      <//>
      <div class="stack">
        <${Section} title="Waiting jobs and no consumer" flush=${true}
          actions=${stuck.length > SHOWN ? html`<a href=${pathOf(server, "tubes", null, { condition: "lacks" })}>All ${counted(stuck.length, "tube")}</a>` : null}>
          <${DataTable} label="Tubes with waiting jobs and no consumer" columns=${attentionTableColumns}
            rows=${unserved} rowKey=${(row) => row.tube}
            empty=${html`<${Empty}>Every tube with ready jobs has a consumer. Others appear here.<//>`} />
        <//>
        <${Section} title="Operations in progress" flush=${true}
          actions=${html`<a href=${pathOf(server, "operations")}>All operations</a>`}>
          ${running.length
            ? html`<ul class="operation-list">
              ${running.map((one) => html`<li key=${one.id}><${OperationProgress} operation=${one} /></li>`)}</ul>`
            : html`<${Empty}>Moves, redrives and replays that run in the background appear here.<//>`}
        <//>
      </div>
    </div>
  <//>`;
}
