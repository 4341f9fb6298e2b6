/* A line chart over time, drawn by uPlot. A series is {label, values, color}; `color` is a CSS variable.
   `least` is the least upper end of the axis. */
import { html, useEffect, useReducer, useRef, useState } from "/static/preact.js";
import { clock } from "/static/formatting.js";
import { watchTheme } from "/static/theme.js";
import uPlot from "/static/vendor/uplot/uPlot.esm.js";

const SHORTEST_S = 60;
const POINTS_UNTIL = 4;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const lastOf = (values) => values[values.length - 1];

function optionsOf({ series, format, least }, width, height, onCursor) {
  const font = "11px " + css("--font");
  const axis = { stroke: css("--text-2"), font, grid: { stroke: css("--line"), width: 1 }, ticks: { show: false } };
  return {
    width, height,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { range: (_, first, last) => [Math.min(first, last - SHORTEST_S), last] }, y: { range: (_, low, high) => [0, Math.max(high * 1.08, least)] } },
    axes: [
      { ...axis, size: 26, gap: 6, space: 90, values: (_, ticks) => ticks.map((tick) => clock(tick)) },
      { ...axis, size: 46, gap: 6, space: 34, values: (_, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [
      {},
      ...series.map((one) => ({
        label: one.label, stroke: css(one.color), width: 1.75, dash: one.dash, spanGaps: true, points: { show: (plot) => plot.data[0].length < POINTS_UNTIL, size: 5 },
      })),
    ],
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx)] },
  };
}

function Plot({ label, at, series, format, height, least }) {
  const container = useRef(null);
  const plot = useRef(null);
  const [cursor, setCursor] = useState(null);
  const [theme, nextTheme] = useReducer((value) => value + 1, 0);
  useEffect(() => watchTheme(nextTheme), []);
  useEffect(() => {
    const element = container.current;
    const options = optionsOf({ series, format, least }, element.clientWidth || 300, height, setCursor);
    plot.current = new uPlot(options, [at, ...series.map((one) => one.values)], element);
    const observer = new ResizeObserver(() => plot.current.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current.destroy();
    };
  }, [theme, height, series.map((one) => one.label).join()]);
  useEffect(() => plot.current.setData([at, ...series.map((one) => one.values)]), [at, at.length, lastOf(at), theme]);
  const shownAt = cursor != null && at[cursor] !== undefined ? cursor : at.length - 1;
  const summary = series.map((one) => one.label + " " + format(lastOf(one.values) ?? null)).join(", ");
  return html`<figure class="chart">
    <figcaption class="legend">
      ${series.map((one) => html`<span key=${one.label} class="legend-item"><span class="legend-line"
        style=${{ background: "var(" + one.color + ")" }}></span>${one.label} <b>
        ${format(one.values[shownAt] ?? null)}</b></span>`)}
      ${cursor != null && at[cursor] !== undefined && html`<span class="legend-time">${clock(at[cursor])}</span>`}
    </figcaption>
    <div ref=${container} role="img" aria-label=${label + ". Last values: " + summary}></div>
  </figure>`;
}

export function Chart({ height = 200, least = 1, ...others }) {
  if (others.at.length < 2) return html`<p class="chart-empty"
    style=${{ height: height + 24 + "px" }}>The line begins with the next values.</p>`;
  return html`<${Plot} height=${height} least=${least} ...${others} />`;
}
