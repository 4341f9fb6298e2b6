/* Labels and values of statistics by their keys: -bytes, -s, -ms, -us, ttr, delay. */
import { html } from "/static/preact.js";
import { keyLabel, longDuration, longNumber, longTime, relativeTime, shortDuration, shortNumber, shortSize } from "/static/formatting.js";

const WORDS = { pri: "Priority", ttr: "TTR", id: "ID", pid: "PID", cpu: "CPU", tls: "TLS" };
const SECONDS = new Set(["ttr", "delay", "age", "time-left", "pause", "pause-time-left", "uptime", "expires", "default-ttr", "max-delay"]);
const IDENTIFIERS = new Set(["id", "key", "KEYS", "pid", "worker", "offset", "file", "epoch", "binlog-oldest-index", "binlog-current-index", "oldest-index", "current-index"]);
const WHOLE_LABELS = new Set(["max-bytes", "behind-bytes"]);
const UNIT_END = /[-_](bytes|s|ms|us)$/;
const FIRST_EPOCH = 1e9;

export function labelOf(key) {
  const label = keyLabel(WHOLE_LABELS.has(key) ? key : key.replace(UNIT_END, ""));
  return label.replace(/\b[A-Za-z]+\b/g, (word, at) => {
    const known = WORDS[word.toLowerCase()];
    if (!known) return word;
    return at > 0 && known === "Priority" ? "priority" : known;
  });
}

const exact = (text, title) => html`<span title=${title}>${text}</span>`;

/* Return the value for a reader. Numbers in text, as those of the protocol, count as numbers. */
export function valueOf(key, value) {
  if (value === null || value === undefined || value === "") return html`<span class="faint">–</span>`;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) {
    if (!value.length) return html`<span class="faint">none</span>`;
    return value.map((one) => (typeof one === "object" ? JSON.stringify(one) : one)).join(", ");
  }
  if (typeof value === "object") return JSON.stringify(value);
  const number = typeof value === "number" ? value : /^\d+(\.\d+)?$/.test(value) ? Number(value) : null;
  if (number === null || !Number.isFinite(number)) return String(value);
  if (IDENTIFIERS.has(key)) return String(value);
  if (number > FIRST_EPOCH && /(^|[-_])(at|time|first|last|stored|begun|ended)([-_]s)?$|complete/.test(key)) return exact(relativeTime(number), longTime(number));
  if (/([-_]|^)(bytes|size)$/.test(key)) return exact(shortSize(number), longNumber(number) + " bytes");
  if (/[-_]us$/.test(key)) return exact(shortDuration(number / 1e6), longNumber(number) + " microseconds");
  if (/[-_]ms$/.test(key)) return exact(shortDuration(number / 1e3), longNumber(number) + " milliseconds");
  if (/[-_]s$/.test(key) || SECONDS.has(key)) return exact(shortDuration(number), longDuration(number));
  return exact(Math.abs(number) < 1e6 ? longNumber(number) : shortNumber(number), longNumber(number));
}
