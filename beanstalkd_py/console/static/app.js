/* The console: session, router and layout. */
import { html, render, useCallback, useEffect, useRef, useState } from "/static/preact.js";
import { get, post, whenLoggedOut } from "/static/api.js";
import { Live, LiveContext, useLive } from "/static/live.js";
import { followLinks, navigate, pathOf, useRoute } from "/static/route.js";
import { SessionContext } from "/static/session.js";
import { applyTheme, storedTheme } from "/static/theme.js";
import { ActionContext, ActionDialog } from "/static/parts/action_dialog.js";
import { CommandPalette } from "/static/parts/command_palette.js";
import { Icon } from "/static/parts/icons.js";
import { Navigation } from "/static/parts/navigation.js";
import { Empty, Failure, Loading, Needs } from "/static/parts/notices.js";
import { Page } from "/static/parts/page.js";
import { KeysDialog, useShortcuts } from "/static/parts/shortcuts.js";
import { ToastProvider } from "/static/parts/toast.js";
import { AuditPage } from "/static/pages/audit.js";
import { BinlogPage } from "/static/pages/binlog.js";
import { ConnectionsPage } from "/static/pages/connections.js";
import { DeadLettersPage } from "/static/pages/dead_letters.js";
import { DoctorPage } from "/static/pages/doctor.js";
import { HistoryPage } from "/static/pages/history.js";
import { JobPage } from "/static/pages/job.js";
import { JobsPage } from "/static/pages/jobs.js";
import { LoginPage } from "/static/pages/login.js";
import { OperationsPage } from "/static/pages/operations.js";
import { OverviewPage } from "/static/pages/overview.js";
import { PoliciesPage } from "/static/pages/policies.js";
import { ReplicationPage } from "/static/pages/replication.js";
import { SchedulesPage } from "/static/pages/schedules.js";
import { TubePage } from "/static/pages/tube.js";
import { TubesPage } from "/static/pages/tubes.js";

const MissingPage = () => html`<${Page} title="No such page">
  <${Empty}>The address belongs to no page of the console. <a href="/">Go to the overview</a><//><//>`;

const SESSION_PAUSE_MS = 3000;

/* The component of each page, its title, and the feature that it needs. */
const PAGES = {
  overview: [OverviewPage, "Overview"],
  tubes: [TubesPage, "Tubes"],
  tube: [TubePage, "Tube"],
  jobs: [JobsPage, "Jobs"],
  job: [JobPage, "Job"],
  connections: [ConnectionsPage, "Connections", "connections"],
  "dead-letters": [DeadLettersPage, "Dead letters"],
  history: [HistoryPage, "History", "history"],
  schedules: [SchedulesPage, "Schedules", "schedules"],
  policies: [PoliciesPage, "Policies", "policies"],
  binlog: [BinlogPage, "Binlog", "control"],
  replication: [ReplicationPage, "Replication", "replication"],
  doctor: [DoctorPage, "Doctor"],
  operations: [OperationsPage, "Operations"],
  audit: [AuditPage, "Audit log"],
  missing: [MissingPage, "No such page"],
};

/* Render again only when the features of the server become known, not at each survey. */
function useFeatures(live) {
  const [features, setFeatures] = useState(live?.hello?.features ?? null);
  useEffect(() => {
    if (!live) return undefined;
    const update = () => setFeatures(live.hello?.features ?? null);
    live.listeners.add(update);
    update();
    return () => live.listeners.delete(update);
  }, [live]);
  return features;
}

function CurrentPage({ route, server, live }) {
  const features = useFeatures(live);
  const [Component, title, feature] = PAGES[route.page] ?? PAGES.missing;
  if (feature && !features) return html`<${Page} title=${title}><${Loading} text="Connecting to the server" /><//>`;
  if (feature && !features[feature]) return html`<${Page} title=${title}><${Needs} feature=${feature} /><//>`;
  return html`<${Component} key=${server + route.page + (route.name ?? "")} server=${server} name=${route.name}
    query=${route.query} features=${features} />`;
}

function Connection() {
  const live = useLive();
  if (!live) return null;
  if (live.trouble) return html`<span class="connection connection-lost">Server not reached</span>`;
  if (!live.connected && !live.survey) return html`<span class="connection connection-begin">Connecting</span>`;
  if (!live.connected) return html`<span class="connection connection-lost">Reconnecting</span>`;
  const interval = live.hello?.interval_s ?? 2;
  return html`<span class="connection" title=${"Values are renewed every " + interval + " seconds."}>Live</span>`;
}

function Trouble() {
  const live = useLive();
  if (!live?.trouble) return null;
  return html`<div class="notice notice-danger trouble" role="alert"><p>
    <b>The server cannot be reached.</b> ${live.trouble}. The console tries again, and the values below are old.</p></div>`;
}

/* A proxy has named a user that the console does not know, so a login would not help. */
const RefusedPage = ({ onRetry }) => html`<main class="alone"><h1 class="hidden">Console</h1>
  <${Failure} error=${{ message: "Your user has no access to this console. An administrator can add you to its file of users." }}
    retry=${onRetry} /></main>`;

const isMac = /Mac|iPhone|iPad/.test(navigator.userAgent);

function Layout({ route, session, theme, onTheme, onLogout }) {
  // A page without a server, as the audit log, keeps that of the page before.
  const lastServer = useRef(null);
  const exists = (server) => session.servers.some((one) => one.index === server);
  if (exists(route.server)) lastServer.current = route.server;
  else if (!exists(lastServer.current)) lastServer.current = session.servers[0]?.index ?? 0;
  const server = lastServer.current;
  const [live, setLive] = useState(null);
  const [dialog, setDialog] = useState(null);
  const [action, setAction] = useState(null);
  const [menu, setMenu] = useState(false);
  useEffect(() => {
    const state = new Live(server);
    state.start();
    setLive(state);
    return () => {
      state.stop();
      setAction(null);
    };
  }, [server]);
  useEffect(() => setMenu(false), [route]);
  const pagePath = pathOf(route.server ?? 0, route.page, route.name);
  const shownPath = useRef(pagePath);
  useEffect(() => {
    // Screen readers and the keyboard continue at the new page.
    if (shownPath.current !== pagePath) document.getElementById("content").focus({ preventScroll: true });
    shownPath.current = pagePath;
  }, [pagePath]);
  const close = useCallback(() => setDialog(null), []);
  const onPalette = useCallback(() => setDialog("palette"), []);
  const onKeys = useCallback(() => setDialog("keys"), []);
  useShortcuts({ server, onPalette, onKeys, enabled: true });
  const known = route.server === null || route.server === server;
  return html`<${LiveContext.Provider} value=${live}><${ActionContext.Provider} value=${setAction}>
    <a class="skip" href="#content"
      onClick=${(event) => { event.preventDefault(); document.getElementById("content").focus(); }}>Skip to the content</a>
    <${Navigation} route=${route} server=${server} session=${session} theme=${theme} onTheme=${onTheme} onLogout=${onLogout}
      onKeys=${onKeys} open=${menu} onClose=${() => setMenu(false)} />
    ${menu && html`<div class="shade" onClick=${() => setMenu(false)}></div>`}
    <div class="column">
      <header class="topbar">
        <button class="icon-button only-narrow" aria-label="Open the menu" aria-expanded=${menu} aria-controls="sidebar"
          onClick=${() => { setMenu(true); setTimeout(() => document.querySelector("#sidebar a")?.focus()); }}>
          <${Icon} name="menu" /></button>
        <button class="search-button" onClick=${onPalette}><${Icon} name="search" /><span>Go to page, tube or job</span>
          <kbd>${isMac ? "⌘K" : "Ctrl K"}</kbd></button>
        <div class="topbar-status" aria-live="polite"><${Connection} /></div>
      </header>
      <main id="content" tabindex="-1">
        <${Trouble} />
        ${known && live ? html`<${CurrentPage} route=${route} server=${server}
          live=${live} />` : known ? null : html`<${MissingPage} />`}
      </main>
    </div>
    ${action && html`<${ActionDialog} key=${action.kind} action=${action} server=${server} onClose=${() => setAction(null)} />`}
    ${dialog === "palette" && html`<${CommandPalette} server=${server} servers=${session.servers} onTheme=${onTheme}
      onClose=${close} />`}
    ${dialog === "keys" && html`<${KeysDialog} onClose=${close} />`}
  <//><//>`;
}

function App() {
  const route = useRoute();
  const [session, setSession] = useState(null);
  const [error, setError] = useState(null);
  const [theme, setTheme] = useState(storedTheme);
  const onTheme = useCallback((next) => {
    setTheme(next);
    applyTheme(next);
  }, []);
  const load = useCallback(() => {
    setError(null);
    get("/session").then(setSession, setError);
  }, []);
  useEffect(load, []);
  const onLogout = useCallback(async () => {
    await post("/logout").catch(() => {});
    setSession((old) => ({ ...old, user: null }));
    navigate("/login");
  }, []);
  useEffect(() => {
    let isPausing = false;
    // The server says whether a login helps. Requests that fail meanwhile, or soon after, do not ask again.
    whenLoggedOut(() => {
      if (isPausing) return;
      isPausing = true;
      setTimeout(() => { isPausing = false; }, SESSION_PAUSE_MS);
      get("/session").then(setSession, () => {});
    });
  }, []);
  const needsLogin = session?.login && session.user === null;
  useEffect(() => {
    if (needsLogin && route.page !== "login") navigate(pathOf(null, "login", null, { next: location.pathname + location.search }), { replace: true });
    if (session && !needsLogin && route.page === "login") {
      const next = route.query.next ?? "/";
      navigate(next.startsWith("/") && !next.startsWith("//") ? next : "/", { replace: true });
    }
  }, [needsLogin, session, route]);
  if (error) return html`<main class="alone"><h1 class="hidden">Console</h1><${Failure} error=${error} retry=${load} /></main>`;
  if (!session) return html`<main class="alone"><h1 class="hidden">Console</h1><${Loading} /></main>`;
  if (session.role === null && !session.login) return html`<${RefusedPage} onRetry=${load} />`;
  if (needsLogin || route.page === "login") return html`<${LoginPage} onSession=${setSession} />`;
  return html`<${SessionContext.Provider} value=${session}><${ToastProvider}>
    <${Layout} route=${route} session=${session} theme=${theme} onTheme=${onTheme} onLogout=${onLogout} />
  <//><//>`;
}

applyTheme(storedTheme());
document.addEventListener("click", followLinks);
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
