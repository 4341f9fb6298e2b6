"""The states of jobs by the log of a workload, to compare timelines with.

The log has when a command was sent and when its reply came. The event happened between, so at each
time a job had one of a few states. Times are microseconds since 1970, durations microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from pipeline.jobs.plain_timelines import nanoseconds
from pipeline.workloads import Event

MICROSECOND = 1000
ROUND_NS = 5_000_000
"""How much earlier than its command an event may be.

A worker reads its clock once for a round of commands. A command that arrives during a round, which
lasts milliseconds if the system preempts the worker, has the time of its begin.
"""
EVER = 2**62
ENDS = ("delete", "truncate")
KNOWN = ("ready", "reserved", "delayed", "buried")
EITHER = frozenset({"ready", "reserved"})

Timeline = dict[str, Any]


def micros(time: datetime) -> int:
    return nanoseconds(time.astimezone(UTC) if time.tzinfo else time) // MICROSECOND


def state_after(event: Event) -> str:
    if event.kind in ("put", "release") and event.delay:
        return "delayed"
    after = {"reserve": "reserved", "touch": "reserved", "bury": "buried"}
    return "deleted" if event.kind in ENDS else after.get(event.kind, "ready")


def claimed_states(state: str) -> frozenset[str] | None:
    """Return the states that a timeline allows; None for any."""
    if state == "unknown":
        return None
    return EITHER if state == "ready_or_reserved" else frozenset({state})


@dataclass(frozen=True)
class Moment:
    """An event between two times, and the state after it."""

    kind: str
    earliest: int
    latest: int
    state: str

    @classmethod
    def of(cls, event: Event) -> Moment:
        # A timeline drops fractions of a microsecond.
        earliest = (event.sent_ns - ROUND_NS) // MICROSECOND - 1
        return cls(event.kind, earliest, event.at_ns // MICROSECOND + 1, state_after(event))


class Truth:
    """The events of a job. Claims about `until` and later are not compared.

    `lacks` are the kinds of events without an entry. A job that was reserved by its id while buried
    or delayed has no entry then, so claims after it are compared only with a later entry.
    """

    def __init__(
        self, events: list[Event], until: int = EVER, lacks: frozenset[str] = frozenset()
    ) -> None:
        self.moments = [Moment.of(event) for event in events]
        self.until = min(until, self._first_hidden(events, lacks))
        self.is_hidden = self.until < until

    def _first_hidden(self, events: list[Event], lacks: frozenset[str]) -> int:
        hidden = EVER
        for index, event in enumerate(events):
            before = self.moments[index - 1].state if index else ""
            if event.kind in lacks and before in ("buried", "delayed"):
                hidden = min(hidden, self.moments[index].earliest)
            elif event.kind not in lacks or self.moments[index].state == "delayed":
                hidden = EVER
        return hidden

    def possible(self, time: int) -> set[str]:
        found = {"absent"}
        for moment in self.moments:
            if moment.latest <= time:
                found = {moment.state}
            elif moment.earliest <= time:
                found.add(moment.state)
        return found

    def spent(self, states: frozenset[str], until: int) -> tuple[int, int]:
        """Return the bounds of the time in these states."""
        least = most = 0
        last = Moment("", until, until, "")
        for moment, following in pairwise([*self.moments, last]):
            if moment.state in states:
                least += max(0, min(following.earliest, until) - moment.latest)
                most += max(0, min(following.latest, until) - moment.earliest)
        return least, most

    def first(self, *kinds: str) -> Moment | None:
        return next((moment for moment in self.moments if moment.kind in kinds), None)

    # --- violations ----------------------------------------------------------------------------

    def violations(self, timeline: Timeline) -> Iterator[str]:
        yield from self._of_states(timeline)
        yield from self._of_durations(timeline)
        yield from self._of_times(timeline, "wait", "first_reserve_at", ("reserve",))
        yield from self._of_times(timeline, "finish", "end_at", ENDS)
        put = self.moments[0]
        if not put.earliest <= micros(timeline["put_at"]) <= put.latest:
            yield f"put at {timeline['put_at']}"

    def _of_states(self, timeline: Timeline) -> Iterator[str]:
        spans = [(micros(span["at"]), span["state"]) for span in timeline["states"]]
        ends = [*(at for at, _ in spans[1:]), EVER]
        bounds = [time for moment in self.moments for time in (moment.earliest, moment.latest)]
        for (begin, state), end in zip(spans, ends, strict=True):
            claimed = claimed_states(state)
            times = {begin, end - 1, *bounds}
            for time in sorted(time for time in times if begin <= time < min(end, self.until)):
                if claimed is not None and not claimed & self.possible(time):
                    yield f"{state} at {time}, but {self.possible(time)}"
        last = claimed_states(timeline["state"])
        time = min(self.until, self.moments[-1].latest)
        is_known = last is not None and spans[-1][0] <= time and spans[-1][1] != "unknown"
        if is_known and not last & self.possible(time):
            yield f"{timeline['state']} in the end, but {self.possible(time)}"

    def _of_durations(self, timeline: Timeline) -> Iterator[str]:
        until = micros(timeline["last_at"])
        if until > self.until:
            return
        groups = {**{state: frozenset({state}) for state in KNOWN}, "ready_or_reserved": EITHER}
        slack = 2 * len(timeline["events"])
        for name, states in groups.items():
            claimed = timeline[f"{name}_s"]
            least, most = self.spent(states, until)
            if claimed is not None and not least - slack <= claimed * 1e6 <= most + slack:
                yield f"{name} for {claimed}, not {least} to {most}"

    def _of_times(
        self, timeline: Timeline, name: str, at: str, kinds: tuple[str, ...]
    ) -> Iterator[str]:
        exact, least, most = (timeline[f"{name}{part}_s"] for part in ("", "_min", "_max"))
        event, put = self.first(*kinds), self.moments[0]
        if event is None:
            if (exact, least, most, timeline[at]) != (None,) * 4:
                yield f"{name} {exact} without an event"
            return
        low, high = event.earliest - put.latest, event.latest - put.earliest
        if exact is not None and not low <= exact * 1e6 <= high:
            yield f"{name} of {exact}, not {low} to {high}"
        if least is not None and least * 1e6 > high:
            yield f"{name} of at least {least}, but at most {high}"
        if most is not None and most * 1e6 < low:
            yield f"{name} of at most {most}, but at least {low}"
        time = timeline[at]
        if time is not None and not event.earliest <= micros(time) <= event.latest:
            yield f"{at} is {time}"
