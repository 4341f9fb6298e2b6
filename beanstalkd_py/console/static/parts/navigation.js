/* The side bar: servers, pages, user and colours. On a phone it is a drawer. */
import { html, useEffect, useState } from "/static/preact.js";
import { shortNumber } from "/static/formatting.js";
import { useLive } from "/static/live.js";
import { navigate, pathOf } from "/static/route.js";
import { Icon } from "/static/parts/icons.js";
import { THEMES } from "/static/theme.js";

export const PAGES = [
  { key: "overview", label: "Overview", letter: "o", icon: "overview", group: "Queue" },
  { key: "tubes", label: "Tubes", letter: "t", icon: "tubes", group: "Queue" },
  { key: "jobs", label: "Jobs", letter: "j", icon: "jobs", group: "Queue" },
  { key: "connections", label: "Connections", letter: "c", icon: "connections", group: "Queue" },
  { key: "dead-letters", label: "Dead letters", letter: "d", icon: "dead", group: "Queue" },
  { key: "history", label: "History", letter: "h", icon: "history", group: "Queue" },
  { key: "schedules", label: "Schedules", letter: "s", icon: "schedules", group: "Rules" },
  { key: "policies", label: "Policies", letter: "p", icon: "policies", group: "Rules" },
  { key: "binlog", label: "Binlog", letter: "b", icon: "binlog", group: "Server" },
  { key: "replication", label: "Replication", letter: "r", icon: "replication", group: "Server" },
  { key: "doctor", label: "Doctor", letter: "x", icon: "doctor", group: "Server" },
  { key: "operations", label: "Operations", letter: "w", icon: "operations", group: "Server" },
  { key: "audit", label: "Audit log", letter: "a", icon: "audit", group: "Server" },
];
const PARENTS = { tube: "tubes", job: "jobs" };

function counts(live) {
  const stats = live?.survey?.server ?? {};
  const running = (live?.operations ?? []).filter((one) => !one.ended).length;
  return {
    tubes: live?.tubes.size || null,
    "dead-letters": Number(stats["current-jobs-buried"]) || null,
    operations: running || null,
  };
}

function Servers({ servers, server }) {
  if (servers.length < 2) return html`<p class="server-name" title=${servers[0]?.name}>${servers[0]?.name ?? "no server"}</p>`;
  return html`<label class="server-switch"><span class="hidden">Server</span>
    <select value=${server} onChange=${(event) => navigate(pathOf(Number(event.currentTarget.value)))}>
      ${servers.map((one) => html`<option key=${one.index} value=${one.index}>${one.name}</option>`)}
    </select></label>`;
}

const THEME_LABELS = { system: "Auto", light: "Light", dark: "Dark" };

export function Navigation({ route, server, session, theme, onTheme, onLogout, onKeys, open, onClose }) {
  const live = useLive();
  const numbers = counts(live);
  const current = PARENTS[route.page] ?? route.page;
  const [narrow, setNarrow] = useState(() => matchMedia("(max-width: 899px)").matches);
  useEffect(() => {
    const media = matchMedia("(max-width: 899px)");
    const update = () => setNarrow(media.matches);
    media.addEventListener("change", update);
    return () => media.removeEventListener("change", update);
  }, []);
  return html`<aside aria-label="Menu" class=${"sidebar" + (open ? " sidebar-open" : "")} id="sidebar" inert=${narrow && !open}>
    <div class="sidebar-head">
      <a class="brand" href=${pathOf(server)}><${Icon} name="brand" />beanstalkd_py</a>
      <button class="icon-button only-narrow" aria-label="Close the menu" onClick=${onClose}>×</button>
    </div>
    <${Servers} servers=${session.servers} server=${server} />
    <nav aria-label="Pages">
      ${["Queue", "Rules", "Server"].map((group) => html`<div key=${group} class="nav-group">
        <p class="nav-heading" id=${"nav-" + group}>${group}</p>
        <ul aria-labelledby=${"nav-" + group}>
          ${PAGES.filter((page) => page.group === group).map((page) => html`<li key=${page.key}>
            <a class="nav-link" href=${pathOf(server, page.key)} aria-current=${page.key === current ? "page" : null}>
              <${Icon} name=${page.icon} /><span>${page.label}</span>
              ${numbers[page.key] != null && html`<span class="nav-count">${shortNumber(numbers[page.key])}</span>`}
            </a></li>`)}
        </ul></div>`)}
    </nav>
    <div class="sidebar-foot">
      <div class="segments" role="group" aria-label="Colours">
        ${THEMES.map((one) => html`<button key=${one} aria-pressed=${one === theme} onClick=${() => onTheme(one)}>
          ${THEME_LABELS[one]}</button>`)}
      </div>
      <div class="sidebar-user">
        <span title=${"Role: " + session.role}>${session.user ?? "No login"} <span class="faint">${session.role}</span></span>
        ${session.login && session.user && html`<button class="link-button" onClick=${onLogout}>Log out</button>`}
      </div>
      <div class="sidebar-user"><span class="faint">Version ${session.version}</span><button class="link-button"
        onClick=${onKeys}>Keys</button></div>
    </div>
  </aside>`;
}
