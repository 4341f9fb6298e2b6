/* Routes of the History API. A route is {page, server, name, query}; every part of a path is encoded. */
import { useEffect, useState } from "/static/preact.js";

const listeners = new Set();

const SERVER_PAGES = new Set([
  "tubes", "jobs", "connections", "dead-letters", "history", "schedules", "policies", "binlog",
  "replication", "doctor", "operations",
]);

const decode = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};

/* Browsers remove the parts "." and ".." of a path, also encoded ones, so such a tube gets a "~", which no tube has. */
export const encodePart = (name) => (/^\.\.?$/.test(name) ? "~" + name : encodeURIComponent(name));
const decodeName = (part) => part.replace(/^~(?=\.\.?$)/, "");

export function parse(location) {
  const parts = location.pathname.split("/").filter(Boolean).map(decode);
  const query = Object.fromEntries(new URLSearchParams(location.search));
  if (parts.length === 0) return { page: "overview", server: 0, name: null, query };
  if (parts[0] === "login" || parts[0] === "audit") return { page: parts[0], server: null, name: null, query };
  if (parts[0] !== "s" || !/^\d+$/.test(parts[1] ?? "")) return { page: "missing", server: null, name: null, query };
  const server = Number(parts[1]);
  if (parts.length === 2) return { page: "overview", server, name: null, query };
  const named = { tubes: "tube", jobs: "job" };
  if (parts.length === 4 && named[parts[2]]) return { page: named[parts[2]], server, name: decodeName(parts[3]), query };
  if (parts.length === 3 && SERVER_PAGES.has(parts[2])) return { page: parts[2], server, name: null, query };
  return { page: "missing", server, name: null, query };
}

const queryText = (query) => {
  const kept = Object.entries(query ?? {}).filter(([, value]) => value !== "" && value != null);
  return kept.length ? "?" + new URLSearchParams(kept) : "";
};

export function pathOf(server, page = "overview", name = null, query = null) {
  if (page === "login" || page === "audit") return "/" + page + queryText(query);
  let path = "/s/" + server;
  if (page !== "overview") path += "/" + page;
  if (name !== null) path += "/" + encodePart(name);
  return path + queryText(query);
}

export const tubePath = (server, tube) => pathOf(server, "tubes", tube);
export const jobPath = (server, id) => pathOf(server, "jobs", String(id));

export function navigate(path, { replace = false } = {}) {
  if (path === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  if (!replace) window.scrollTo(0, 0);
  listeners.forEach((listener) => listener());
}

export function useRoute() {
  const [route, setRoute] = useState(() => parse(location));
  useEffect(() => {
    const update = () => setRoute(parse(location));
    listeners.add(update);
    addEventListener("popstate", update);
    return () => {
      listeners.delete(update);
      removeEventListener("popstate", update);
    };
  }, []);
  return route;
}

/* Follow links within the console without a page load. */
export function followLinks(event) {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.("a[href]");
  if (!link || link.target || link.origin !== location.origin || link.hasAttribute("download")) return;
  if (link.pathname.startsWith("/api/") || link.pathname.startsWith("/static/")) return;
  if (link.hash && link.pathname === location.pathname) return;
  event.preventDefault();
  navigate(link.pathname + link.search);
}
