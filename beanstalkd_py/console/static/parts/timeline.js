/* The events of a job with their times and the time between them. */
import { html } from "/static/preact.js";
import { longTime, shortDuration, clock, dateTime } from "/static/formatting.js";

const fraction = (epoch) => (epoch % 1).toFixed(3).slice(1);

export function Timeline({ events }) {
  return html`<ol class="timeline">
    ${events.map((one, at) => {
      const before = events[at - 1];
      const day = !before || dateTime(before.at).slice(0, 10) !== dateTime(one.at).slice(0, 10);
      return html`<li key=${at} class=${"event event-" + one.event}>
        <span class="event-name">${one.event}</span>
        <span class="event-text">${one.text}</span>
        <time class="event-time" title=${longTime(one.at)} datetime=${new Date(one.at * 1000).toISOString()}>
          ${day ? dateTime(one.at) : clock(one.at)}<span class="faint">${fraction(one.at)}</span></time>
        <span class="event-gap">${before ? "+" + shortDuration(one.at - before.at) : ""}</span>
      </li>`;
    })}
  </ol>`;
}
