/* The events of a job with their times and the time between them. */
import { html } from "/static/preact.js";
import { longTime, shortDuration, clock, dateTime } from "/static/formatting.js";

const fraction = (epoch) => (epoch % 1).toFixed(3).slice(1);

function Time({ at, before }) {
  if (at == null) return html`<span class="event-time faint">–</span><span class="event-gap"></span>`;
  const day = before == null || dateTime(before).slice(0, 10) !== dateTime(at).slice(0, 10);
  return html`
    <time class="event-time" title=${longTime(at)} datetime=${new Date(at * 1000).toISOString()}>
      ${day ? dateTime(at) : clock(at)}<span class="faint">${fraction(at)}</span></time>
    <span class="event-gap">${before == null ? "" : "+" + shortDuration(at - before)}</span>`;
}

export function Timeline({ events }) {
  let before = null;
  return html`<ol class="timeline">
    ${events.map((one, number) => {
      const earlier = before;
      before = one.at ?? before;
      return html`<li key=${number} class=${"event event-" + one.event}>
        <span class="event-name">${one.event}</span>
        <span class="event-text">${one.text}</span>
        <${Time} at=${one.at} before=${earlier} />
      </li>`;
    })}
  </ol>`;
}
