/* A connection: address, tubes, jobs, and whether it waits. */
import { html } from "/static/preact.js";
import { shortDuration } from "/static/formatting.js";
import { Facts } from "/static/parts/page.js";
import { JobLink, TubeLink } from "/static/parts/values.js";

const SHOWN = 8;
const KNOWN = ["id", "address", "used", "watched", "waiting", "reserved"];

export const TubeLinks = ({ server, tubes }) =>
  html`<span class="links">
    ${tubes.slice(0, SHOWN).map((tube) => html`<${TubeLink} key=${tube} server=${server}
      tube=${tube} /> `)}${tubes.length > SHOWN && html`<span class="faint"
      title=${tubes.slice(SHOWN).join(" ")}>and ${tubes.length - SHOWN} more</span>`}</span>`;

export const JobLinks = ({ server, ids }) =>
  ids.length
    ? html`<span class="links">
      ${ids.slice(0, SHOWN).map((id) => html`<${JobLink} key=${id} server=${server}
        id=${id} /> `)}${ids.length > SHOWN && html`<span class="faint"
        title=${ids.slice(SHOWN).join(" ")}>and ${ids.length - SHOWN} more</span>`}</span>`
    : html`<span class="faint">none</span>`;

/* `waiting` is a time in seconds, true without a known time, or false. */
export function Waiting({ value }) {
  if (value === false || value == null) return html`<span class="faint">no</span>`;
  return html`<span class="badge badge-accent">${typeof value === "number" ? shortDuration(value) : "waiting"}</span>`;
}

export function ConnectionFacts({ server, connection }) {
  const others = Object.fromEntries(Object.entries(connection).filter(([key]) => !KNOWN.includes(key)));
  const known = Object.fromEntries(KNOWN.filter((key) => key in connection).map((key) => [key, connection[key]]));
  return html`<${Facts} values=${{ ...known, ...others }}
    labels=${{ used: "Puts into", watched: "Watches", reserved: "Holds jobs", waiting: "Waits" }} show=${{
    used: (tube) => html`<${TubeLink} server=${server} tube=${tube} />`,
    watched: (tubes) => html`<${TubeLinks} server=${server} tubes=${tubes} />`,
    reserved: (ids) => html`<${JobLinks} server=${server} ids=${ids} />`,
    waiting: (value) => html`<${Waiting} value=${value} />`,
  }} />`;
}
