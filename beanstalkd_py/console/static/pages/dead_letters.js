import { html, useMemo } from "/static/preact.js";
import { useData, withQuery } from "/static/api.js";
import { counted, longNumber } from "/static/formatting.js";
import { useEndedOperations } from "/static/live.js";
import { pathOf } from "/static/route.js";
import { may, useSession } from "/static/session.js";
import { useAction } from "/static/parts/action_dialog.js";
import { JobBody } from "/static/parts/job_body.js";
import { Empty, WhenLoaded } from "/static/parts/notices.js";
import { Page, Section } from "/static/parts/page.js";
import { DataTable } from "/static/parts/table.js";
import { rateField } from "/static/parts/tube_actions.js";
import { Count, Duration, JobLink, countOf } from "/static/parts/values.js";

function Group({ group, server, tube, onDone }) {
  const session = useSession();
  const openAction = useAction();
  const redrive = () => openAction({
    kind: "redrive", button: "Redrive", title: "Redrive all jobs of this shape", arguments: { tube, shape: group.shape }, fields: [rateField], done: onDone,
    note: "The jobs are kicked and become ready again, at most as many per second as given.",
  });
  const remove = () => openAction({
    kind: "delete", button: "Delete", danger: true, title: "Delete all jobs of this shape", tube, arguments: { tube, shape: group.shape }, done: onDone,
    note: "The jobs are deleted. This cannot be undone.",
  });
  return html`<section class="card dead-group" aria-label=${"Jobs of the shape " + group.shape}>
    <header class="card-header">
      <h2 class="shape" title=${group.shape}>${group.shape}</h2>
      <div class="card-actions">
        ${may(session, "redrive") && html`<button class="button small" onClick=${redrive}>Redrive</button>`}
        ${may(session, "delete") && html`<button class="button small danger-outline" onClick=${remove}>Delete</button>`}
      </div>
    </header>
    <div class="card-body">
      <p class="dead-facts"><span><b><${Count} value=${group.count} /></b> ${group.count === 1 ? "job" : "jobs"}</span>
        <span>oldest <b><${Duration} value=${group.oldest_s} /></b></span>
        <span class="links">${group.ids.slice(0, 6).map((id) => html`<${JobLink} key=${id} server=${server}
          id=${id} /> `)}${group.count > 6 && html`<span class="faint">and ${longNumber(group.count - 6)} more</span>`}</span></p>
      <details><summary>Example of a body</summary><${JobBody} body=${group.example} /></details>
    </div>
  </section>`;
}

const columnsOf = (server) => [
  { key: "tube", label: "Tube", cell: (row) => html`<a class="tube-name"
    href=${pathOf(server, "dead-letters", null, { tube: row.tube })}>${row.tube}</a>` },
  { key: "buried", label: "Buried jobs", numeric: true, number: (row) => countOf(row.buried) },
];

export function DeadLettersPage({ server, query }) {
  const session = useSession();
  const openAction = useAction();
  const { tube } = query;
  const source = useData(withQuery("/s/" + server + "/dead-letters", { tube }), { everyS: 30 });
  useEndedOperations(source.reload);
  const columns = useMemo(() => columnsOf(server), [server]);
  const redriveAll = () => openAction({
    kind: "redrive", button: "Redrive", title: "Redrive all buried jobs of " + tube, arguments: { tube, ids: null }, fields: [rateField], done: source.reload,
    note: "The jobs are kicked and become ready again, at most as many per second as given.",
  });
  if (!tube) {
    return html`<${Page} title="Dead letters"><${WhenLoaded} source=${source}>${(data) => html`
      <${Section} title="Tubes with buried jobs" flush=${true} note="Choose a tube to see its jobs by the shape of their bodies.">
        <${DataTable} label="Tubes with buried jobs" columns=${columns} rows=${data.tubes} rowKey=${(row) => row.tube}
          empty=${html`<${Empty} title="No buried jobs.">A job appears here when a consumer or a policy buries it.<//>`} />
      <//>`}<//><//>`;
  }
  return html`<${Page} title=${html`Dead letters of <span class="tube-name">${tube}</span>`} label=${"Dead letters of " + tube}
    trail=${{ href: pathOf(server, "dead-letters"), text: "Dead letters" }}
    actions=${html`<a class="button" href=${pathOf(server, "jobs", null, { tube, state: "buried" })}>List the jobs</a>
      ${may(session, "redrive") && html`<button class="button primary" onClick=${redriveAll}>Redrive all</button>`}`}>
    <${WhenLoaded} source=${source}>${(data) => html`
      ${data.groups.length > 0 && html`<p class="hint">
        ${counted(data.groups.length, "shape")} of bodies in ${counted(data.scanned, "buried job")}${data.scanned < data.total ? " of " + longNumber(data.total) + ", the rest is not read" : ""}. Numbers and ids within a body do not count for its shape.</p>`}
      ${data.groups.map((group) => html`<${Group} key=${group.shape} group=${group} server=${server} tube=${tube}
        onDone=${source.reload} />`)}
      ${data.groups.length === 0 && html`<${Empty} title="No buried jobs.">A job appears here when a consumer or a policy buries it in this tube.<//>`}`}<//>
  <//>`;
}
