import { html } from "/static/preact.js";
import { useData } from "/static/api.js";
import { counted, keyLabel } from "/static/formatting.js";
import { Empty, Failure, Loading } from "/static/parts/notices.js";
import { Page } from "/static/parts/page.js";
import { Badge } from "/static/parts/values.js";

const LEVELS = {
  problem: ["problem", "danger"], advice: ["advice", "warning"], warning: ["advice", "warning"], unknown: ["unknown", "neutral"], ok: ["ok", "good"],
};
const ORDER = ["problem", "advice", "warning", "unknown", "ok"];

export function DoctorPage({ server }) {
  const source = useData("/s/" + server + "/doctor");
  const findings = [...(source.data?.findings ?? [])].sort((a, b) => ORDER.indexOf(a.level) - ORDER.indexOf(b.level));
  const count = (level) => findings.filter((one) => LEVELS[one.level]?.[0] === level).length;
  return html`<${Page} title="Doctor" wide=${false}
    actions=${html`<button class="button" disabled=${source.busy} onClick=${source.reload}>
    ${source.busy ? "Checking" : "Check again"}</button>`}
    badges=${source.data && html`<span class="page-note" role="status">
      ${counted(count("problem"), "problem")}, ${count("advice")} advice, ${count("ok")} ok</span>`}>
    ${source.error && html`<${Failure} error=${source.error} retry=${source.reload} />`}
    ${source.loading && html`<${Loading} text="The doctor checks disk, memory, limits and clock. This takes some seconds." />`}
    ${source.data && findings.length === 0 && html`<${Empty} title="No findings.">The results of the checks appear here.<//>`}
    ${findings.length > 0 && html`<ul class="findings card card-flush">
      ${findings.map((one, at) => {
        const [text, kind] = LEVELS[one.level] ?? [one.level, "neutral"];
        return html`<li key=${at} class=${"finding finding-" + text}><${Badge} kind=${kind}>${text}<//>
          <div><h2>${keyLabel(one.check)}</h2><p>${one.text}</p>
            ${one.remedy && html`<p class="remedy">${one.remedy}</p>`}</div></li>`;
      })}
    </ul>`}
  <//>`;
}
