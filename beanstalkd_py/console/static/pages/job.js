import { html } from "/static/preact.js";
import { useData } from "/static/api.js";
import { useEndedOperations } from "/static/live.js";
import { pathOf } from "/static/route.js";
import { may, useSession } from "/static/session.js";
import { useAction } from "/static/parts/action_dialog.js";
import { ConnectionFacts } from "/static/parts/connection_facts.js";
import { TubeNames } from "/static/parts/filters.js";
import { JobBody } from "/static/parts/job_body.js";
import { Empty, Failure, Loading } from "/static/parts/notices.js";
import { Facts, Page, Section } from "/static/parts/page.js";
import { Timeline } from "/static/parts/timeline.js";
import { putAgain } from "/static/parts/tube_actions.js";
import { Badge, Count, DateTime, Duration, State, TubeLink } from "/static/parts/values.js";

const DURATIONS = ["age", "delay", "ttr", "time-left"];

function actionsOf(id, stats) {
  const base = { arguments: { ids: [Number(id)] } };
  const { state } = stats;
  const found = [];
  if (state === "reserved") return found; // only its holder can change it
  if (state === "buried" || state === "delayed") found.push({ ...base, kind: "kick", button: "Kick", title: "Kick job " + id, note: "The job becomes ready." });
  if (state !== "buried") found.push({ ...base, kind: "bury", button: "Bury", title: "Bury job " + id, note: "No consumer gets the job until it is kicked." });
  found.push({ ...base, kind: "delete", button: "Delete", title: "Delete job " + id, danger: true, note: "The job is deleted. This cannot be undone." });
  return found;
}

function Actions({ id, data, onDone }) {
  const session = useSession();
  const openAction = useAction();
  const ended = data.history?.key ? [putAgain(data.history)] : [];
  return (data.live ? actionsOf(id, data.stats) : ended)
    .filter((one) => may(session, one.kind))
    .map((one) => html`<button key=${one.kind} class=${"button " + (one.danger ? "danger-outline" : "")}
      onClick=${() => openAction({ ...one, done: onDone })}>${one.button}</button>`);
}

function Statistics({ server, stats }) {
  const show = {
    tube: (tube) => html`<${TubeLink} server=${server} tube=${tube} />`,
    state: (state) => html`<${State} state=${state} />`,
    pri: (value) => html`<${Count} value=${Number(value)} zero=${false} />`,
    ...Object.fromEntries(DURATIONS.map((key) => [key, (value) => html`<${Duration} value=${value == null ? null : Number(value)} />`])),
  };
  return html`<${Facts} values=${stats} show=${show} skip=${["id"]} />`;
}

export function JobPage({ server, name }) {
  const source = useData("/s/" + server + "/jobs/" + encodeURIComponent(name), { everyS: 5 });
  useEndedOperations(source.reload);
  const { data } = source;
  const stats = data?.stats ?? {};
  const tube = stats.tube ?? data?.history?.tube;
  const trail = tube ? { href: pathOf(server, "jobs", null, { tube }), text: "Jobs of " + tube } : { href: pathOf(server, "jobs"), text: "Jobs" };
  const title = "Job " + name;
  const isMissing = source.error?.status === 404;
  if (!data || isMissing) {
    let content = html`<${Loading} />`;
    if (isMissing) content = html`<${Empty} title="No such job.">The job does not exist, or it has ended and the server keeps no history.<//>`;
    else if (source.error) content = html`<${Failure} error=${source.error} retry=${source.reload} />`;
    return html`<${Page} title=${title} trail=${trail}>${content}<//>`;
  }
  const badges = data.live ? html`<${State} state=${stats.state} />` : html`<${Badge}>ended: ${data.history?.event ?? "unknown"}<//>`;
  return html`<${Page} title=${title} trail=${trail} badges=${badges}
    actions=${html`<${Actions} id=${name} data=${data} onDone=${source.reload} />`}>
    <${TubeNames} id="tube-names" />
    ${source.error && html`<${Failure} error=${source.error} retry=${source.reload} />`}
    <div class="grid-job">
      <div class="stack">
        <${Section} title="Body"><${JobBody} body=${data.body ?? data.history?.body ?? null} /><//>
        <${Section} title="Timeline">
          ${data.timeline?.length ? html`<${Timeline} events=${data.timeline} />` : html`<${Empty}>The events of a job appear here if the server has a binlog or a history.<//>`}
        <//>
      </div>
      <div class="stack">
        ${data.live && html`<${Section} title="Statistics"><${Statistics} server=${server} stats=${stats} /><//>`}
        ${data.live && html`<${Section} title="Holder">
          ${data.holder ? html`<${ConnectionFacts} server=${server} connection=${data.holder} />`
            : html`<p class="faint">
              ${stats.state === "reserved" ? "The server does not show which connection holds the job." : "No connection holds the job."}</p>`}
        <//>`}
        ${data.history && html`<${Section} title="History">
          <${Facts} values=${{ stored: data.history.stored, key: data.history.key, offset: data.history.offset, ...data.history.properties }}
            show=${{ stored: (value) => html`<${DateTime} epoch=${value} />` }} skip=${["timeline", "TIMELINE"]} />
        <//>`}
      </div>
    </div>
  <//>`;
}
