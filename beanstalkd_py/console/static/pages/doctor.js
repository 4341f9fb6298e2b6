import { html, useEffect, useState } from "/static/preact.js";
import { post, useData } from "/static/api.js";
import { counted, keyLabel } from "/static/formatting.js";
import { Failure, Loading } from "/static/parts/notices.js";
import { Page } from "/static/parts/page.js";
import { Badge } from "/static/parts/values.js";

const LEVELS = {
  problem: ["problem", "danger"], advice: ["advice", "warning"], warning: ["advice", "warning"], unknown: ["unknown", "neutral"], ok: ["ok", "good"],
};
const POLL_S = 0.5;
const ORDER = ["problem", "advice", "warning", "unknown", "ok"];

export function DoctorPage({ server }) {
  const path = "/s/" + server + "/doctor";
  const [isRunning, setRunning] = useState(true);
  const source = useData(path, { everyS: isRunning ? POLL_S : null });
  useEffect(() => {
    if (source.error) setRunning(false);
    else if (source.data) setRunning(source.data.running);
  }, [source.data, source.error]);
  const examine = () => post(path).then(() => setRunning(true), source.reload);
  const findings = [...(source.data?.findings ?? [])].sort((a, b) => ORDER.indexOf(a.level) - ORDER.indexOf(b.level));
  const count = (level) => findings.filter((one) => LEVELS[one.level]?.[0] === level).length;
  return html`<${Page} title="Doctor" wide=${false}
    actions=${html`<button class="button" disabled=${isRunning} onClick=${examine}>
    ${isRunning ? "Checking" : "Check again"}</button>`}
    badges=${findings.length > 0 && html`<span class="page-note" role="status">
      ${counted(count("problem"), "problem")}, ${count("advice")} advice, ${count("ok")} ok</span>`}>
    ${source.error && html`<${Failure} error=${source.error} retry=${source.reload} />`}
    ${isRunning && findings.length === 0 && !source.error && html`<${Loading} text="The doctor checks disk, memory, limits and clock. This takes some seconds." />`}
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
