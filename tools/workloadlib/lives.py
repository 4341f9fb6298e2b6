"""The log read back: what has happened to each job, in few bytes."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .log import BEGIN, END, FORMAT, read_log
from .world import SHA_DIGITS

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
"""Tube, TTR, bytes of the body and the beginning of its SHA-256, before the events."""
_EACH = 3
"""What an event was, and between which times, wall nanoseconds."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A job after an event: what an entry of that moment says. `delay` is seconds.

    It happened between `sent_ns` and `at_ns`, wall.
    """

    kind: str
    state: str
    pri: int
    delay: int
    counters: tuple[int, ...]
    sent_ns: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Life:
    """All of one job."""

    tube: str
    ttr: int
    size: int
    sha: str
    moments: list[Moment]

    @property
    def ended(self) -> bool:
        """Whether it was deleted or truncated."""
        return self.moments[-1].kind in ENDS


@dataclass
class Lives:
    """`parameters` and `totals` are the first line and the last; `wrong` is of the log itself."""

    parameters: dict[str, Any] = field(default_factory=dict)
    totals: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    packed: dict[int, array[int]] = field(default_factory=dict)
    tubes: list[str] = field(default_factory=list)

    def life(self, job: int) -> Life:
        """Of a job that is in the log."""
        packed = self.packed[job]
        moments = list(_moments(packed))
        sha = f"{packed[3]:0{SHA_DIGITS}x}"
        return Life(self.tubes[packed[0]], packed[1], packed[2], sha, moments)

    def kinds(self, job: int) -> list[str]:
        """Its events."""
        return [KINDS[code & 15] for code in self.packed[job][_HEAD::_EACH]]

    def ended(self, job: int) -> bool:
        """Whether its last event is an end."""
        return KINDS[self.packed[job][-_EACH] & 15] in ENDS


def _moments(packed: array[int]) -> Iterator[Moment]:
    counters = [0] * 5
    for at in range(_HEAD, len(packed), _EACH):
        code, sent_ns, at_ns = packed[at : at + _EACH]
        kind = KINDS[code & 15]
        pri, delay = code >> _PRI_AT & _PRI_BITS, code >> _DELAY_AT
        if kind in _COUNTS:
            counters[_COUNTS[kind]] += 1
        state = _AFTER.get(kind) or ("delayed" if delay else "ready")
        yield Moment(kind, state, pri, delay, tuple(counters), sent_ns, at_ns)


def read_lives(path: Path) -> Lives:
    """The whole log. Raises WorkloadError if a line is none; what is missing is in `wrong`."""
    lives = Lives()
    tubes: dict[str, int] = {}
    counted: Counter[str] = Counter()
    events = 0
    for fields in read_log(path):
        kind = fields["event"]
        if kind == BEGIN:
            lives.parameters = fields
        elif kind == END:
            lives.totals = fields
        elif kind not in _NUMBERS:
            lives.wrong.append(f"log: an event {kind!r} is not known")
        else:
            events += 1
            counted[kind] += 1
            if fields["seq"] != events:
                lives.wrong.append(f"log: seq {fields['seq']} stands where {events} belongs")
                events = fields["seq"]
            _add(lives, tubes, fields, kind)
    lives.tubes = list(tubes)
    _judge(lives, counted)
    return lives


def _add(lives: Lives, tubes: dict[str, int], fields: dict[str, Any], kind: str) -> None:
    job = fields["id"]
    packed = lives.packed.get(job)
    if packed is None:
        if kind != "put":
            lives.wrong.append(f"log: job {job} has a {kind} before its put")
            return
        tube = tubes.setdefault(fields["tube"], len(tubes))
        head = (tube, fields["ttr"], fields["body_bytes"], int(fields["body_sha"], 16))
        packed = lives.packed[job] = array("Q", head)
    elif kind == "put" or lives.ended(job):
        lives.wrong.append(f"log: job {job} has a {kind} behind its {lives.kinds(job)[-1]}")
        return
    code = _NUMBERS[kind] | fields["pri"] << _PRI_AT | fields["delay"] << _DELAY_AT
    packed.extend((code, fields["sent_ns"], fields["at_ns"]))


def _judge(lives: Lives, counted: Counter[str]) -> None:
    if lives.parameters.get("format") != FORMAT:
        lives.wrong.append(f"log: its first line is not that of format {FORMAT}")
    if not lives.totals:
        lives.wrong.append("log: its last line is missing: the run did not come to its end")
        return
    if lives.totals["by_event"] != dict(counted):
        lives.wrong.append("log: the totals of its last line are not those of its lines")
    lives.wrong += [f"server: {text}" for text in lives.totals["wrong"]]
