/* A table with sorting, arrow keys and selection. Long tables render only the visible rows.
   A column is {key, label, cell(row), number(row), sortBy(row), numeric, width, hide, title}; `cell` or `number` (as
   of countOf in values.js) is what its cells show, and `hide` is the widest screen that does without the column:
   "narrow", "medium" or "large".
   With `cards`, rows become cards on a phone and show all columns. */
import { html, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "/static/preact.js";

const VIRTUAL_FROM = 150;
const OVERSCAN = 12;
const STEP = 6;
const ROW_HEIGHT = 34;

const NARROW = matchMedia("(max-width: 719px)");
const MEDIUM = matchMedia("(max-width: 1079px)");
const LARGE = matchMedia("(max-width: 1439px)");
const screenWidth = () => (NARROW.matches ? "narrow" : MEDIUM.matches ? "medium" : LARGE.matches ? "large" : "wide");

function useScreenWidth() {
  const [width, setWidth] = useState(screenWidth);
  useEffect(() => {
    const update = () => setWidth(screenWidth());
    [NARROW, MEDIUM, LARGE].forEach((media) => media.addEventListener("change", update));
    return () => [NARROW, MEDIUM, LARGE].forEach((media) => media.removeEventListener("change", update));
  }, []);
  return width;
}

const HIDDEN_ON = { wide: [], large: ["large"], medium: ["large", "medium"], narrow: ["large", "medium", "narrow"] };

const compare = (a, b) => {
  if (a === b) return 0;
  if (a == null) return -1;
  if (b == null) return 1;
  return a < b ? -1 : 1;
};

export function sortRows(rows, columns, sort) {
  const column = columns.find((one) => one.key === sort?.key);
  if (!column) return rows;
  const value = column.sortBy ?? ((row) => row[column.key]);
  const sign = sort.down ? -1 : 1;
  return [...rows].sort((a, b) => sign * compare(value(a), value(b)));
}

/* The order of a table: starts with `initial`, a second click reverses it. */
export function useSort(initial) {
  const [sort, setSort] = useState(initial);
  const onSort = useCallback(
    (column) =>
      setSort((old) => (old?.key === column.key ? { ...old, down: !old.down } : { key: column.key, down: Boolean(column.numeric) })),
    [],
  );
  return [sort, onSort];
}

const isSortable = (column) => column.sortable !== false && Boolean(column.label) && !column.plain;

function HeaderCell({ column, sort, onSort }) {
  const sorted = sort?.key === column.key;
  const order = sorted ? (sort.down ? "descending" : "ascending") : null;
  const classes = column.numeric ? "numeric" : null;
  if (column.header) return html`<th scope="col" class=${classes}>${column.header}</th>`;
  if (!onSort || !isSortable(column)) return html`<th scope="col" class=${classes} title=${column.title}>${column.label}</th>`;
  return html`<th scope="col" class=${classes} aria-sort=${order}>
    <button class="sort" title=${column.title} onClick=${() => onSort(column)}>
      ${column.label}<span class="sort-mark" aria-hidden="true">${sorted ? (sort.down ? "↓" : "↑") : ""}</span>
    </button>
  </th>`;
}

function moveFocus(container, event, count, scrollToRow, wanted) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input:not([type=checkbox]), select, textarea, pre")) return;
  const pageRows = Math.max(1, Math.floor(container.clientHeight / ROW_HEIGHT) - 2);
  const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: pageRows, PageUp: -pageRows, Home: -count, End: count };
  const move = moves[event.key];
  if (!move) return;
  const row = event.target.closest("tr[data-row]");
  // A key can repeat before the row of the last one is rendered.
  const from = wanted.current ?? (row ? Number(row.dataset.row) : move > 0 ? -1 : 0);
  const to = Math.max(0, Math.min(count - 1, from + move));
  event.preventDefault();
  scrollToRow(to);
  wanted.current = to;
  requestAnimationFrame(() => {
    if (wanted.current !== to) return;
    wanted.current = null;
    const target = container.querySelector('tr[data-row="' + to + '"]');
    target?.querySelector("a, button, input")?.focus({ preventScroll: true });
  });
}

/* The columns of a virtual table, whose rows are grids: the layout of a new row then does not touch the others. */
function gridOf(columns, screen, minWidth) {
  const widths = columns.map((one) => (screen === "narrow" && one.narrowWidth) || one.width || 0);
  const fluid = widths.includes(0);
  const tracks = widths.map((width) => (!width ? "minmax(0, 1fr)" : fluid ? width + "px" : "minmax(" + width + "px, " + width + "fr)"));
  const least = Math.max(minWidth ?? 0, widths.reduce((sum, width) => sum + width, 0));
  return { minWidth: "max(100%, " + least + "px)", "--columns": tracks.join(" ") };
}

export function DataTable({ label, columns, rows, rowKey, sort = null, onSort = null, renderRow = null, empty = null, rowClass = null, fill = false, cards = false, minWidth = null }) {
  const screen = useScreenWidth();
  const shown = useMemo(() => (cards && screen === "narrow" ? columns : columns.filter((one) => !HIDDEN_ON[screen].includes(one.hide))), [columns, screen, cards]);
  const container = useRef(null);
  const virtual = fill || rows.length > VIRTUAL_FROM;
  const wanted = useRef(null);
  const rendered = useRef({ rows: null, shown: null, nodes: new Map() });
  const [range, setRange] = useState({ first: 0, height: 600 });

  const measure = useCallback(() => {
    const element = container.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / ROW_HEIGHT / STEP) * STEP - OVERSCAN);
    const height = element.clientHeight;
    setRange((old) => (old.first === first && old.height === height ? old : { first, height }));
  }, []);
  useLayoutEffect(() => {
    if (!virtual || !container.current) return undefined;
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(container.current);
    return () => observer.disconnect();
  }, [virtual, rows.length > 0]);

  const scrollToRow = (at) => {
    const element = container.current;
    if (!virtual) {
      element.querySelector('tr[data-row="' + at + '"]')?.scrollIntoView({ block: "nearest" });
      return;
    }
    const head = element.querySelector("thead").offsetHeight;
    const top = at * ROW_HEIGHT;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + ROW_HEIGHT + head > element.scrollTop + element.clientHeight) element.scrollTop = top + ROW_HEIGHT + head - element.clientHeight;
    measure();
  };

  if (!rows.length && empty) return empty;
  const first = virtual ? Math.min(range.first, Math.max(0, rows.length - 1)) : 0;
  const last = virtual ? Math.min(rows.length, first + Math.ceil(range.height / ROW_HEIGHT) + 2 * OVERSCAN + STEP) : rows.length;
  const cells = (row) =>
    shown.map((column, at) => {
      const number = column.number?.(row);
      const content = number ? number.text : column.cell ? column.cell(row) : row[column.key];
      const classes = (column.numeric ? "numeric " : "") + (number?.faint ? "faint " : "") + (column.className ?? "");
      return at === 0 && column.rowHeader !== false
        ? html`<th scope="row" class=${classes}>${content}</th>`
        : html`<td class=${classes} title=${number?.title} data-label=${cards ? column.label : null}>${content}</td>`;
    });
  // preact skips a row whose node is the same as before, so scrolling renders only the new rows.
  if (rendered.current.rows !== rows || rendered.current.shown !== shown) rendered.current = { rows, shown, nodes: new Map() };
  const { nodes } = rendered.current;
  const nodeOf = (at) => {
    const row = rows[at];
    return (
      renderRow?.(row, at, shown.length) ??
      html`<tr key=${rowKey(row)} data-row=${at} aria-rowindex=${virtual ? at + 2 : null} class=${rowClass?.(row)}>
        ${cells(row)}</tr>`
    );
  };
  const visible = [];
  for (let at = first; at < last; at += 1) {
    let node = virtual ? nodes.get(at) : undefined;
    if (!node) {
      node = nodeOf(at);
      nodes.set(at, node);
    }
    visible.push(node);
  }
  const style = virtual ? gridOf(shown, screen, minWidth) : { minWidth: minWidth ? minWidth + "px" : "100%" };
  const gap = (height, key) => height > 0 && html`<tr key=${key} class="gap" aria-hidden="true">
    <td colspan=${shown.length} style=${{ height: height + "px" }}></td></tr>`;
  return html`<div
    class=${"table-scroll" + (virtual ? " table-virtual" : "") + (fill ? " table-fill" : "") + (cards ? " table-cards" : "")}
    ref=${container} role="region" aria-label=${label} tabindex="0"
    onScroll=${virtual ? measure : null}
    onKeyDown=${(event) => moveFocus(container.current, event, rows.length, scrollToRow, wanted)}
  >
    <table aria-rowcount=${virtual ? rows.length + 1 : null} style=${style}>
      <caption class="hidden">${label}</caption>
      <thead><tr aria-rowindex=${virtual ? 1 : null}>
        ${shown.map((column) => html`<${HeaderCell} key=${column.key} column=${column} sort=${sort}
          onSort=${onSort} />`)}</tr></thead>
      <tbody>
        ${gap(first * ROW_HEIGHT, "gap-before")}
        ${visible}
        ${gap((rows.length - last) * ROW_HEIGHT, "gap-after")}
      </tbody>
    </table>
  </div>`;
}
