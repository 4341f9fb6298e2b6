"""The operation `replay`: put finished jobs of the history into a tube again.

Its state file is that of `history replay`, so that an operation with the same tube, times and
target continues one that was stopped, or that ended with the console. After one that was complete,
it begins again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import gevent

from beanstalkd_py import errors
from beanstalkd_py.console.operations.operation import Arguments, Plan, Progress, rate_of, tube_of
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.views.history import open_store
from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.queries.lookup import ALWAYS
from beanstalkd_py.history.queries.ranges import RangeItem
from beanstalkd_py.history.reader import StoreReader
from beanstalkd_py.history.topics import escape
from beanstalkd_py.plural import counted
from beanstalkd_py.quantities import NS_PER_S
from beanstalkd_py.replay.jobs import JobOverrides
from beanstalkd_py.replay.preview import preview_replay
from beanstalkd_py.replay.put import Replayer
from beanstalkd_py.replay.resume import (
    count_messages,
    ignore_fault,
    is_store_replaced,
    messages_of,
    new_replay,
    skip_expired,
    state_path,
)
from beanstalkd_py.replay.state import Replay, ReplayState, StateFile, load

PREVIEWED = 100_000
"""A dry run of more messages only counts them, because it would take seconds."""
TURN_MESSAGES = 100
"""Messages after which other requests have their turn."""
MS_PER_S = 1000
MOST_S = 1e11
OVERRIDES = JobOverrides()

Recorded = tuple[Replay, ReplayState]


@dataclass(frozen=True, slots=True)
class _Run:
    """What to put: a recorded replay with its progress, or a new one. `path` is its state file."""

    replay: Replay
    state: ReplayState
    path: Path
    is_new: bool

    @classmethod
    def of(cls, wanted: Replay, path: Path, recorded: Recorded | None) -> _Run:
        if recorded is None or recorded[1].is_finished or is_store_replaced(recorded[0], wanted):
            return cls(wanted, ReplayState(), path, True)
        return cls(*recorded, path, False)


def _seconds(arguments: Arguments, name: str) -> float | None:
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST_S:
        raise errors.ToolUsageError(f"{name} is {value!r}; give seconds since 1970, or null")
    return float(value)


def _wanted(store: StoreReader, arguments: Arguments) -> Replay:
    """Return the replay of these arguments. Raises ToolUsageError, RefusedError."""
    tube, to_tube = arguments.get("tube"), arguments.get("to_tube")
    since, until = _seconds(arguments, "from"), _seconds(arguments, "to")
    if not isinstance(tube, str) or not tube:
        raise errors.ToolUsageError("tube: give a text")
    into = tube_of(arguments, "tube" if to_tube is None else "to_tube")
    begin = 0 if since is None else math.ceil(since * MS_PER_S)
    end = ALWAYS if until is None else math.ceil(until * MS_PER_S) - 1
    if begin > end:
        raise errors.ToolUsageError("from is not before to")
    topics = store.topics()
    topic = next((one for one in (escape(tube), tube) if one in topics), None)
    if topic is None:
        raise errors.RefusedError("NOT_FOUND", f"the history has no job of tube {tube}")
    times = {"since": _text(since), "until": _text(until)}
    return new_replay(store, topic, into, begin=begin, end=end, **times)


def _text(seconds: float | None) -> str:
    return "" if seconds is None else str(int(seconds * NS_PER_S))


def _with_turns(items: Iterable[RangeItem]) -> Iterator[RangeItem]:
    for number, item in enumerate(items):
        if number % TURN_MESSAGES == 0:
            gevent.sleep(0)
        yield item


def _all(_message: Stored) -> bool:
    return True


def plan_replay(target: Target, arguments: Arguments) -> Plan:
    rate = rate_of(arguments)
    with open_store(target) as store:
        wanted = _wanted(store, arguments)
        path = state_path(wanted, target.name)
        run = _Run.of(wanted, path, load(path))
        count = count_messages(store, run.replay, run.state.offset)
        text = f"up to {counted(count, 'job')}"
        if count <= PREVIEWED:
            items = _with_turns(messages_of(store, run.replay, run.state.offset, ignore_fault))
            preview = preview_replay(items, _all, OVERRIDES, run.state.done_beyond)
            count = preview.jobs
            text = f"{counted(count, 'job')} of {counted(preview.bytes, 'byte')}"
            if missing := preview.left_out + preview.lost:
                text += f", without {counted(missing, 'job')} that cannot be put"
    begun = "" if run.is_new else f"Continue after {counted(run.state.put, 'job')}: "
    speed = f" at {rate:g} per second" if rate else ""
    return Plan(count, f"{begun}Put {text} of {arguments['tube']} into {wanted.into}{speed}")


def run_replay(target: Target, arguments: Arguments, progress: Progress) -> str:
    with open_store(target) as store, target.connection() as connection:
        wanted = _wanted(store, arguments)
        path = state_path(wanted, target.name)
        with StateFile.locked(path) as file:
            run = _Run.of(wanted, path, file.load())
            if run.is_new:
                total = count_messages(store, wanted, 0)
                run = replace(run, replay=replace(wanted, total=total))
                file.begin(run.replay)
            else:
                skip_expired(store, run.replay, run.state)
            state, before = run.state, run.state.put

            def advance(now: ReplayState) -> None:
                progress.add(now.put - before - progress.operation.done)
                gevent.sleep(0)

            replayer = Replayer(
                connection,
                run.replay.into,
                _all,
                OVERRIDES,
                rate_of(arguments),
                state,
                save=file.save,
                skipped=lambda message, reason: None,
                advance=advance,
                stopped=lambda: progress.is_stopped,
            )
            items = _with_turns(messages_of(store, run.replay, state.offset, ignore_fault))
            try:
                if replayer.run(items):
                    state.finished_at = round(time.time(), 3)
                    file.save(state)
            finally:
                file.sync()
    text = f"Put {counted(state.put - before, 'job')} of {arguments['tube']} into {wanted.into}"
    return f"{text}; {counted(state.missing, 'job')} cannot be put" if state.missing else text
