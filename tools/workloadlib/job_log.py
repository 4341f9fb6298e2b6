"""Reads a log: the events of each job, packed into few bytes."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .event_log import BEGIN, END, FORMAT, read_log
from .model import SHA_DIGITS

KINDS = (
    *("put", "reserve", "touch", "release", "timeout"),
    *("return", "due", "bury", "kick", "delete", "truncate"),
)
ENDS = frozenset({"delete", "truncate"})
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
_AFTER = {
    "reserve": "reserved",
    "touch": "reserved",
    "timeout": "ready",
    "return": "ready",
    "due": "ready",
    "bury": "buried",
    "kick": "ready",
    "delete": "deleted",
    "truncate": "deleted",
}
_COUNTS = {"reserve": 0, "timeout": 1, "release": 2, "bury": 3, "kick": 4}
_PRI_BITS, _PRI_AT, _DELAY_AT = 0xFFFFFFFF, 4, 36
_HEAD = 4
"""Numbers before the events: tube, TTR, size of the body, start of its SHA-256."""
_EACH = 3
"""Numbers of an event: its kind and its times."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """The state of a job after an event between `sent_ns` and `at_ns`. `delay` is seconds."""

    kind: str
    state: str
    pri: int
    delay: int
    counters: tuple[int, ...]
    sent_ns: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class LoggedJob:
    tube: str
    ttr: int
    size: int
    sha: str
    events: list[JobEvent]

    @property
    def ended(self) -> bool:
        return self.events[-1].kind in ENDS


@dataclass
class JobLog:
    """`parameters` and `totals` are the first and last line; `wrong` has faults of the log."""

    parameters: dict[str, Any] = field(default_factory=dict)
    totals: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    packed: dict[int, array[int]] = field(default_factory=dict)
    tubes: list[str] = field(default_factory=list)

    def job(self, job: int) -> LoggedJob:
        packed = self.packed[job]
        events = list(_events_of(packed))
        sha = f"{packed[3]:0{SHA_DIGITS}x}"
        return LoggedJob(self.tubes[packed[0]], packed[1], packed[2], sha, events)

    def kinds(self, job: int) -> list[str]:
        return [KINDS[code & 15] for code in self.packed[job][_HEAD::_EACH]]

    def ended(self, job: int) -> bool:
        return KINDS[self.packed[job][-_EACH] & 15] in ENDS


def _events_of(packed: array[int]) -> Iterator[JobEvent]:
    counters = [0] * 5
    for at in range(_HEAD, len(packed), _EACH):
        code, sent_ns, at_ns = packed[at : at + _EACH]
        kind = KINDS[code & 15]
        pri, delay = code >> _PRI_AT & _PRI_BITS, code >> _DELAY_AT
        if kind in _COUNTS:
            counters[_COUNTS[kind]] += 1
        state = _AFTER.get(kind) or ("delayed" if delay else "ready")
        yield JobEvent(kind, state, pri, delay, tuple(counters), sent_ns, at_ns)


def read_job_log(path: Path) -> JobLog:
    """Read a log. Raises WorkloadError for an invalid line; gaps are in `wrong`."""
    log = JobLog()
    tubes: dict[str, int] = {}
    counted: Counter[str] = Counter()
    events = 0
    for fields in read_log(path):
        kind = fields["event"]
        if kind == BEGIN:
            log.parameters = fields
        elif kind == END:
            log.totals = fields
        elif kind not in _NUMBERS:
            log.wrong.append(f"log: an event {kind!r} is not known")
        else:
            events += 1
            counted[kind] += 1
            if fields["seq"] != events:
                log.wrong.append(f"log: seq {fields['seq']} stands where {events} belongs")
                events = fields["seq"]
            _add(log, tubes, fields, kind)
    log.tubes = list(tubes)
    _judge(log, counted)
    return log


def _add(log: JobLog, tubes: dict[str, int], fields: dict[str, Any], kind: str) -> None:
    job = fields["id"]
    packed = log.packed.get(job)
    if packed is None:
        if kind != "put":
            log.wrong.append(f"log: job {job} has a {kind} before its put")
            return
        tube = tubes.setdefault(fields["tube"], len(tubes))
        head = (tube, fields["ttr"], fields["body_bytes"], int(fields["body_sha"], 16))
        packed = log.packed[job] = array("Q", head)
    elif kind == "put" or log.ended(job):
        log.wrong.append(f"log: job {job} has a {kind} behind its {log.kinds(job)[-1]}")
        return
    code = _NUMBERS[kind] | fields["pri"] << _PRI_AT | fields["delay"] << _DELAY_AT
    packed.extend((code, fields["sent_ns"], fields["at_ns"]))


def _judge(log: JobLog, counted: Counter[str]) -> None:
    if log.parameters.get("format") != FORMAT:
        log.wrong.append(f"log: its first line is not that of format {FORMAT}")
    if not log.totals:
        log.wrong.append("log: its last line is missing: the run did not come to its end")
        return
    if log.totals["by_event"] != dict(counted):
        log.wrong.append("log: the totals of its last line are not those of its lines")
    log.wrong += [f"server: {text}" for text in log.totals["wrong"]]
