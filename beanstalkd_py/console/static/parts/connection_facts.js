/* A connection: address, tubes, jobs, and whether it waits. */
import { html } from "/static/preact.js";
import { longNumber, shortDuration } from "/static/formatting.js";
import { Facts } from "/static/parts/page.js";
import { JobLink, TubeLink } from "/static/parts/values.js";

const SHOWN = 8;
const KNOWN = ["id", "address", "used", "watched", "waiting", "reserved"];
const PARTS = ["watching", "waits_s", "holds"];

/* How many there are beyond those shown. The title names those that the server has listed. */
function Rest({ listed, count }) {
  const more = count - Math.min(listed.length, SHOWN);
  if (more <= 0) return null;
  const title = [...listed.slice(SHOWN), ...(count > listed.length ? ["…"] : [])].join(" ");
  return html`<span class="faint" title=${listed.length > SHOWN ? title : null}>and ${longNumber(more)} more</span>`;
}

/* The server lists only the first tubes and jobs of a connection; `count` is the number of all. */
export const TubeLinks = ({ server, tubes, count }) =>
  html`<span class="links">
    ${tubes.slice(0, SHOWN).map((tube) => html`<${TubeLink} key=${tube} server=${server}
      tube=${tube} /> `)}<${Rest} listed=${tubes} count=${count} /></span>`;

export const JobLinks = ({ server, ids, count }) =>
  count
    ? html`<span class="links">
      ${ids.slice(0, SHOWN).map((id) => html`<${JobLink} key=${id} server=${server}
        id=${id} /> `)}<${Rest} listed=${ids} count=${count} /></span>`
    : html`<span class="faint">none</span>`;

/* `seconds` is how long the wait lasts at most; null without a limit. */
export function Waiting({ waits, seconds }) {
  if (!waits) return html`<span class="faint">no</span>`;
  if (seconds == null) return html`<span class="badge badge-accent" title="Until there is a job">no limit</span>`;
  return html`<span class="badge badge-accent" title="Until there is a job, or this time has passed">
    ${shortDuration(Math.round(seconds))}</span>`;
}

export function ConnectionFacts({ server, connection }) {
  const others = Object.fromEntries(Object.entries(connection).filter(([key]) => ![...KNOWN, ...PARTS].includes(key)));
  const known = Object.fromEntries(KNOWN.filter((key) => key in connection).map((key) => [key, connection[key]]));
  return html`<${Facts} values=${{ ...known, ...others }}
    labels=${{ used: "Puts into", watched: "Watches", reserved: "Holds jobs", waiting: "Waits" }} show=${{
    used: (tube) => html`<${TubeLink} server=${server} tube=${tube} />`,
    watched: (tubes) => html`<${TubeLinks} server=${server} tubes=${tubes} count=${connection.watching} />`,
    reserved: (ids) => html`<${JobLinks} server=${server} ids=${ids} count=${connection.holds} />`,
    waiting: (waits) => html`<${Waiting} waits=${waits} seconds=${connection.waits_s} />`,
  }} />`;
}
