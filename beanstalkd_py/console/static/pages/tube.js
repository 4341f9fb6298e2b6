import { html, useRef, useState } from "/static/preact.js";
import { useData } from "/static/api.js";
import { shortNumber, shortRate } from "/static/formatting.js";
import { useEndedOperations, useLive } from "/static/live.js";
import { encodePart, pathOf } from "/static/route.js";
import { may, useSession } from "/static/session.js";
import { useAction } from "/static/parts/action_dialog.js";
import { Chart } from "/static/parts/chart.js";
import { TubeNames } from "/static/parts/filters.js";
import { JobTable } from "/static/parts/job_table.js";
import { Empty, WhenLoaded } from "/static/parts/notices.js";
import { Facts, Figure, Figures, Page, Section } from "/static/parts/page.js";
import { exportJobs, importJobs, kickTube, moveJobs, pauseTube, putJob, resumeTube, truncateTube } from "/static/parts/tube_actions.js";
import { useToast } from "/static/parts/toast.js";
import { TubeBadges } from "/static/parts/tube_badges.js";
import { Count, Duration, Rate } from "/static/parts/values.js";

const KEPT = 300;
const SERIES = ["ready", "reserved", "delayed", "buried", "putsPerS", "reservesPerS", "deletesPerS"];

/* The numbers of the tube since the page was opened; ready jobs also from before. */
function useTubeSamples(live, tube) {
  const samples = useRef(null);
  if (samples.current === null) {
    samples.current = { at: [], ...Object.fromEntries(SERIES.map((key) => [key, []])) };
    const before = live?.tubes.get(tube)?.history.values() ?? [];
    const interval = live?.hello?.interval_s ?? 2;
    before.slice(0, -1).forEach((value, index) => {
      samples.current.at.push(live.survey.at - (before.length - 1 - index) * interval);
      SERIES.forEach((key) => samples.current[key].push(key === "ready" ? value : null));
    });
  }
  const at = live?.survey?.at;
  const row = live?.tubes.get(tube);
  const kept = samples.current;
  if (at && row && kept.at[kept.at.length - 1] !== at) {
    kept.at.push(at);
    SERIES.forEach((key) => kept[key].push(row[key]));
    if (kept.at.length > KEPT) ["at", ...SERIES].forEach((key) => kept[key].shift());
  }
  return kept;
}

function Actions({ server, tube, row, onDone }) {
  const session = useSession();
  const openAction = useAction();
  const toast = useToast();
  const [exporting, setExporting] = useState(false);
  const save = () => {
    setExporting(true);
    exportJobs(server, tube).catch((failure) => toast(failure.message, { danger: true })).finally(() => setExporting(false));
  };
  const button = (action, text, style = "") =>
    may(session, action.kind) && html`<button class=${"button " + style}
      onClick=${() => openAction({ ...action, done: onDone })}>${text}</button>`;
  return html`
    ${button(putJob(tube), "Put")}
    ${button(kickTube(tube, row?.buried ?? 0), "Kick")}
    ${row?.pausedS > 0 ? button(resumeTube(tube), "End pause") : button(pauseTube(tube), "Pause")}
    ${button(moveJobs(tube), "Move")}
    <button class="button" disabled=${exporting} onClick=${save}>${exporting ? "Exporting" : "Export"}</button>
    ${button(importJobs(tube), "Import")}
    ${button(truncateTube(tube), "Truncate", "danger-outline")}`;
}

export function TubePage({ server, name, features }) {
  const live = useLive();
  const row = live?.tubes.get(name);
  const samples = useTubeSamples(live, name);
  const details = useData("/s/" + server + "/tubes/" + encodePart(name), { everyS: 10 });
  const [filters, setFilters] = useState({});
  useEndedOperations(details.reload);
  const missing = live?.survey && !row && details.error?.status === 404;
  const trail = { href: pathOf(server, "tubes"), text: "Tubes" };
  const title = html`<span class="tube-name">${name}</span>`;
  if (missing) {
    return html`<${Page} title=${title} label=${name} trail=${trail}>
      <${Empty} title="No such tube.">The tube appears here when a client uses it or puts a job into it.<//><//>`;
  }
  const numbers = row ?? {};
  return html`<${Page} title=${title} label=${name} trail=${trail} badges=${row && html`<${TubeBadges} tube=${row} />`}
    actions=${html`<${Actions} server=${server} tube=${name} row=${row} onDone=${details.reload} />`}>
    <${TubeNames} id="tube-names" />
    <${Figures}>
      <${Figure} label="Ready"><${Count} value=${numbers.ready} zero=${false} /><//>
      <${Figure} label="Reserved"><${Count} value=${numbers.reserved} zero=${false} /><//>
      <${Figure} label="Delayed"><${Count} value=${numbers.delayed} zero=${false} /><//>
      <${Figure} label="Buried" tone=${numbers.buried ? "warning" : null}><${Count} value=${numbers.buried} zero=${false} /><//>
      <${Figure} label="Oldest ready"><${Duration} value=${numbers.oldestReadyS} /><//>
      <${Figure} label="Puts/s"><${Rate} value=${numbers.putsPerS} /><//>
      <${Figure} label="Reserves/s"><${Rate} value=${numbers.reservesPerS} /><//>
      <${Figure} label="Deletes/s"><${Rate} value=${numbers.deletesPerS} /><//>
      <${Figure} label="Producers"><${Count} value=${numbers.using} zero=${false} /><//>
      <${Figure} label="Consumers"><${Count} value=${numbers.watching} zero=${false} /><//>
      <${Figure} label="Consumers waiting"><${Count} value=${numbers.waiting} zero=${false} /><//>
      <${Figure} label="Jobs ever put"><${Count} value=${numbers.total} zero=${false} /><//>
    <//>
    <div class="grid-2">
      <${Section} title="Rates per second" note="Since this page was opened">
        <${Chart} label="Puts, reserves and deletes per second" height=${180} at=${samples.at} format=${shortRate} series=${[
          { label: "Puts", values: samples.putsPerS, color: "--series-1" },
          { label: "Reserves", values: samples.reservesPerS, color: "--series-2" },
          { label: "Deletes", values: samples.deletesPerS, color: "--series-3", dash: [5, 3] },
        ]} />
      <//>
      <${Section} title="Jobs by state">
        <${Chart} label="Jobs by state" height=${180} at=${samples.at} format=${shortNumber} series=${[
          { label: "Ready", values: samples.ready, color: "--series-1" },
          { label: "Reserved", values: samples.reserved, color: "--series-2" },
          { label: "Delayed", values: samples.delayed, color: "--series-3", dash: [5, 3] },
          { label: "Buried", values: samples.buried, color: "--series-4" },
        ]} />
      <//>
    </div>
    <div class="grid-2">
      <${Section} title="Policy" actions=${features?.policies && html`<a href=${pathOf(server, "policies")}>All policies</a>`}>
        <${WhenLoaded} source=${details}>
          ${(data) => data.policy ? html`<${Facts} values=${data.policy} />` : html`<p class="faint">No policy applies to this tube.</p>`}<//>
      <//>
      <${Section} title="Statistics">
        <${WhenLoaded} source=${details}>${(data) => html`<${Facts} values=${data.stats} skip=${["name"]} />`}<//>
      <//>
    </div>
    <${Section} title="Jobs" flush=${true}
      actions=${html`<a href=${pathOf(server, "jobs", null, { tube: name })}>Open the job list</a>`}>
      <${JobTable} server=${server} tube=${name} filters=${filters} onFilters=${setFilters} />
    <//>
  <//>`;
}
