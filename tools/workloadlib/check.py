"""Compares a log with a binlog folder: every entry has its event, and every event its entry.

Bodies and times are compared, too. The package reads the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from . import WorkloadError
from .job_log import JobEvent, JobLog, LoggedJob
from .model import sha_of

MOST_REPORTED = 20
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")
WRITTEN = frozenset({"put", "bury", "kick", "delete", "truncate"})
"""Events that have an entry on every server; this server also writes all releases with a delay."""
SLACK_NS = 10**9
"""A server reads its clock once per round, and a round may wait for a disk."""

Entry = dict[str, Any]


@dataclass
class Disagreements:
    """The number of disagreements, and the texts of the first ones."""

    count: int = 0
    wrong: list[str] = field(default_factory=list)

    def report(self, text: str) -> None:
        self.count += 1
        if len(self.wrong) < MOST_REPORTED:
            self.wrong.append(text)

    @property
    def outcome(self) -> str:
        return "agree" if not self.count else f"disagree {self.count} times"


@dataclass
class CheckResult(Disagreements):
    """`deferred` counts deferred entries, `lost` jobs with entries in removed files."""

    entries: int = 0
    copies: int = 0
    deferred: int = 0
    jobs: int = 0
    lost: int = 0

    def summary(self) -> str:
        gone = f", {self.lost} jobs with entries in files that were removed" if self.lost else ""
        return (
            f"log and binlog {self.outcome}: {self.jobs} jobs, {self.entries} entries, of these"
            f" {self.copies} copies and {self.deferred} deferred{gone}"
        )


@dataclass(slots=True)
class JobProgress:
    """A job between its first entry and its end. `at` is the index of its last event, or -1."""

    logged: LoggedJob
    at: int = -1
    full: bool = False


class _Check:
    def __init__(self, log: JobLog, complete: bool, bodies: EntryBodies) -> None:
        self.log = log
        self.bodies = bodies
        self.complete = complete
        self.result = CheckResult(jobs=len(log.packed))
        self.ours = log.parameters.get("server") != "c"
        self.open: dict[int, JobProgress] = {}
        self.done: set[int] = set()
        for text in log.wrong:
            self.result.report(text)

    def written(self, event: JobEvent) -> bool:
        """Return whether the server has to write an entry of an event."""
        return event.kind in WRITTEN or (event.kind == "release" and (self.ours or event.delay > 0))

    def entry(self, entry: Entry) -> None:
        result = self.result
        if entry["kind"] not in ("full", "short"):
            result.report(f"{_position(entry)}: {entry['what']}")
            return
        job = entry["id"]
        if entry["state"] == "deleted" and not entry["body_bytes"] and not entry["ttr_s"]:
            return  # the entry of the highest id, without a job
        result.entries += 1
        if job in self.done:
            result.report(f"{_position(entry)}: job {job} has an entry behind its end")
            return
        progress = self.open.get(job)
        if progress is None:
            if job not in self.log.packed:
                result.report(f"{_position(entry)}: job {job} is not in the log")
                return
            progress = self.open[job] = JobProgress(self.log.job(job))
        self._match(entry, job, progress)

    def _match(self, entry: Entry, job: int, progress: JobProgress) -> None:
        full = entry["kind"] == "full"
        position = _position(entry)
        logged = progress.logged
        found = (entry["tube"] if full else logged.tube, entry["ttr_s"], entry["body_bytes"])
        if found != (logged.tube, logged.ttr, logged.size):
            self.result.report(f"{position}: job {job} has another tube, TTR or size: {found}")
        if not _is_then(entry["created_at"], logged.events[0]):
            self.result.report(f"{position}: job {job} was not put at {entry['created_at']}")
        if full:
            self._body(entry, job, logged)
        at = self._find_event(entry, progress, full)
        if at is None:
            self.result.report(
                f"{position}: job {job}: the log has no such event: {_describe(entry)}"
            )
            return
        skipped = progress.logged.events[progress.at + 1 : at]
        if self.complete or progress.at >= 0:
            for event in skipped:
                if self.written(event):
                    self.result.report(f"{position}: job {job} has no entry of its {event.kind}")
        if full and (progress.full or at > 0):
            self.result.copies += 1
        elif not self.written(progress.logged.events[at]):
            self.result.deferred += 1
        progress.at = at
        progress.full = progress.full or full
        if entry["state"] == "deleted":
            del self.open[job]
            self.done.add(job)

    def _body(self, entry: Entry, job: int, logged: LoggedJob) -> None:
        # Entries of C beanstalkd have no checksum, so only this finds a flipped bit.
        if (sha := sha_of(self.bodies.read(entry))) != logged.sha:
            text = f"job {job} has another body: its sha is {sha}, {logged.sha} in the log"
            self.result.report(f"{_position(entry)}: {text}")

    def _find_event(self, entry: Entry, progress: JobProgress, full: bool) -> int | None:
        """Return the first event that an entry can be of. A copy repeats an earlier event.

        The entry's own time, if any, is that of the event. A reserved job is copied as a ready
        one with another time.
        """
        events = progress.logged.events
        time = entry["event_at"] if not full or entry["state"] == "delayed" else None
        first = max(0, progress.at) if full else progress.at + 1
        counters = tuple(entry[name] for name in COUNTERS)
        for at in range(first, len(events)):
            event = events[at]
            result = (entry["pri"], entry["delay_s"], counters)
            alike = result == (event.pri, event.delay, event.counters)
            if alike and _same(entry, event, full) and (not time or _is_then(time, event)):
                return at
        return None

    def end(self) -> CheckResult:
        """Report what is missing."""
        for job, progress in self.open.items():
            rest = progress.logged.events[progress.at + 1 :]
            for event in rest:
                if self.written(event):
                    self.result.report(f"job {job} has no entry of its {event.kind}")
            if not progress.full:
                self.result.report(f"job {job} is there and has no full entry")
        for job in self.log.packed:
            if job in self.done or job in self.open:
                continue
            if self.complete or not self.log.ended(job):
                self.result.report(f"job {job} has no entry")
            else:
                self.result.lost += 1
        return self.result


def _same(entry: Entry, event: JobEvent, full: bool) -> bool:
    state = entry["state"]
    if state == "deleted":
        ended = "truncated" if event.kind == "truncate" else "deleted"
        return event.state == state and bool(entry["ended"] == ended)
    # Recovery and compaction turn reserved jobs into ready ones.
    alike = full and {state, event.state} == {"ready", "reserved"}
    return alike or bool(state == event.state)


def _describe(entry: Entry) -> str:
    counters = " ".join(f"{name} {entry[name]}" for name in COUNTERS)
    at = f" at {entry['event_at']}" if entry["event_at"] else ""
    return f"{entry['state']}{at}, pri {entry['pri']}, delay {entry['delay_s']}, {counters}"


def _is_then(text: str, event: JobEvent) -> bool:
    """Return whether a time of a dump, 2023-11-14T22:13:20.123456789Z, is that of an event."""
    seconds, _, rest = text.removesuffix("Z").partition(".")
    at_ns = int(datetime.fromisoformat(f"{seconds}+00:00").timestamp()) * 10**9 + int(rest)
    return event.sent_ns - SLACK_NS <= at_ns <= event.at_ns + SLACK_NS


def _position(entry: Entry) -> str:
    return f"{entry['file']}:{entry['offset']}"


def check(log: JobLog, folder: Path) -> CheckResult:
    """Raises WorkloadError if the folder cannot be read."""
    from beanstalkd_py import errors
    from beanstalkd_py.binlog.folders import inspect_folder

    try:
        found = inspect_folder(folder)
        # The oldest files are removed first.
        complete = all(min(shard.numbers(), default=0) == 1 for shard in found.shards)
        with contextlib.closing(EntryBodies(folder)) as bodies:
            checking = _Check(log, complete, bodies)
            _read(found, checking.entry)
        return checking.end()
    except (errors.BeanstalkdError, OSError) as error:
        raise WorkloadError(f"cannot read {folder}: {error}") from error


def _read(folder: Any, take: Callable[[Entry], None]) -> None:
    """Read all entries and faults as 'binlog dump --json' prints them."""
    from beanstalkd_py.binlog.dump import dump
    from beanstalkd_py.core.binlog_reader import Selection

    def sink(text: Any) -> None:
        for line in bytes(text).splitlines():
            take(json.loads(line))

    dump(folder, Selection(as_json=True), sink)


END = b"\r\n"


class EntryBodies:
    """Reads bodies of entries from the files of a folder, because a dump has only their sizes.

    Keeps one file open. Methods raise OSError.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._fd = -1

    def read(self, entry: dict[str, Any]) -> bytes:
        """Return the body of a full entry, which ends with it and CR LF."""
        if entry["file"] != self._name:
            self.close()
            self._fd = os.open(self._folder / entry["file"], os.O_RDONLY | os.O_CLOEXEC)
            self._name = entry["file"]
        size = entry["body_bytes"]
        return os.pread(self._fd, size, entry["offset"] + entry["bytes"] - len(END) - size)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._name = -1, ""
