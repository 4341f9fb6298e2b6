/* All tubes: filter, sort, groups, badges, sparklines. */
import { html, useMemo, useState } from "/static/preact.js";
import { counted, longNumber } from "/static/formatting.js";
import { useLive } from "/static/live.js";
import { navigate, pathOf } from "/static/route.js";
import { FilterBar, FilterSelect, FilterText } from "/static/parts/filters.js";
import { Empty, Loading } from "/static/parts/notices.js";
import { Page } from "/static/parts/page.js";
import { Sparkline } from "/static/parts/sparkline.js";
import { DataTable, sortRows, useSort } from "/static/parts/table.js";
import { TubeBadges, lacksConsumer } from "/static/parts/tube_badges.js";
import { TubeLink, countOf, durationOf, rateOf } from "/static/parts/values.js";

const SUMMED = ["ready", "reserved", "delayed", "buried", "waiting", "watching", "putsPerS", "reservesPerS", "deletesPerS"];
const SEPARATORS = [["", "No groups"], [".", "Before “.”"], ["-", "Before “-”"], ["_", "Before “_”"], ["/", "Before “/”"], [":", "Before “:”"], [";", "Before “;”"]];
const CONDITIONS = [["", "All tubes"], ["lacks", "No consumer"], ["paused", "Paused"], ["buried", "Buried jobs"], ["busy", "With activity"], ["jobs", "With jobs"]];
const SEPARATOR_KEY = "tube-separator";

const CONDITION_TESTS = {
  lacks: lacksConsumer,
  paused: (tube) => tube.pausedS > 0,
  buried: (tube) => tube.buried > 0,
  busy: (tube) => tube.putsPerS > 0 || tube.reservesPerS > 0 || tube.deletesPerS > 0,
  jobs: (tube) => tube.ready + tube.reserved + tube.delayed + tube.buried > 0,
};

/* A glob if the text has * or ?; else a part of the name. Case does not matter. */
function nameTest(text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  if (!/[*?]/.test(wanted)) return (name) => name.toLowerCase().includes(wanted);
  const pattern = wanted.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*+/g, ".*").replace(/\?/g, ".");
  const expression = new RegExp("^" + pattern + "$", "i");
  return (name) => expression.test(name);
}

function groupOf(name, separator) {
  const at = name.indexOf(separator);
  return at > 0 ? name.slice(0, at + separator.length) : null;
}

/* Return groups with sums, and tubes without a group; `sort` applies to both and within a group. */
function groupRows(tubes, separator, columns, sort, opened) {
  const groups = new Map();
  const single = [];
  for (const tube of tubes) {
    const name = groupOf(tube.tube, separator);
    if (name === null) {
      single.push(tube);
      continue;
    }
    let group = groups.get(name);
    if (!group) {
      group = { tube: name + "*", group: name, members: [], oldestReadyS: null };
      SUMMED.forEach((key) => { group[key] = null; });
      groups.set(name, group);
    }
    group.members.push(tube);
    SUMMED.forEach((key) => {
      if (tube[key] != null) group[key] = (group[key] ?? 0) + tube[key];
    });
    if (tube.oldestReadyS != null) group.oldestReadyS = Math.max(group.oldestReadyS ?? 0, tube.oldestReadyS);
  }
  const top = [...single];
  for (const group of groups.values()) top.push(group.members.length > 1 ? group : group.members[0]);
  const rows = [];
  for (const row of sortRows(top, columns, sort)) {
    rows.push(row);
    if (row.group && opened.has(row.group)) rows.push(...sortRows(row.members, columns, sort));
  }
  return rows;
}

function columnsOf(server, opened, onToggle) {
  const count = (key, label, hide = null, title = null) => ({ key, label, numeric: true, width: 78, narrowWidth: 64, hide, title, number: (row) => countOf(row[key]) });
  const rate = (key, label, hide = "medium") => ({ key, label, numeric: true, width: 76, hide, number: (row) => rateOf(row[key]) });
  return [
    {
      key: "tube", label: "Tube", className: "cell-name",
      cell: (row) =>
        row.group
          ? html`<button class="group-toggle" aria-expanded=${opened.has(row.group)} onClick=${() => onToggle(row.group)}>
              <span class="caret" aria-hidden="true"></span><span class="tube-name">
                ${row.tube}</span> <span class="faint">${counted(row.members.length, "tube")}</span></button>`
          : html`<${TubeLink} server=${server} tube=${row.tube} /><${TubeBadges} tube=${row} />`,
    },
    {
      key: "line", label: "Lately", plain: true, width: 104, hide: "narrow", title: "Ready jobs since this page was opened",
      cell: (row) => (row.group ? null : html`<${Sparkline} values=${row.history.values()} label="Ready jobs" />`),
    },
    count("ready", "Ready"),
    count("reserved", "Reserved", "narrow"),
    count("delayed", "Delayed", "medium"),
    count("buried", "Buried"),
    { key: "oldestReadyS", label: "Oldest", title: "How long the next ready job has waited", numeric: true, width: 84, hide: "narrow", number: (row) => durationOf(row.oldestReadyS) },
    count("waiting", "Waiting", "large", "Consumers that wait for a job"),
    rate("putsPerS", "Puts/s"),
    rate("reservesPerS", "Res./s"),
    rate("deletesPerS", "Del./s", "large"),
  ];
}

const storedSeparator = () => {
  try {
    return localStorage.getItem(SEPARATOR_KEY) ?? "";
  } catch {
    return "";
  }
};

export function TubesPage({ server, query }) {
  const live = useLive();
  const [text, setText] = useState(query.filter ?? "");
  const [condition, setCondition] = useState(query.condition ?? "");
  const [separator, setSeparator] = useState(storedSeparator);
  const [opened, setOpened] = useState(() => new Set());
  const [sort, onSort] = useSort({ key: "ready", down: true });
  const onToggle = (group) =>
    setOpened((old) => {
      const next = new Set(old);
      if (!next.delete(group)) next.add(group);
      return next;
    });
  const columns = useMemo(() => columnsOf(server, opened, onToggle), [server, opened]);
  const survey = live?.survey;
  const filtered = useMemo(() => {
    const byName = nameTest(text);
    const byCondition = CONDITION_TESTS[condition];
    return [...(live?.tubes.values() ?? [])].filter((tube) => (!byName || byName(tube.tube)) && (!byCondition || byCondition(tube)));
  }, [survey, text, condition]);
  const rows = useMemo(
    () => (separator ? groupRows(filtered, separator, columns, sort, opened) : sortRows(filtered, columns, sort)),
    [filtered, separator, sort, opened],
  );
  const select = (change) => {
    if ("filter" in change) setText(change.filter);
    if ("condition" in change) setCondition(change.condition);
    navigate(pathOf(server, "tubes", null, { filter: text, condition, ...change }), { replace: true });
  };
  const chooseSeparator = (value) => {
    setSeparator(value);
    setOpened(new Set());
    try {
      localStorage.setItem(SEPARATOR_KEY, value);
    } catch {
      // The choice then lasts until the page is left.
    }
  };
  if (!survey) return html`<${Page} title="Tubes"><${Loading} text="Waiting for the first numbers" /><//>`;
  const total = live.tubes.size;
  return html`<${Page} title="Tubes" fill=${true}
    badges=${html`<span class="page-note" role="status">
      ${filtered.length === total ? counted(total, "tube") : counted(filtered.length, "tube") + " of " + longNumber(total)}</span>`}>
    <${FilterBar} label="Filter tubes">
      <${FilterText} label="Name" value=${text} onChange=${(value) => select({ filter: value })} search=${true}
        placeholder="part of the name, or mails.*" delayMs=${80} />
      <${FilterSelect} label="Show" value=${condition} onChange=${(value) => select({ condition: value })}
        options=${CONDITIONS} />
      <${FilterSelect} label="Group" value=${separator} onChange=${chooseSeparator} options=${SEPARATORS} />
    <//>
    <${DataTable} label="Tubes" fill=${true} columns=${columns} rows=${rows}
      rowKey=${(row) => (row.group ? "group " + row.group : row.tube)}
      rowClass=${(row) => (row.group ? "row-group" : separator && groupOf(row.tube, separator) && opened.has(groupOf(row.tube, separator)) ? "row-member" : null)}
      sort=${sort} onSort=${onSort}
      empty=${total
        ? html`<${Empty} title="No tube matches.">Tubes whose name and condition match the filter appear here.<//>`
        : html`<${Empty} title="No tubes.">A tube appears when a client uses or watches it, or puts a job into it.<//>`} />
  <//>`;
}
