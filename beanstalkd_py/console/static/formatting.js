/* Numbers, sizes, times and durations as short text, and exactly for titles. */
const exactNumber = new Intl.NumberFormat("en-US", { maximumFractionDigits: 3 });

export function shortNumber(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size < 1000) return Number.isInteger(value) ? String(value) : size < 10 ? value.toFixed(1) : value.toFixed(0);
  const units = ["k", "M", "G", "T", "P"];
  let scaled = value;
  let unit = -1;
  while (Math.abs(scaled) >= 999.5 && unit < units.length - 1) {
    scaled /= 1000;
    unit += 1;
  }
  const digits = Math.abs(scaled) < 9.95 ? 1 : 0;
  return scaled.toFixed(digits).replace(/\.0$/, "") + units[unit];
}

export const longNumber = (value) => (value == null ? "unknown" : exactNumber.format(value));

export const counted = (count, noun, plural = noun + "s") => longNumber(count) + " " + (count === 1 ? noun : plural);

export function shortRate(value) {
  if (value == null) return "–";
  if (value === 0) return "0";
  if (value < 0.05) return "<0.1";
  return shortNumber(value < 100 ? Math.round(value * 10) / 10 : Math.round(value));
}

export function shortSize(bytes) {
  if (bytes == null || !Number.isFinite(bytes)) return "–";
  if (bytes < 1024) return bytes + " B";
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let scaled = bytes;
  let unit = -1;
  do {
    scaled /= 1024;
    unit += 1;
  } while (scaled >= 1023.5 && unit < units.length - 1);
  return scaled.toFixed(scaled < 9.95 ? 1 : 0) + " " + units[unit];
}

export function shortDuration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return "-" + shortDuration(-seconds);
  if (seconds === 0) return "0s";
  if (seconds < 0.001) return Math.round(seconds * 1e6) + "µs";
  if (seconds < 1) return Math.round(seconds * 1000) + "ms";
  if (seconds < 10) return (Math.round(seconds * 10) / 10) + "s";
  const whole = Math.round(seconds);
  if (whole < 60) return whole + "s";
  if (whole < 3600) return Math.floor(whole / 60) + "m" + (whole % 60 && whole < 600 ? " " + (whole % 60) + "s" : "");
  const hours = Math.floor(whole / 3600);
  if (hours < 24) return hours + "h" + (Math.floor((whole % 3600) / 60) ? " " + Math.floor((whole % 3600) / 60) + "m" : "");
  const days = Math.floor(hours / 24);
  return days + "d" + (days < 10 && hours % 24 ? " " + (hours % 24) + "h" : "");
}

export const longDuration = (seconds) => (seconds == null ? "unknown" : exactNumber.format(seconds) + " seconds");

const dateFormat = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });
const clockFormat = new Intl.DateTimeFormat("sv-SE", { timeStyle: "medium" });

export const longTime = (epoch) => (epoch ? dateFormat.format(epoch * 1000) + ", " + new Date(epoch * 1000).toISOString() : "never");
export const dateTime = (epoch) => (epoch ? dateFormat.format(epoch * 1000) : "never");
export const clock = (epoch) => clockFormat.format(epoch * 1000);

export function relativeTime(epoch, now = Date.now() / 1000) {
  if (!epoch) return "never";
  const age = now - epoch;
  if (Math.abs(age) < 1) return "now";
  return age > 0 ? shortDuration(Math.round(age)) + " ago" : "in " + shortDuration(Math.round(-age));
}

/* "binlog-max-size" -> "Binlog max size" */
export const keyLabel = (key) => {
  const words = String(key).replace(/[-_]+/g, " ").trim();
  return words.charAt(0).toUpperCase() + words.slice(1);
};
