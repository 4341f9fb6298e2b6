"""Surveys of one server while somebody watches, encoded once for all viewers.

L1  A poll is made only while there is a viewer, and not more often than its cost permits: at
    most a hundredth of the time.
L2  An event is encoded once, whatever the number of viewers. A survey has the tubes that have
    changed; a viewer that begins, or that was too slow, gets all tubes first.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, field

import gevent
from gevent.event import Event

from beanstalkd_py import errors
from beanstalkd_py.admin.statistics import features_of, server_stats
from beanstalkd_py.admin.tube_survey import RateTracker, Survey, TubeRow, open_surveyor
from beanstalkd_py.console.target import ABILITIES, TIMEOUT_S, Target
from beanstalkd_py.control.durations import Durations

LOGGER = logging.getLogger("beanstalkd_py")
INTERVAL_S = 2.0
COST_FACTOR = 125
"""The time between two polls by the CPU time of one: a whole console takes less than 1 %."""

LONGEST_INTERVAL_S = 30.0
KEPT_EVENTS = 16
"""A viewer that is further behind begins again."""
KEEPALIVE_S = 15.0
LINGER_S = 20.0
"""How long polls go on after the last viewer has left, so that a reload of a page keeps rates."""
SAMPLES = 300
AGE_ERROR_S = 0.5

Tubes = dict[str, TubeRow]


@dataclass(slots=True)
class Samples:
    """Rates, numbers of jobs and durations of the whole server, one for each survey."""

    at: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    puts: deque[float | None] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    reserves: deque[float | None] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    deletes: deque[float | None] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    ready: deque[int] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    reserved: deque[int] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    delayed: deque[int] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    buried: deque[int] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    queue_p50: deque[float | None] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    queue_p99: deque[float | None] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    sync_p99: deque[float | None] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    def add(self, survey: Survey) -> None:
        self.at.append(survey.at)
        for name in ("puts", "reserves", "deletes"):
            getattr(self, name).append(getattr(survey.rates, name))
        for state in ("ready", "reserved", "delayed", "buried"):
            getattr(self, state).append(int(survey.server.get(f"current-jobs-{state}", "0")))
        for name in ("queue_p50", "queue_p99", "sync_p99"):
            getattr(self, name).append(getattr(survey.durations or Durations(), name))


def event(name: str, data: object) -> bytes:
    """Return a server-sent event."""
    text = json.dumps(data, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n".encode()


class Live:
    """The events of one server. `status` yields further events that a new viewer needs."""

    def __init__(self, target: Target, status: Callable[[], Iterator[bytes]]) -> None:
        self._target = target
        self._status = status
        self._events: deque[bytes] = deque(maxlen=KEPT_EVENTS)
        self._count = 0
        self._changed = Event()
        self._generation = 0
        self.viewers = 0
        self._viewed_mono = 0.0
        self._polling: gevent.Greenlet[[], None] | None = None
        self._newest: Survey | None = None
        self._full = b""
        self._tubes: Tubes = {}
        self._hello = b""
        self._trouble = b""
        self.interval_s = INTERVAL_S
        self.samples = Samples()

    def publish(self, data: bytes) -> None:
        """Send an event to all viewers."""
        self._events.append(data)
        self._count += 1
        self._changed.set()
        self._changed.clear()

    def events(self) -> Generator[bytes, None, None]:
        """Yield events for one viewer, until it leaves or `end_all`."""
        self.viewers += 1
        generation = self._generation
        if self._polling is None:
            self._polling = gevent.spawn(self._poll)
        try:
            while generation == self._generation:
                seen = self._count
                yield b"".join(self._first())
                while self._count - seen <= len(self._events):
                    if generation != self._generation:
                        return
                    if self._count == seen:
                        if not self._changed.wait(KEEPALIVE_S):
                            yield b": still here\n\n"
                        continue
                    new = self._count - seen
                    seen = self._count
                    yield b"".join(list(self._events)[-new:])
        finally:
            self.viewers -= 1
            self._viewed_mono = time.monotonic()

    def end_all(self) -> None:
        """End the events of all viewers. A viewer that may have them begins again by itself."""
        self._generation += 1
        self._changed.set()
        self._changed.clear()

    def _first(self) -> Iterator[bytes]:
        if self._hello:
            yield self._hello
        if self._newest is not None:
            self._full = self._full or _survey_event(self._newest, self._newest.tubes, [], True)
            yield self._full
        if self._trouble:
            yield self._trouble
        yield from self._status()

    def _poll(self) -> None:
        tracker = RateTracker()
        try:
            while self.viewers or time.monotonic() - self._viewed_mono < LINGER_S:
                try:
                    self._poll_connected(tracker)
                except errors.BeanstalkdError as error:
                    self._report_trouble(str(error))
                except Exception:
                    LOGGER.exception("console: cannot poll %s", self._target.name)
                    self._report_trouble("the console has a fault; its log has the details")
        finally:
            self._polling = None

    def _report_trouble(self, text: str) -> None:
        self._trouble = event("trouble", {"error": text})
        self.publish(self._trouble)
        gevent.sleep(INTERVAL_S)

    def _poll_connected(self, tracker: RateTracker) -> None:
        target = self._target
        self._greet()
        opening = open_surveyor(target.address, TIMEOUT_S, target.control, target.tls_options)
        with opening as surveyor:
            surveys = surveyor.surveys(tracker)
            while self.viewers or time.monotonic() - self._viewed_mono < LINGER_S:
                cpu_s = time.thread_time()
                self._take(next(surveys))
                spent_s = time.thread_time() - cpu_s
                wanted_s = max(INTERVAL_S, spent_s * COST_FACTOR)
                self.interval_s = min(wanted_s, LONGEST_INTERVAL_S)
                gevent.sleep(self.interval_s)

    def _greet(self) -> None:
        with self._target.connection() as connection:
            features, stats = features_of(connection), server_stats(connection)
        has_control = self._target.has_control()
        abilities = dict.fromkeys(ABILITIES, has_control)
        hello = {
            "interval_s": self.interval_s,
            "kind": "beanstalkd_py" if features else "beanstalkd",
            "version": stats.get("version", ""),
            "id": stats.get("id", ""),
            "features": {
                "list_jobs": "list-jobs" in features,
                "control": has_control,
                "history": self._target.history is not None,
                "replication": has_control,
                **abilities,
            },
        }
        self._hello = event("hello", hello)
        self._trouble = b""
        self.publish(self._hello)

    def _take(self, survey: Survey) -> None:
        old, self._tubes = self._tubes, {row.tube: row for row in survey.tubes}
        passed_s = 0.0 if self._newest is None else survey.at - self._newest.at
        changed = [row for row in survey.tubes if _differs(old.get(row.tube), row, passed_s)]
        gone = [tube for tube in old if tube not in self._tubes]
        self._newest, self._full = survey, b""
        self.samples.add(survey)
        self.publish(_survey_event(survey, changed, gone, False))


def _differs(old: TubeRow | None, new: TubeRow, passed_s: float) -> bool:
    """Return whether viewers need a row again. They let the age of its oldest job grow."""
    if old is None or old[:_AGE] != new[:_AGE] or old[_AGE + 1 :] != new[_AGE + 1 :]:
        return True
    before_s, now_s = old.oldest_ready_s, new.oldest_ready_s
    if before_s is None or now_s is None:
        return before_s is not now_s
    return abs(now_s - before_s - passed_s) > AGE_ERROR_S


_AGE = TubeRow._fields.index("oldest_ready_s")


def _survey_event(survey: Survey, tubes: list[TubeRow], gone: list[str], full: bool) -> bytes:
    data = {
        "at": survey.at,
        "full": full,
        "server": survey.server,
        "rates": survey.rates._asdict(),
        "workers": survey.workers,
        "durations": survey.durations and survey.durations._asdict(),
        "tubes": tubes,
        "gone": gone,
    }
    return event("survey", data)


def samples_of(live: Live) -> dict[str, object]:
    columns = asdict(live.samples)
    return {"interval_s": live.interval_s, **{name: list(one) for name, one in columns.items()}}
