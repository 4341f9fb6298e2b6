/* The operations on a tube, as actions of the dialog. */
import { saveFile, withQuery } from "/static/api.js";

export const kickTube = (tube, buried) => ({
  kind: "kick", title: "Kick jobs of " + tube, button: "Kick", arguments: { tube },
  note: "Buried jobs become ready. Without buried jobs, delayed ones become ready.",
  fields: [{ name: "count", label: "Number of jobs", type: "number", value: String(Math.max(1, buried)), min: 1 }],
});

export const pauseTube = (tube) => ({
  kind: "pause", title: "Pause " + tube, button: "Pause", arguments: { tube },
  note: "No job of the tube can be reserved until the time has passed. 0 ends a pause.",
  fields: [{ name: "seconds", label: "Seconds", type: "number", value: "300" }],
});

export const resumeTube = (tube) => ({
  kind: "pause", title: "End the pause of " + tube, button: "End the pause", arguments: { tube, seconds: 0 },
});

export const putJob = (tube) => ({
  kind: "put", title: "Put a job into " + tube, button: "Put", arguments: { tube },
  fields: [
    { name: "body", label: "Body", type: "body" },
    { name: "pri", label: "Priority", type: "number", value: "65536", half: true, hint: "0 is the most urgent." },
    { name: "delay", label: "Delay in seconds", type: "number", value: "0", half: true },
    { name: "ttr", label: "Time to run in seconds", type: "number", value: "60", min: 1, half: true },
  ],
});

export const exportJobs = (server, tube) => saveFile(withQuery("/s/" + server + "/jobs/export", { tube }), tube + ".jsonl");

export const importJobs = (tube) => ({
  kind: "import", title: "Import jobs into " + tube, button: "Import", arguments: { tube },
  note: "Each line of the file is a job as JSON, as Export writes it. The jobs get new ids.",
  fields: [
    { name: "lines", label: "File", type: "file", hint: "Up to 2 MB. The command beanstalkd-py import reads larger files." },
    { name: "skip", label: "Lines to skip", type: "number", value: "0" },
  ],
});

export const moveJobs = (tube) => ({
  kind: "move", title: "Move jobs of " + tube, button: "Move", arguments: { tube }, tube,
  note: "The jobs are put into the other tube as new jobs.",
  fields: [
    { name: "to", label: "To the tube", list: "tube-names" },
    { name: "states", label: "Jobs in the states", type: "states", value: ["ready"] },
    { name: "limit", label: "At most this number of jobs", type: "number", optional: true, min: 1 },
    { name: "rate", label: "Jobs per second", type: "number", optional: true, min: 0.1, hint: "Without a rate the server moves them as fast as it can." },
  ],
});

export const truncateTube = (tube) => ({
  kind: "truncate", title: "Truncate " + tube, button: "Truncate", danger: true, arguments: { tube }, tube,
  note: "The jobs are deleted. This cannot be undone. Reserved jobs belong to their clients and stay.",
  fields: [{ name: "states", label: "Jobs in the states", type: "states", value: ["ready", "delayed", "buried"] }],
});

/* `message` is an ended job of the history: {tube, key, offset}. */
export const putAgain = ({ tube, key, offset }) => ({
  kind: "undelete", title: "Put job " + key + " again", button: "Put again", arguments: { tube, key, offset },
  note: "A new job is put with the body, priority and time to run of this one, without its delay.",
  fields: [{ name: "to_tube", label: "Into the tube", value: tube, list: "tube-names" }],
});

export const rateField = { name: "rate", label: "Jobs per second", type: "number", optional: true, min: 0.1, value: "50", hint: "Empty: as fast as the server can." };
