/* A small line of recent values. */
import { html } from "/static/preact.js";
import { longNumber } from "/static/formatting.js";

const WIDTH = 84;
const HEIGHT = 20;

export function Sparkline({ values, label }) {
  if (values.length < 2) return html`<span class="faint" title="More values are needed for a line.">·</span>`;
  const top = Math.max(...values);
  const bottom = Math.min(...values);
  const span = top - bottom || 1;
  const step = WIDTH / (values.length - 1);
  const y = (value) => (top === bottom ? (top === 0 ? HEIGHT - 2 : HEIGHT / 2) : HEIGHT - 2 - ((value - bottom) / span) * (HEIGHT - 4));
  const points = values.map((value, at) => (at * step).toFixed(1) + "," + y(value).toFixed(1)).join(" ");
  const text = label + ": " + longNumber(bottom) + " to " + longNumber(top) + ", now " + longNumber(values[values.length - 1]);
  return html`<svg class=${"sparkline" + (top === 0 ? " sparkline-zero" : "")} width=${WIDTH} height=${HEIGHT}
    viewBox=${"0 0 " + WIDTH + " " + HEIGHT} role="img" aria-label=${text}>
    <title>${text}</title>
    <polyline points=${points} fill="none" />
  </svg>`;
}
