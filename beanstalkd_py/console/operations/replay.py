"""The operations `replay` and `undelete`: put finished jobs of the history into a tube again.

The state file of a replay is that of `history replay`, so that an operation with the same tube,
times, filters and target continues one that was stopped, or that ended with the console. After one
that was complete, it begins again.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import gevent

from beanstalkd_py import errors
from beanstalkd_py.admin import jobs as job_commands
from beanstalkd_py.admin.job_record import Job
from beanstalkd_py.console.operations.operation import (
    Arguments,
    Plan,
    Progress,
    number_of,
    rate_of,
    tube_of,
)
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.views.history import MOST_MESSAGES, open_store
from beanstalkd_py.history.queries.conditions import all_conditions
from beanstalkd_py.history.queries.lookup import ALWAYS
from beanstalkd_py.history.queries.ranges import RangeItem
from beanstalkd_py.history.reader import StoreReader
from beanstalkd_py.history.topics import escape
from beanstalkd_py.plural import counted
from beanstalkd_py.quantities import NS_PER_S, UINT32_MAX
from beanstalkd_py.replay.jobs import JobOverrides, job_of, missing_body_size
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
UNCHANGED = JobOverrides()

FILTERS = {"event": "tag=", "key": "key=", "body": "body~"}
"""The conditions of `history replay --filter` for the arguments of a replay."""
AND = " & "
"""Between the conditions of the argument `where`."""
LONGEST_WHERE = 1000
PATTERN = re.compile(r"[^\s=!<>~]+!?~")
"""Of a condition with a regular expression, which could keep the console busy for ever."""

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
    since, until = _seconds(arguments, "from"), _seconds(arguments, "to")
    tube, into = _text(arguments, "tube"), _into(arguments)
    filters = _filters(arguments)
    begin = 0 if since is None else math.ceil(since * MS_PER_S)
    end = ALWAYS if until is None else math.ceil(until * MS_PER_S) - 1
    if begin > end:
        raise errors.ToolUsageError("from is not before to")
    times = {"since": _time_text(since), "until": _time_text(until)}
    topic = _topic(store, tube)
    return new_replay(store, topic, into, begin=begin, end=end, filters=filters, **times)


def _filters(arguments: Arguments) -> list[str]:
    """Return conditions of `history replay --filter`. Raises ToolUsageError."""
    texts = {
        name: _text(arguments, name)
        for name in (*FILTERS, "where")
        if arguments.get(name) not in (None, "")
    }
    where = texts.pop("where", "")
    if len(where) > LONGEST_WHERE:
        raise errors.ToolUsageError(f"where has more than {LONGEST_WHERE} characters")
    conditions = [one.strip() for one in where.split(AND) if one.strip()]
    if any(PATTERN.match(one) for one in conditions):
        raise errors.ToolUsageError(
            "where: only the command beanstalkd-py history replay takes regular expressions;"
            " search the bodies of the history's page for a text"
        )
    if "body" in texts:
        texts["body"] = re.escape(texts["body"])
    filters = [FILTERS[name] + text for name, text in texts.items()]
    filters += conditions
    try:
        all_conditions(filters)
    except ValueError as error:
        raise errors.ToolUsageError(f"where: {error}") from error
    return filters


def _overrides(arguments: Arguments) -> JobOverrides:
    """Return the values that replace those of the jobs. Raises ToolUsageError."""

    def given(name: str, least: int) -> int | None:
        if arguments.get(name) is None:
            return None
        return number_of(arguments, name, least, UINT32_MAX, None)

    return JobOverrides(pri=given("pri", 0), delay_s=given("delay", 0), ttr_s=given("ttr", 1))


def _text(arguments: Arguments, name: str) -> str:
    text = arguments.get(name)
    if not isinstance(text, str) or not text:
        raise errors.ToolUsageError(f"{name}: give a text")
    return text


def _into(arguments: Arguments) -> str:
    return tube_of(arguments, "tube" if arguments.get("to_tube") is None else "to_tube")


def _topic(store: StoreReader, tube: str) -> str:
    topics = store.topics()
    topic = next((one for one in (escape(tube), tube) if one in topics), None)
    if topic is None:
        raise errors.RefusedError("NOT_FOUND", f"the history has no job of tube {tube}")
    return topic


def _time_text(seconds: float | None) -> str:
    return "" if seconds is None else str(int(seconds * NS_PER_S))


def _with_turns(items: Iterable[RangeItem]) -> Iterator[RangeItem]:
    for number, item in enumerate(items):
        if number % TURN_MESSAGES == 0:
            gevent.sleep(0)
        yield item


def plan_replay(target: Target, arguments: Arguments) -> Plan:
    rate, overrides = rate_of(arguments), _overrides(arguments)
    with open_store(target) as store:
        wanted = _wanted(store, arguments)
        path = state_path(wanted, target.name)
        run = _Run.of(wanted, path, load(path))
        count = count_messages(store, run.replay, run.state.offset)
        text = f"up to {counted(count, 'job')}"
        if count <= PREVIEWED:
            items = _with_turns(messages_of(store, run.replay, run.state.offset, ignore_fault))
            matches = all_conditions(run.replay.filters)
            preview = preview_replay(items, matches, overrides, run.state.done_beyond)
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
                all_conditions(run.replay.filters),
                _overrides(arguments),
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


# --- one job -------------------------------------------------------------------------------------


def _ended_job(store: StoreReader, arguments: Arguments) -> Job:
    """Return the job of a message. Raises ToolUsageError, RefusedError."""
    tube, key, offset = _text(arguments, "tube"), _text(arguments, "key"), arguments.get("offset")
    # A message of another program may have several keys.
    word = next(iter(key.split()), key)
    found = store.query(_topic(store, tube), word, limit=MOST_MESSAGES)
    message = next((one for one in found if one.offset == offset), None)
    if message is None:
        raise errors.RefusedError("NOT_FOUND", f"the history has no job {key} at {offset!r}")
    if missing_body_size(message) is not None:
        raise errors.RefusedError("NOT_FOUND", f"the history has no body of job {key}")
    return job_of(message, _into(arguments), UNCHANGED)


def plan_undelete(target: Target, arguments: Arguments) -> Plan:
    with open_store(target) as store:
        job = _ended_job(store, arguments)
    size = counted(len(job.body), "byte")
    return Plan(1, f"Put job {arguments['key']} of {size} into {job.tube}, as a new job")


def run_undelete(target: Target, arguments: Arguments, progress: Progress) -> str:
    with open_store(target) as store, target.connection() as connection:
        job = _ended_job(store, arguments)
        number = job_commands.put(
            *(connection, job.tube, job.body),
            pri=job.pri,
            delay_s=job.delay_s,
            ttr_s=job.ttr_s,
        )
    progress.add(1)
    return f"Put job {arguments['key']} into {job.tube}, as job {number}"
