"""An operation, its kind, its progress, and checks of its arguments."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from beanstalkd_py import errors
from beanstalkd_py.admin.statistics import FREE_STATES
from beanstalkd_py.admin.tube_name import TUBE_NAMES, is_tube_name
from beanstalkd_py.console.access.accounts import Role
from beanstalkd_py.console.target import Target

SHOWN_LENGTH = 200
"""Characters of a text, and numbers of a list, that viewers get of an argument."""
RECORDED_LENGTH = 1 << 16
"""Characters of a text that the audit log gets of an argument; the default limit of a job."""
REPORT_S = 0.25
"""Least time between two reports of the progress of an operation."""
MOST_IDS = 10_000

Arguments = Mapping[str, object]


@dataclass(slots=True)
class Operation:
    """One that was begun. Times are seconds since 1970; `total` is None if it is not known."""

    id: int
    kind: str
    target: str
    user: str
    arguments: Arguments
    begun: float
    total: int | None
    ended: float | None = None
    done: int = 0
    error: str | None = None
    text: str = ""
    can_stop: bool = False

    def shown(self) -> dict[str, object]:
        """Return the fields for viewers; long arguments are cut off."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**values, "arguments": cut_off(self.arguments)}


def cut_off(arguments: Arguments) -> Arguments:
    """Return arguments for viewers, without the ends of long texts and lists."""

    def cut(value: object) -> object:
        if isinstance(value, dict):
            return cut_off(value)
        return value[:SHOWN_LENGTH] if isinstance(value, str | list) else value

    return {name: cut(value) for name, value in arguments.items()}


def recorded(arguments: Arguments) -> Arguments:
    """Return arguments for the audit log, without the ends of long texts."""
    return {
        name: value[:RECORDED_LENGTH] if isinstance(value, str) else value
        for name, value in arguments.items()
    }


@dataclass(frozen=True, slots=True)
class Plan:
    """What a dry run returns: how many jobs, tubes or settings change, and a sentence.

    `count` is None if to count them would take too long; the sentence then has a lower bound.
    """

    count: int | None
    text: str


@dataclass(slots=True)
class Progress:
    """What a running operation reports, and whether a user has stopped it."""

    operation: Operation
    changed: Callable[[Operation], None]
    is_stopped: bool = False
    _reported_mono: float = 0.0

    def add(self, count: int) -> None:
        self.operation.done += count
        now_mono = time.monotonic()
        if now_mono - self._reported_mono >= REPORT_S:
            self._reported_mono = now_mono
            self.changed(self.operation)

    @contextlib.contextmanager
    def counting(self, count: Callable[[], int]) -> Iterator[None]:
        """Add the difference of `count` between the end and the begin, also after an error."""
        before = count()
        try:
            yield
        finally:
            self.add(count() - before)


Planner = Callable[[Target, Arguments], Plan]
Runner = Callable[[Target, Arguments, Progress], str]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of operation: who may do it, its arguments, what it would change, how it does it."""

    role: Role
    arguments: frozenset[str]
    plan: Planner
    run: Runner
    can_stop: bool = False


def tube_of(arguments: Arguments, name: str = "tube") -> str:
    tube = arguments.get(name)
    if not isinstance(tube, str) or not is_tube_name(tube):
        raise errors.ToolUsageError(f"{name} is {tube!r}; a tube's name has {TUBE_NAMES}")
    return tube


def number_of(arguments: Arguments, name: str, least: int, most: int, default: int | None) -> int:
    value = arguments.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise errors.ToolUsageError(f"{name} is {value!r}; give a number from {least} to {most}")
    return value


def ids_of(arguments: Arguments) -> list[int]:
    ids = arguments.get("ids")
    if not isinstance(ids, Sequence) or isinstance(ids, str) or not 0 < len(ids) <= MOST_IDS:
        raise errors.ToolUsageError(f"ids: give 1 to {MOST_IDS} ids of jobs")
    if not all(type(one) is int and 0 < one < 2**64 for one in ids):
        raise errors.ToolUsageError("ids: an id is a positive number")
    return list(dict.fromkeys(ids))


def rate_of(arguments: Arguments) -> float | None:
    rate = arguments.get("rate")
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1e6:
        raise errors.ToolUsageError(f"rate is {rate!r}; give jobs per second, or null")
    return float(rate)


def states_of(arguments: Arguments) -> list[str]:
    states = arguments.get("states", list(FREE_STATES))
    if not isinstance(states, list) or not states or any(one not in FREE_STATES for one in states):
        raise errors.ToolUsageError(f"states: give some of {', '.join(FREE_STATES)}")
    return list(dict.fromkeys(states))
