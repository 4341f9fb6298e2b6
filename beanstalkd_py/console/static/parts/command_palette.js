/* Ctrl+K: go to a page, a tube, a job or another server. */
import { html, useEffect, useMemo, useRef, useState } from "/static/preact.js";
import { shortNumber } from "/static/formatting.js";
import { useLiveOnce } from "/static/live.js";
import { jobPath, navigate, pathOf, tubePath } from "/static/route.js";
import { Dialog } from "/static/parts/dialog.js";
import { PAGES } from "/static/parts/navigation.js";

const SHOWN_TUBES = 30;

/* Prefixes count most, then substrings, then letters in order. */
function score(text, wanted) {
  const lower = text.toLowerCase();
  if (lower.startsWith(wanted)) return 3;
  if (lower.includes(wanted)) return 2;
  let at = 0;
  for (const letter of lower) if (letter === wanted[at]) at += 1;
  return at === wanted.length ? 1 : 0;
}

function matching(items, wanted) {
  if (!wanted) return items;
  return items
    .map((item) => [score(item.text, wanted), item])
    .filter(([points]) => points > 0)
    .sort((a, b) => b[0] - a[0] || a[1].text.length - b[1].text.length)
    .map(([, item]) => item);
}

function commands({ wanted, server, servers, live, onTheme }) {
  const found = [];
  if (/^\d+$/.test(wanted)) found.push({ group: "Job", text: "Job " + wanted, href: jobPath(server, wanted) });
  const pages = PAGES.map((page) => ({ group: "Page", text: page.label, href: pathOf(server, page.key), note: page.letter ? "g " + page.letter : "" }));
  found.push(...matching(pages, wanted));
  const tubes = [...(live?.tubes.values() ?? [])].sort((a, b) => b.ready - a.ready);
  const named = tubes.map((tube) => ({ group: "Tube", text: tube.tube, href: tubePath(server, tube.tube), note: shortNumber(tube.ready) + " ready" }));
  found.push(...matching(named, wanted).slice(0, SHOWN_TUBES));
  const others = servers.filter((one) => one.index !== server).map((one) => ({ group: "Server", text: one.name, href: pathOf(one.index) }));
  found.push(...matching(others, wanted));
  const themes = ["light", "dark", "system"].map((theme) => ({ group: "Colours", text: "Colours: " + theme, run: () => onTheme(theme) }));
  found.push(...matching(themes, wanted));
  return found;
}

export function CommandPalette({ server, servers, onTheme, onClose }) {
  const live = useLiveOnce();
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const list = useRef(null);
  const wanted = text.trim().toLowerCase();
  const found = useMemo(() => commands({ wanted, server, servers, live, onTheme }), [wanted, server, !live]);
  const at = Math.min(active, found.length - 1);
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [at, wanted]);
  const choose = (item) => {
    onClose();
    if (item.href) navigate(item.href);
    else item.run();
  };
  const onKeyDown = (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move && found.length) {
      event.preventDefault();
      setActive((at + move + found.length) % found.length);
    } else if (event.key === "Enter" && found[at]) {
      event.preventDefault();
      choose(found[at]);
    }
  };
  return html`<${Dialog} title="Go to" hideTitle=${true} className="palette" onClose=${onClose}>
    <input class="palette-input" type="text" role="combobox" aria-label="Page, tube or job id" aria-expanded="true"
      aria-controls="palette-list"
      aria-activedescendant=${found.length ? "palette-" + at : null} autocomplete="off" spellcheck=${false}
      placeholder="Page, tube or job id" autofocus
      value=${text} onInput=${(event) => { setText(event.currentTarget.value); setActive(0); }} onKeyDown=${onKeyDown} />
    <ul id="palette-list" class="palette-list" role="listbox" aria-label="Results" ref=${list}>
      ${found.map((item, index) => html`<li key=${item.group + item.text} id=${"palette-" + index} role="option"
        aria-selected=${index === at}
        onClick=${() => choose(item)} onMouseMove=${() => setActive(index)}>
        <span class="palette-group">${item.group}</span><span class="palette-text">${item.text}</span>
          <span class="palette-note">${item.note}</span>
      </li>`)}
    </ul>
    ${!found.length && html`<p class="palette-none">No page, tube or job matches.</p>`}
  <//>`;
}
