/* The conditions of a tube that need attention. */
import { html } from "/static/preact.js";
import { counted, shortDuration, shortNumber } from "/static/formatting.js";
import { Badge } from "/static/parts/values.js";

export const lacksConsumer = (tube) => tube.ready > 0 && tube.watching === 0;

export function TubeBadges({ tube }) {
  const badges = [];
  if (lacksConsumer(tube)) {
    badges.push(html`<${Badge} kind="danger" title="Jobs are ready, and no connection watches this tube.">no consumer<//>`);
  }
  if (tube.pausedS > 0) {
    badges.push(html`<${Badge} kind="warning"
      title=${"No job can be reserved for " + shortDuration(tube.pausedS) + "."}>paused<//>`);
  }
  if (tube.buried > 0) {
    badges.push(html`<${Badge} kind="neutral"
      title=${counted(tube.buried, "buried job")}>buried ${shortNumber(tube.buried)}<//>`);
  }
  return badges.length ? html`<span class="badges">${badges}</span>` : null;
}
