/* Short messages in a corner, which screen readers announce. */
import { createContext, html, useCallback, useContext, useState } from "/static/preact.js";

const SHOWN_MS = 7000;
const ToastContext = createContext(() => {});
export const useToast = () => useContext(ToastContext);

export function ToastProvider({ children }) {
  const [toasts, setToasts] = useState([]);
  const remove = (id) => setToasts((old) => old.filter((one) => one.id !== id));
  const add = useCallback((text, { danger = false, href = null } = {}) => {
    const id = Math.random();
    setToasts((old) => [...old.slice(-3), { id, text, danger, href }]);
    setTimeout(() => remove(id), SHOWN_MS);
  }, []);
  return html`<${ToastContext.Provider} value=${add}>
    ${children}
    <div class="toasts" role="status" aria-live="polite">
      ${toasts.map((one) => html`<div key=${one.id} class=${"toast" + (one.danger ? " toast-danger" : "")}>
        <span>${one.text}</span>
        ${one.href && html`<a href=${one.href}>Operations</a>`}
        <button class="icon-button" aria-label="Close message" onClick=${() => remove(one.id)}>×</button>
      </div>`)}
    </div>
  <//>`;
}
