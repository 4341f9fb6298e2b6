/* A modal dialog. The browser keeps the focus within it, Escape closes it. */
import { html, useLayoutEffect, useRef } from "/static/preact.js";

let count = 0;

export function Dialog({ title, onClose, className = "", hideTitle = false, children }) {
  const element = useRef(null);
  const id = useRef(null);
  if (id.current === null) id.current = "dialog-" + (count += 1);
  // Before the next event, so that the dialog gets what is typed right after it is opened.
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    return () => dialog.open && dialog.close();
  }, []);
  return html`<dialog
    ref=${element} class=${"dialog " + className} aria-labelledby=${id.current}
    onClose=${onClose}
    onMouseDown=${(event) => event.target === element.current && element.current.close()}
  >
    <div class="dialog-content">
      <header class=${hideTitle ? "hidden" : "dialog-header"}>
        <h2 id=${id.current}>${title}</h2>
        ${!hideTitle && html`<button type="button" class="icon-button" aria-label="Close"
          onClick=${() => element.current.close()}>×</button>`}
      </header>
      ${children}
    </div>
  </dialog>`;
}
