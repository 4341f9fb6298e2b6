"""Run `history replay`: start or continue, and report the result."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from beanstalkd_py import errors
from beanstalkd_py.cli.history.message_format import one_line, time_text
from beanstalkd_py.cli.history.replay_request import (
    ReplayRequest,
    check_not_empty,
    check_same_replay,
    message_range,
    range_text,
)
from beanstalkd_py.cli.history.store_options import DAMAGED, translate_errors
from beanstalkd_py.cli.interrupts import pending_interrupts
from beanstalkd_py.cli.output import counted, notice, write_json, write_line
from beanstalkd_py.cli.progress import Progress

if TYPE_CHECKING:
    from beanstalkd_py.admin.connection import Connection
    from beanstalkd_py.history.message import Stored
    from beanstalkd_py.history.queries.ranges import MessageRange, RangeItem
    from beanstalkd_py.history.reader import StoreReader
    from beanstalkd_py.replay.state import Replay, ReplayState, StateFile

MAX_SKIPPED_LINES = 20
PROGRESS_INTERVAL_S = 3.0


def run_replay(request: ReplayRequest, store: StoreReader, replay: Replay, path: Path) -> int:
    """Run the replay, or the rest of it, and return the exit status.

    Raises ToolUsageError, NoConnectionError, RefusedError, and KeyboardInterrupt if interrupted.
    """
    from beanstalkd_py.replay.state import ReplayState, StateFile, load

    def is_done(before: tuple[Replay, ReplayState]) -> bool:
        check_same_replay(path, before[0], replay)
        return before[1].is_finished

    before = None if request.restart else load(path)
    if before is None:
        check_not_empty(request, message_range(request, store, replay, 0, quiet=True))
    elif is_done(before):
        return report_finished(request, *before, path)
    state = ReplayState() if before is None else before[1]
    try:
        with request.server.connect() as connection, StateFile.locked(path) as file:
            # Another process may have changed the file before this one locked it.
            before = None if request.restart else file.load()
            if before is None:
                begun, state = _begin(request, store, file, replay)
            elif is_done(before):
                return report_finished(request, *before, path)
            else:
                begun, state = before
                _continue(request, store, begun, state)
            return _run(request, store, connection, file, begun, state)
    except (errors.RefusedError, errors.NoConnectionError) as error:
        if state.looked_at or state.put:
            rest = f"; put {counted(state.put)}, run the same command again to continue"
            error.args = (f"{error}{rest}",)
        raise


def _begin(
    request: ReplayRequest, store: StoreReader, file: StateFile, replay: Replay
) -> tuple[Replay, ReplayState]:
    from beanstalkd_py.replay.state import ReplayState

    total = message_range(request, store, replay, 0, quiet=True).count()
    begun = replace(replay, total=total)
    oldest = store.log.store_timestamp(store.log.begin) if store.log.begin else None
    if oldest is not None and 0 < begun.begin < oldest:
        notice(f"the store starts at {time_text(oldest)}; older jobs have expired")
    file.begin(begun)
    return begun, ReplayState()


def _continue(
    request: ReplayRequest, store: StoreReader, begun: Replay, state: ReplayState
) -> None:
    notice(f"continuing the replay of {_time(begun.begun_at)}; {counted(state.put)} put so far")
    if store.log.begin <= max(begun.log_begin, state.offset):
        return
    # Count messages that have expired from the store since.
    left = message_range(request, store, begun, state.offset, quiet=True).count()
    gone = max(begun.total - state.looked_at - left, 0)
    state.expired += gone
    state.looked_at += gone
    state.offset = store.log.begin


def _read(request: ReplayRequest, messages: MessageRange) -> Iterator[RangeItem]:
    # Read errors must not be reported as errors of the connection.
    with translate_errors(request.options.folder):
        yield from messages


def _run(
    request: ReplayRequest,
    store: StoreReader,
    connection: Connection,
    file: StateFile,
    begun: Replay,
    state: ReplayState,
) -> int:
    from beanstalkd_py.replay.put import ReplayCallbacks, Replayer, ReplaySettings

    put_before, started_mono = state.put, time.monotonic()
    messages = _read(request, message_range(request, store, begun, state.offset))
    label = f"{request.tube} into {begun.into}"
    with (
        pending_interrupts((signal.SIGINT, signal.SIGTERM)) as stopped,
        Progress(label, PROGRESS_INTERVAL_S, begun.total) as progress,
    ):

        def advance(state: ReplayState) -> None:
            detail = f"{counted(state.put)} put, {state.looked_at} of {begun.total} messages read"
            progress.update(state.looked_at, begun.total, detail)

        callbacks = ReplayCallbacks(file.save, _SkippedLog().add, advance, stopped)
        matches = request.matches()
        settings = ReplaySettings(begun.into, matches, request.overrides, request.rate)
        try:
            is_complete = Replayer(connection, settings, state, callbacks).run(messages)
        finally:
            file.sync()
    if is_complete:
        matches.warn()
        if not state.put and not state.missing:
            file.remove()
            times = f"stored {range_text(begun.begin, begun.end)}"
            raise errors.ToolUsageError(f"no job of tube {request.tube} {times} matches --filter")
        state.finished_at = round(time.time(), 3)
        file.save(state)
    file.sync()
    seconds = time.monotonic() - started_mono
    _report(request, begun, state, file.path, state.put - put_before, seconds)
    if not is_complete:
        raise KeyboardInterrupt
    return _status(request, state)


class _SkippedLog:
    """Prints the first messages that cannot be put."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, message: Stored, reason: str) -> None:
        self._count += 1
        if self._count <= MAX_SKIPPED_LINES:
            job = one_line(message.properties.get("KEYS", "")) or "-"
            notice(f"not put: job {job} at offset {message.offset}; {reason}")
        elif self._count == MAX_SKIPPED_LINES + 1:
            notice("not put: more jobs, which are only counted")


def _status(request: ReplayRequest, state: ReplayState) -> int:
    return DAMAGED if state.missing else request.options.status


def _time(seconds: float) -> str:
    return time_text(int(seconds * 1000)) or "-"


def report_finished(request: ReplayRequest, begun: Replay, state: ReplayState, path: Path) -> int:
    """Report a replay that has finished before and return the exit status."""
    if request.as_json:
        _report(request, begun, state, path, 0, 0.0)
    else:
        write_line(
            f"already finished at {_time(state.finished_at)}: {_summary(request, begun, state)};"
            " use --restart to put the jobs again"
        )
    return _status(request, state)


def _summary(request: ReplayRequest, begun: Replay, state: ReplayState) -> str:
    text = f"put {counted(state.put)} of {request.tube} into {begun.into}"
    counts = {
        "without a body": state.left_out,
        "too big": state.too_big,
        "damaged": state.damaged,
        "expired": state.expired,
    }
    missing = ", ".join(f"{reason}: {count}" for reason, count in counts.items() if count)
    return f"{text}; not put, {missing}" if missing else text


def _report(
    request: ReplayRequest,
    begun: Replay,
    state: ReplayState,
    path: Path,
    put_now: int,
    seconds: float,
) -> None:
    if not request.as_json:
        write_line(_summary(request, begun, state))
        return
    write_json(
        {
            "tube": request.tube,
            "into": begun.into,
            "from": time_text(begun.begin) if begun.begin else None,
            "to": time_text(begun.end + 1),
            "put": state.put,
            "put_now": put_now,
            "bytes": state.put_bytes,
            "looked_at": state.looked_at,
            "left_out": state.left_out,
            "too_big": state.too_big,
            "damaged": state.damaged,
            "expired": state.expired,
            "finished": state.is_finished,
            "seconds": round(seconds, 3),
            "state": str(path),
        }
    )
