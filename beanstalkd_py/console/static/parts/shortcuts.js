/* Keys of the whole console. Keys within tables and dialogs are in those parts. */
import { html, useEffect, useRef } from "/static/preact.js";
import { navigate, pathOf } from "/static/route.js";
import { Dialog } from "/static/parts/dialog.js";
import { PAGES } from "/static/parts/navigation.js";

const SEQUENCE_MS = 1500;
const isTyping = (element) => element.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]");

export function useShortcuts({ server, onPalette, onKeys, enabled }) {
  const begun = useRef(0);
  useEffect(() => {
    if (!enabled) return undefined;
    const onKeyDown = (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        if (!document.querySelector("dialog[open]")) onPalette();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
      if (Date.now() - begun.current < SEQUENCE_MS) {
        begun.current = 0;
        const page = PAGES.find((one) => one.letter === event.key);
        if (page) {
          event.preventDefault();
          navigate(pathOf(server, page.key));
          return;
        }
      }
      if (event.key === "g") begun.current = Date.now();
      else if (event.key === "?") onKeys();
      else if (event.key === "/") {
        event.preventDefault();
        const search = document.querySelector("[data-search]");
        if (search) search.focus();
        else onPalette();
      }
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, [server, enabled, onPalette, onKeys]);
}

const GENERAL = [
  ["/", "Search on this page"],
  ["Ctrl K", "Go to a page, tube or job"],
  ["?", "This list"],
  ["Esc", "Close a dialog, leave the search"],
  ["↑ ↓", "Previous and next row of a table"],
  ["PgUp PgDn", "A page of rows"],
  ["Home End", "First and last row"],
];

export const KeysDialog = ({ onClose }) =>
  html`<${Dialog} title="Keys" onClose=${onClose}>
    <div class="keys">
      <dl>${GENERAL.map(([key, text]) => html`<div key=${key}><dt>
        ${key.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${text}</dd></div>`)}</dl>
      <dl>${PAGES.map((page) => html`<div key=${page.key}><dt><kbd>g</kbd> <kbd>${page.letter}</kbd></dt><dd>
        ${page.label}</dd></div>`)}</dl>
    </div>
  <//>`;
