/* The live state of a server: tubes, totals, rates, operations, kept from server-sent events. */
import { createContext, useContext, useEffect, useReducer, useRef } from "/static/preact.js";
import { checkSession, get } from "/static/api.js";

export const COLUMNS = [
  "tube", "ready", "reserved", "delayed", "buried", "urgent", "using", "watching", "waiting", "total",
  "pausedS", "oldestReadyS", "putsPerS", "reservesPerS", "deletesPerS",
];
const SPARK_POINTS = 40;
const SAMPLES_S = 600;
const RETRY_S = 3;
const HIDDEN_S = 20;
const SAMPLE_KEYS = [
  "at", "puts", "reserves", "deletes", "ready", "reserved", "delayed", "buried", "queue_p50", "queue_p99", "sync_p99",
];

class TubeHistory {
  /* The last numbers of ready jobs of a tube, in a ring. */
  constructor() {
    this.ring = new Float64Array(SPARK_POINTS);
    this.count = 0;
  }

  push(value) {
    this.ring[this.count % SPARK_POINTS] = value;
    this.count += 1;
  }

  values() {
    const length = Math.min(this.count, SPARK_POINTS);
    const first = this.count - length;
    return Array.from({ length }, (_, at) => this.ring[(first + at) % SPARK_POINTS]);
  }
}

export class Live {
  constructor(server) {
    this.server = server;
    this.hello = null;
    this.survey = null;
    this.tubes = new Map();
    this.operations = null;
    this.trouble = null;
    this.connected = false;
    this.version = 0;
    this.samples = Object.fromEntries(SAMPLE_KEYS.map((key) => [key, []]));
    this.listeners = new Set();
    this.source = null;
    this.timer = null;
    this.hideTimer = null;
  }

  start() {
    this.onVisibility = () => (document.hidden ? this.hide() : this.show());
    document.addEventListener("visibilitychange", this.onVisibility);
    this.open();
  }

  /* A browser opens at most six connections to the console, so a hidden page gives up its own. */
  hide() {
    clearTimeout(this.hideTimer);
    this.hideTimer = setTimeout(() => {
      clearTimeout(this.timer);
      this.source?.close();
      this.source = null;
      this.connected = false;
      this.changed();
    }, HIDDEN_S * 1000);
  }

  show() {
    clearTimeout(this.hideTimer);
    if (!this.source) this.open();
  }

  stop() {
    document.removeEventListener("visibilitychange", this.onVisibility);
    clearTimeout(this.hideTimer);
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  open() {
    const source = new EventSource("/api/s/" + this.server + "/live");
    this.source = source;
    const on = (name, receive) =>
      source.addEventListener(name, (event) => {
        receive.call(this, JSON.parse(event.data));
        this.changed();
      });
    on("hello", this.receiveHello);
    on("survey", this.receiveSurvey);
    on("operations", this.receiveOperations);
    on("trouble", this.receiveTrouble);
    source.onerror = () => this.lost(source);
    get("/s/" + this.server + "/samples").then((samples) => this.mergeSamples(samples), () => {});
  }

  lost(source) {
    this.connected = false;
    this.changed();
    // The browser reconnects by itself unless the console answered with an error status.
    if (source.readyState !== EventSource.CLOSED) return;
    source.close();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      checkSession();
      if (this.source === source) this.open();
    }, RETRY_S * 1000);
  }

  receiveHello(hello) {
    this.hello = hello;
    this.connected = true;
  }

  receiveTrouble(trouble) {
    this.trouble = trouble.error;
    this.connected = true;
  }

  /* Each event has all operations that the console lists. A console that was restarted has none of before. */
  receiveOperations({ operations }) {
    this.operations = operations;
  }

  /* When the last operation ended, in seconds since 1970; null while operations are not known. */
  lastEnd() {
    return this.operations && Math.max(0, ...this.operations.map((one) => one.ended ?? 0));
  }

  receiveSurvey(survey) {
    this.connected = true;
    this.trouble = null;
    const seen = survey.full ? new Set() : null;
    for (const row of survey.tubes) {
      const tube = this.tubes.get(row[0]) ?? { tube: row[0], history: new TubeHistory() };
      for (let at = 1; at < COLUMNS.length; at += 1) tube[COLUMNS[at]] = row[at];
      this.tubes.set(row[0], tube);
      seen?.add(row[0]);
    }
    if (seen) {
      for (const name of this.tubes.keys()) if (!seen.has(name)) this.tubes.delete(name);
    }
    for (const name of survey.gone ?? []) this.tubes.delete(name);
    for (const tube of this.tubes.values()) tube.history.push(tube.ready);
    this.survey = { at: survey.at, server: survey.server, rates: survey.rates, workers: survey.workers, durations: survey.durations };
    this.addSample(survey);
  }

  addSample({ at, rates, server, durations }) {
    const jobs = (state) => Number(server["current-jobs-" + state] ?? 0);
    const { samples } = this;
    const last = samples.at[samples.at.length - 1];
    if (last !== undefined && at <= last) return;
    const values = {
      at, puts: rates.puts, reserves: rates.reserves, deletes: rates.deletes,
      ready: jobs("ready"), reserved: jobs("reserved"), delayed: jobs("delayed"), buried: jobs("buried"),
      queue_p50: durations?.queue_p50 ?? null, queue_p99: durations?.queue_p99 ?? null, sync_p99: durations?.sync_p99 ?? null,
    };
    SAMPLE_KEYS.forEach((key) => samples[key].push(values[key]));
    while (samples.at[0] < at - SAMPLES_S) SAMPLE_KEYS.forEach((key) => samples[key].shift());
  }

  /* Take the samples of the console, and those received since then. */
  mergeSamples(known) {
    const last = known.at[known.at.length - 1] ?? 0;
    const begin = this.samples.at.findIndex((at) => at > last);
    const kept = begin < 0 ? Infinity : begin;
    this.samples = Object.fromEntries(SAMPLE_KEYS.map((key) => [key, [...known[key], ...this.samples[key].slice(kept)]]));
    this.changed();
  }

  changed() {
    this.version += 1;
    this.listeners.forEach((listener) => listener());
  }
}

export const LiveContext = createContext(null);

/* Return the live state, and render again at each change. */
export function useLive() {
  const live = useContext(LiveContext);
  const [, render] = useReducer((value) => value + 1, 0);
  useEffect(() => {
    if (!live) return undefined;
    live.listeners.add(render);
    render();
    return () => live.listeners.delete(render);
  }, [live]);
  return live;
}

/* Call `callback` each time when operations of the server have ended. */
export function useEndedOperations(callback) {
  const live = useContext(LiveContext);
  const latest = useRef(callback);
  latest.current = callback;
  useEffect(() => {
    if (!live) return undefined;
    let known = live.lastEnd();
    const check = () => {
      const end = live.lastEnd();
      if (known !== null && end > known) latest.current();
      known = end;
    };
    live.listeners.add(check);
    return () => live.listeners.delete(check);
  }, [live]);
}

/* Return the live state without rendering again. */
export const useLiveOnce = () => useContext(LiveContext);
