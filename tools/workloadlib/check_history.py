"""Compares a log with a history store: each finished job is there once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import WorkloadError
from .check import COUNTERS, Disagreements
from .job_log import JobLog
from .model import sha_of

_EVENT = re.compile(r"(?:^|;)([a-z]+)@")


@dataclass
class HistoryResult(Disagreements):
    """`without_due` counts jobs without an event `due`.

    No entry states it, so the history does not know its time if compaction copies the job
    before its next event.
    """

    messages: int = 0
    without_due: int = 0

    def summary(self) -> str:
        lacking = f", {self.without_due} of them without a due" if self.without_due else ""
        return f"log and history {self.outcome}: {self.messages} messages{lacking}"


def check_history(log: JobLog, folder: Path) -> HistoryResult:
    """Raises WorkloadError if the store cannot be read."""
    from beanstalkd_py import errors
    from beanstalkd_py.history.reader import StoreReader

    result = HistoryResult()
    seen: set[int] = set()
    try:
        with StoreReader.open(folder) as store:
            for message in store.scan():
                result.messages += 1
                _message(log, message, seen, result)
    except (errors.BeanstalkdError, OSError) as error:
        raise WorkloadError(f"cannot read {folder}: {error}") from error
    for job in log.packed:
        if log.ended(job) and job not in seen:
            result.report(f"history: job {job} has ended and is not there")
    return result


def _message(log: JobLog, message: Any, seen: set[int], result: HistoryResult) -> None:
    properties: dict[str, str] = message.properties
    job = int(properties["KEYS"])
    if job in seen:
        result.report(f"history: job {job} is there twice")
        return
    seen.add(job)
    if job not in log.packed or not log.ended(job):
        result.report(f"history: job {job} has not ended in the log")
        return
    logged = log.job(job)
    last = logged.events[-1]
    expected = {
        "TUBE": logged.tube,
        "TAGS": "truncated" if last.kind == "truncate" else "deleted",
        "pri": str(last.pri),
        "delay": str(last.delay),
        "ttr": str(logged.ttr),
        **dict(zip(COUNTERS, map(str, last.counters), strict=True)),
    }
    for name, value in expected.items():
        if properties.get(name) != value:
            found = properties.get(name, "missing")
            result.report(f"history: job {job}: {name} is {found}, {value} in the log")
    # The tag has the kind of end; the last event is a delete either way.
    kinds = [*log.kinds(job)[:-1], "delete"]
    events = _EVENT.findall(properties.get("timeline", ""))
    if _lacks_dues(events, kinds):
        result.without_due += 1
    elif events != kinds:
        result.report(f"history: job {job} has {' '.join(events)}, the log {' '.join(kinds)}")
    if len(message.body) != logged.size:
        result.report(f"history: job {job} has a body of {len(message.body)} bytes")
    elif (sha := sha_of(message.body)) != logged.sha:
        text = f"job {job} has another body: its sha is {sha}, {logged.sha} in the log"
        result.report(f"history: {text}")


def _lacks_dues(events: list[str], kinds: list[str]) -> bool:
    """Return whether only events `due` are missing."""
    rest = iter(events)
    following = next(rest, None)
    lacking = False
    for kind in kinds:
        if kind == following:
            following = next(rest, None)
        elif kind == "due":
            lacking = True
        else:
            return False
    return lacking and following is None
