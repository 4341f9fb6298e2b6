"""What has happened to a job: from the history if it has ended, else from its statistics."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from beanstalkd_py.admin.statistics import Statistics
from beanstalkd_py.console.views.history import HistoryMessage

NS_PER_S = 10**9
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


_COUNTED = ("reserves", "timeouts", "releases", "buries", "kicks")


def live_timeline(stats: Statistics) -> Sequence[TimelineEvent]:
    """Return the put of a job, and how often other events happened: their times are not known."""
    events = [TimelineEvent(time.time() - int(stats["age"]), "put", f"pri {stats['pri']}")]
    for name in _COUNTED:
        if (count := int(stats[name])) > 0:
            events.append(TimelineEvent(None, name, f"{count} times" if count > 1 else "once"))
    events.append(TimelineEvent(time.time(), stats["state"], "now"))
    return events
