import { html } from "/static/preact.js";
import { useData } from "/static/api.js";
import { may, useSession } from "/static/session.js";
import { useAction } from "/static/parts/action_dialog.js";
import { Empty, WhenLoaded } from "/static/parts/notices.js";
import { Page } from "/static/parts/page.js";
import { DataTable } from "/static/parts/table.js";
import { labelOf, valueOf } from "/static/parts/units.js";
import { Badge } from "/static/parts/values.js";

const SETTINGS = [
  { name: "max-jobs", label: "Max. jobs", hint: "A put into a fuller tube is rejected." },
  { name: "max-bytes", label: "Max. bytes", hint: "Of all bodies, for example 512M." },
  { name: "default-ttr", label: "Default TTR", hint: "Of jobs with TTR 0, for example 5m." },
  { name: "max-delay", label: "Max. delay", hint: "For example 7d." },
  { name: "max-reserves", label: "Max. reserves", hint: "After these the job is failed." },
  { name: "then", label: "Failed jobs", hint: "bury, delete or move:TUBE." },
  { name: "release-backoff", label: "Release backoff", hint: "For example exponential:1s..1h." },
  { name: "max-reserved", label: "Max. reserved", hint: "Jobs at the same time." },
  { name: "unique", label: "Unique", hint: "body: no second job with the same body." },
  { name: "expires", label: "Expires", hint: "For example 1d." },
  { name: "rate", label: "Rate of reserves", hint: "For example 100/s." },
];

const settingsOf = (policy) => Object.entries(policy).filter(([key, value]) => key !== "tube" && key !== "from" && value != null && value !== "");
const textOf = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

export function PoliciesPage({ server }) {
  const session = useSession();
  const openAction = useAction();
  const source = useData("/s/" + server + "/policies", { everyS: 30 });
  const edit = (policy) => openAction({
    kind: "policy-set", button: "Set policy", title: policy ? "Change the policy of " + policy.tube : "Set a policy", done: source.reload,
    note: "The whole policy of the pattern is replaced. It applies at once and precedes those of the file.",
    fields: [
      { name: "tube", label: "Pattern of tube names", value: policy?.tube ?? "", hint: "A name with *, ? or [a-z], for example mails.*" },
      ...SETTINGS.map((one) => ({ ...one, optional: true, half: true, value: policy?.[one.name] == null ? "" : textOf(policy[one.name]) })),
    ],
    build: (values) => ({ policy: Object.fromEntries(Object.entries(values).filter(([, value]) => value !== "")) }),
  });
  const unset = (policy) => openAction({
    kind: "policy-unset", button: "Remove", danger: true, title: "Remove the policy of " + policy.tube, arguments: { pattern: policy.tube }, done: source.reload,
  });
  const columns = [
    { key: "tube", label: "Pattern", cell: (row) => html`<span class="tube-name">${row.tube}</span>` },
    { key: "settings", label: "Settings", className: "cell-wrap", cell: (row) => settingsOf(row).length
      ? html`<span class="settings">
        ${settingsOf(row).map(([key, value]) => html`<span key=${key} class="setting" title=${key}><span class="faint">
          ${labelOf(key)}</span> ${valueOf(key, value)}</span>`)}</span>`
      : html`<span class="faint">none: exempt from other policies</span>` },
    { key: "from", label: "Set", cell: (row) => html`<${Badge} kind=${row.from === "online" ? "accent" : "neutral"}>
      ${row.from === "online" ? "online" : "in the file"}<//>` },
    ...(may(session, "policy-set") ? [{ key: "actions", label: "Actions", plain: true, cell: (row) => html`<span class="buttons">
      <button class="button small" onClick=${() => edit(row)} aria-label=${"Change the policy of " + row.tube}>Change</button>
      ${row.from === "online" && html`<button class="button small danger-outline" onClick=${() => unset(row)}
        aria-label=${"Remove the policy of " + row.tube}>Remove</button>`}</span>` }] : []),
  ];
  return html`<${Page} title="Policies"
    badges=${html`<span class="page-note">The first pattern that matches a tube applies.</span>`}
    actions=${may(session, "policy-set") && html`<button class="button primary"
    onClick=${() => edit(null)}>Set a policy</button>`}>
    <${WhenLoaded} source=${source}>${(data) => html`<div class="card card-flush">
      <${DataTable} cards=${true} label="Policies" columns=${columns} rows=${data.policies}
        rowKey=${(row) => row.from + " " + row.tube}
        empty=${html`<${Empty} title="No policies.">A policy limits tubes or gives them defaults. It appears here when it is set, or when the configuration file has a table [tube."PATTERN"].<//>`} /></div>`}<//>
  <//>`;
}
