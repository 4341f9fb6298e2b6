/* Requests to /api/. A failed request raises ApiError with the sentence of the server. */
import { useCallback, useEffect, useState } from "/static/preact.js";

export class ApiError extends Error {
  constructor(status, text, retryAfter = null) {
    super(text);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

let onLoggedOut = () => {};
export const whenLoggedOut = (callback) => {
  onLoggedOut = callback;
};

/* Find out whether the session has ended. An EventSource does not report the status of its reply. */
export async function checkSession() {
  const session = await get("/session").catch(() => null);
  if (session && session.role === null) onLoggedOut();
}

async function request(path, options) {
  let response;
  try {
    response = await fetch("/api" + path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The console does not respond.");
  }
  let data = null;
  try {
    data = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (response.ok && data !== null) return data;
  if (response.status === 401 && path !== "/login") onLoggedOut();
  throw failureOf(response, data);
}

function failureOf(response, data) {
  const text = data?.error ?? "The console sent an invalid reply (status " + response.status + ").";
  return new ApiError(response.status, text, response.headers.get("Retry-After"));
}

/* Return the path with the values of `query` that are set. */
export function withQuery(path, query) {
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  return kept.length ? path + "?" + new URLSearchParams(kept) : path;
}

export const get = (path, signal) => request(path, { signal });

export const post = (path, data = {}, signal = undefined) =>
  request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(data),
    signal,
  });

/* Save a file under a name, after all of it has arrived. */
export async function saveFile(path, name) {
  let response;
  let content;
  try {
    response = await fetch("/api" + path, { credentials: "same-origin" });
    content = response.ok ? await response.blob() : await response.json();
  } catch {
    throw new ApiError(0, "The file is not complete: the server, the console or the session has ended.");
  }
  if (!response.ok) throw failureOf(response, content);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/* Load `path`; null loads nothing. Returns {data, error, loading, busy, reload}. Keeps the data of the same
   path during a reload. `everyS` repeats the request while the page is visible. */
export function useData(path, { everyS = null } = {}) {
  const [state, setState] = useState({ path: null, data: null, error: null });
  const [round, setRound] = useState(0);
  const [busy, setBusy] = useState(false);
  const reload = useCallback(() => setRound((value) => value + 1), []);
  useEffect(() => {
    if (path === null) return undefined;
    const aborter = new AbortController();
    setBusy(true);
    get(path, aborter.signal).then(
      (data) => {
        setBusy(false);
        setState({ path, data, error: null });
      },
      (error) => {
        if (error.name === "AbortError") return;
        setBusy(false);
        setState((old) => ({ path, data: old.path === path ? old.data : null, error }));
      },
    );
    return () => aborter.abort();
  }, [path, round]);
  useEffect(() => {
    if (!everyS || path === null) return undefined;
    const timer = setInterval(() => document.hidden || reload(), everyS * 1000);
    return () => clearInterval(timer);
  }, [path, everyS]);
  const known = state.path === path;
  return {
    data: known ? state.data : null,
    error: known ? state.error : null,
    loading: path !== null && !known,
    busy,
    reload,
  };
}
