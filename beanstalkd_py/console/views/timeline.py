"""What has happened to a job: from the history if it has ended, else from its binlog."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from beanstalkd_py.admin.statistics import Statistics
from beanstalkd_py.console.views.history import HistoryMessage
from beanstalkd_py.console.views.job_entries import COUNTERS, JobEntry
from beanstalkd_py.quantities import NS_PER_S

_EVENT = re.compile(r"([a-z]+)@(\?|[0-9]+)((?:,[^,]*)*)")


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """`at` is seconds since 1970, None if it is not known."""

    at: float | None
    event: str
    text: str = ""


def ended_timeline(message: HistoryMessage) -> Sequence[TimelineEvent]:
    """Return the events that the history has recorded."""
    return list(_events(message.properties.get("timeline", "")))


def _events(timeline: str) -> Iterator[TimelineEvent]:
    for text in timeline.split(";"):
        if text.startswith("..."):
            yield TimelineEvent(None, "omitted", f"{text[3:]} events")
        elif event := _EVENT.fullmatch(text):
            kind, at, fields = event.groups()
            seconds = None if at == "?" else int(at) / NS_PER_S
            yield TimelineEvent(seconds, kind, fields.replace(",", " ").strip())


def live_timeline(stats: Statistics, entries: Sequence[JobEntry]) -> Sequence[TimelineEvent]:
    """Return the events of a live job: those in the binlog, and how often others happened."""
    put_at = time.time() - int(stats["age"])
    events = [TimelineEvent(put_at, "put", f"pri={stats['pri']}")]
    if entries and sum(entries[0].counters) == 0:
        first = entries[0]
        delay = f" delay={first.delay_s}" if first.delay_s else ""
        events = [TimelineEvent(first.event_at or put_at, "put", f"pri={first.pri}{delay}")]
    for before, entry in pairwise(entries):
        events += _events_between(before, entry)
    for name in COUNTERS:
        recorded = sum(1 for one in events if one.event == _EVENT_OF[name])
        if (count := int(stats[name]) - recorded) > 0:
            times = "once" if count == 1 else f"{count} times"
            events.append(TimelineEvent(None, _EVENT_OF[name], f"{times}, no time recorded"))
    events.append(TimelineEvent(time.time(), stats["state"], "now"))
    return events


_EVENT_OF = dict(zip(COUNTERS, ("reserve", "timeout", "release", "bury", "kick"), strict=True))


def _events_between(before: JobEntry, entry: JobEntry) -> Iterator[TimelineEvent]:
    """Compare two entries of a job, as csrc/history/timeline.c does for ended ones."""
    grown = {
        name
        for name, old, new in zip(COUNTERS, before.counters, entry.counters, strict=True)
        if new > old
    }
    if "reserves" in grown and entry.reserved_at is not None:
        yield TimelineEvent(entry.reserved_at, "reserve")
    if entry.state == "reserved":
        if entry.reserved_at is None:
            yield TimelineEvent(entry.event_at, "reserve" if "reserves" in grown else "touch")
    elif "buries" in grown:
        yield TimelineEvent(entry.event_at, "bury", f"pri={entry.pri}")
    elif "releases" in grown:
        delay = f" delay={entry.delay_s}" if entry.state == "delayed" else ""
        yield TimelineEvent(entry.event_at, "release", f"pri={entry.pri}{delay}")
    elif "timeouts" in grown:
        yield TimelineEvent(entry.event_at, "timeout")
    elif "kicks" in grown:
        yield TimelineEvent(entry.event_at, "kick")
    # Otherwise it is a copy, as compaction writes it.
