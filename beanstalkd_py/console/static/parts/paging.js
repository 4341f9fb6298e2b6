/* Pages of a list that the server filters. A page of the server ends after some time, maybe with nothing found:
   the page shown here then goes on. `begin` is where it begins, and `at` is how far it has come. */
import { html, useState } from "/static/preact.js";

export function usePages(first) {
  const [pages, setPages] = useState([{ begin: first, at: first }]);
  const { begin, at } = pages[pages.length - 1];
  const change = (page) => setPages((old) => [...old.slice(0, -1), { ...old[old.length - 1], ...page }]);
  return {
    number: pages.length, begin, at,
    previous: () => setPages((old) => old.slice(0, -1)),
    next: (position) => setPages((old) => [...old, { begin: position, at: position }]),
    goOn: (position) => change({ at: position }),
    again: () => change({ at: begin }),
    reset: () => setPages([{ begin: first, at: first }]),
  };
}

/* `following` is where the next page begins; null if it is not known yet, or there is none. */
export const Pager = ({ pages, following, label, backwards, forwards }) =>
  (pages.number > 1 || following !== null) && html`<nav class="pager" aria-label=${label}>
    <button class="button small" disabled=${pages.number === 1} onClick=${pages.previous}>${backwards}</button>
    <span>Page ${pages.number}</span>
    <button class="button small" disabled=${following === null} onClick=${() => pages.next(following)}>${forwards}</button>
  </nav>`;
