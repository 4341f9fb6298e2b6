/* Light, dark, or the setting of the system; stored in this browser. */
const KEY = "theme";
export const THEMES = ["system", "light", "dark"];

export function storedTheme() {
  try {
    const theme = localStorage.getItem(KEY);
    return THEMES.includes(theme) ? theme : "system";
  } catch {
    return "system";
  }
}

export function applyTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // The choice then lasts until the page is closed.
  }
  dispatchEvent(new Event("themechange"));
}

/* Call `callback` when colours change; returns a function that ends this. */
export function watchTheme(callback) {
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", callback);
  addEventListener("themechange", callback);
  return () => {
    media.removeEventListener("change", callback);
    removeEventListener("themechange", callback);
  };
}
