"""Run `history replay`: start, continue or only preview it, and report the result."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from beanstalkd_py import errors
from beanstalkd_py.cli.formatting import short_time
from beanstalkd_py.cli.history.message_format import one_line, time_text
from beanstalkd_py.cli.history.replay_request import ReplayRequest, range_text
from beanstalkd_py.cli.history.search import Filters
from beanstalkd_py.cli.history.store_options import DAMAGED, translate_errors
from beanstalkd_py.cli.interrupts import pending_interrupts
from beanstalkd_py.cli.output import Table, notice, write_json, write_line, write_table
from beanstalkd_py.cli.progress import Progress
from beanstalkd_py.plural import counted

if TYPE_CHECKING:
    from beanstalkd_py.admin.connection import Connection
    from beanstalkd_py.history.message import Stored
    from beanstalkd_py.history.queries.ranges import RangeItem
    from beanstalkd_py.replay.preview import Preview
    from beanstalkd_py.replay.state import Replay, ReplayState, StateFile

MAX_ROWS = 40
MAX_SKIPPED_LINES = 20
PROGRESS_INTERVAL_S = 3.0
_MISSING = {
    "left_out": "without a body",
    "too_big": "too big",
    "damaged": "damaged",
    "expired": "expired",
}
"""Fields of ReplayState that count messages which could not be put."""


def run_replay(request: ReplayRequest, replay: Replay) -> int:
    """Run the replay, or the rest of it, and return the exit status.

    Raises ToolUsageError, NoConnectionError, RefusedError, and KeyboardInterrupt if interrupted.
    """
    from beanstalkd_py.replay.state import ReplayState, StateFile, load

    path, state = request.state_path(replay), ReplayState()
    if recorded := request.resumed(replay, partial(load, path)):
        state = recorded[1]
        if state.is_finished:
            return _report_finished(request, *recorded, path)
    try:
        with request.server.connect() as connection, StateFile.locked(path) as file:
            # Another process may have changed the file before this one locked it.
            recorded = request.resumed(replay, file.load)
            if recorded is None:
                replay, state = _begin(request, file, replay), ReplayState()
            else:
                replay, state = recorded
                if state.is_finished:
                    return _report_finished(request, replay, state, path)
                _continue(request, replay, state)
            return _run(request, connection, file, replay, state)
    except (errors.RefusedError, errors.NoConnectionError) as error:
        if state.looked_at or state.put:
            rest = f"; put {counted(state.put)}, run the same command again to continue"
            error.args = (f"{error}{rest}",)
        raise


def _begin(request: ReplayRequest, file: StateFile, replay: Replay) -> Replay:
    begun = replace(replay, total=request.count(replay, 0))
    log = request.store.log
    oldest = log.store_timestamp(log.begin) if log.begin else None
    if oldest is not None and 0 < replay.begin < oldest:
        notice(f"the store starts at {time_text(oldest)}; older jobs have expired")
    file.begin(begun)
    return begun


def _continue(request: ReplayRequest, replay: Replay, state: ReplayState) -> None:
    from beanstalkd_py.replay.resume import skip_expired

    notice(f"continuing the replay of {_time(replay.begun_at)}; {counted(state.put)} put so far")
    skip_expired(request.store, replay, state)


def _run(
    request: ReplayRequest,
    connection: Connection,
    file: StateFile,
    replay: Replay,
    state: ReplayState,
) -> int:
    from beanstalkd_py.replay.put import Replayer

    put_before, started_mono = state.put, time.monotonic()
    matches = Filters(request.filters)

    def read() -> Iterator[RangeItem]:
        # Read errors must not be reported as errors of the connection.
        with translate_errors(request.options.folder):
            yield from request.messages(replay, state.offset, request.options.report_fault)

    def advance(state: ReplayState) -> None:
        detail = f"{counted(state.put)} put, {state.looked_at} of {replay.total} messages read"
        progress.update(state.looked_at, replay.total, detail)

    label = f"{request.tube} into {replay.into}"
    with (
        pending_interrupts((signal.SIGINT, signal.SIGTERM)) as stopped,
        Progress(label, PROGRESS_INTERVAL_S, replay.total) as progress,
    ):
        replayer = Replayer(
            connection,
            replay.into,
            matches,
            request.overrides,
            request.rate,
            state,
            save=file.save,
            skipped=_skipped_log(),
            advance=advance,
            stopped=stopped,
        )
        try:
            is_complete = replayer.run(read())
        finally:
            file.sync()
    if is_complete:
        matches.warn()
        if not state.put and not state.missing:
            file.remove()
            times = f"stored {range_text(replay)}"
            raise errors.ToolUsageError(f"no job of tube {request.tube} {times} matches --filter")
        state.finished_at = round(time.time(), 3)
        file.save(state)
    file.sync()
    seconds = time.monotonic() - started_mono
    _report(request, replay, state, file.path, state.put - put_before, seconds)
    if not is_complete:
        raise KeyboardInterrupt
    return _status(request, state)


def _skipped_log() -> Callable[[Stored, str], None]:
    """Return a function that prints the first messages that cannot be put."""
    numbers = itertools.count(1)

    def add(message: Stored, reason: str) -> None:
        number = next(numbers)
        if number <= MAX_SKIPPED_LINES:
            job = one_line(message.properties.get("KEYS", "")) or "-"
            notice(f"not put: job {job} at offset {message.offset}; {reason}")
        elif number == MAX_SKIPPED_LINES + 1:
            notice("not put: more jobs, which are only counted")

    return add


def _status(request: ReplayRequest, state: ReplayState) -> int:
    return DAMAGED if state.missing else request.options.status


def _time(seconds: float) -> str:
    return time_text(int(seconds * 1000)) or "-"


def _report_finished(request: ReplayRequest, replay: Replay, state: ReplayState, path: Path) -> int:
    if request.as_json:
        _report(request, replay, state, path, 0, 0.0)
    else:
        write_line(
            f"already finished at {_time(state.finished_at)}: {_summary(request, replay, state)};"
            " use --restart to put the jobs again"
        )
    return _status(request, state)


def _summary(request: ReplayRequest, replay: Replay, state: ReplayState) -> str:
    text = f"put {counted(state.put)} of {request.tube} into {replay.into}"
    counts = ((reason, getattr(state, name)) for name, reason in _MISSING.items())
    missing = ", ".join(f"{reason}: {count}" for reason, count in counts if count)
    return f"{text}; not put, {missing}" if missing else text


def _report(
    request: ReplayRequest,
    replay: Replay,
    state: ReplayState,
    path: Path,
    put_now: int,
    seconds: float,
) -> None:
    if not request.as_json:
        write_line(_summary(request, replay, state))
        return
    write_json(
        {
            "tube": request.tube,
            "into": replay.into,
            "from": time_text(replay.begin) if replay.begin else None,
            "to": time_text(replay.end + 1),
            "put": state.put,
            "put_now": put_now,
            "bytes": state.put_bytes,
            **{name: getattr(state, name) for name in ("looked_at", *_MISSING)},
            "finished": state.is_finished,
            "seconds": round(seconds, 3),
            "state": str(path),
        }
    )


def show_preview(request: ReplayRequest, replay: Replay) -> int:
    """Print the preview and return the exit status. Raises ToolUsageError."""
    from beanstalkd_py.replay.preview import preview_replay
    from beanstalkd_py.replay.state import ReplayState, load

    path, state = request.state_path(replay), ReplayState()
    if recorded := request.resumed(replay, partial(load, path)):
        replay, state = recorded
        if state.is_finished:
            return _report_finished(request, replay, state, path)
    messages = request.messages(replay, state.offset, request.options.report_fault)
    matches = Filters(request.filters)
    preview = preview_replay(messages, matches, request.overrides, state.done_beyond)
    matches.warn()
    if request.as_json:
        write_json(_preview_json(request, replay, state, preview))
        return request.options.status
    if state.put:
        notice(f"{counted(state.put)} put before; this is the rest")
    kinds = sorted(preview.kinds.items())
    rows = [(pri, tag or "-", kind.jobs, kind.bytes) for (pri, tag), kind in kinds[:MAX_ROWS]]
    if rows:
        write_table(Table(("pri", "tag", "jobs", "bytes"), [*rows]))
    if len(kinds) > MAX_ROWS:
        notice(f"{len(kinds) - MAX_ROWS} more priorities and tags; --json prints all")
    write_line(_preview_text(request, replay, preview))
    return request.options.status


def _preview_text(request: ReplayRequest, replay: Replay, preview: Preview) -> str:
    jobs, size = counted(preview.jobs), counted(preview.bytes, "byte")
    text = f"would put {jobs} of {size} into {replay.into}"
    if preview.first_at is not None and preview.last_at is not None:
        text += f", stored {time_text(preview.first_at)} to {time_text(preview.last_at)}"
    if request.rate:
        duration = short_time(preview.jobs / request.rate)
        text += f"; takes {duration} at {request.rate:g} per second"
    if preview.left_out:
        text += f"; without a body: {preview.left_out}"
    return text


def _preview_json(
    request: ReplayRequest, replay: Replay, state: ReplayState, preview: Preview
) -> dict[str, object]:
    kinds = sorted(preview.kinds.items())
    return {
        "tube": request.tube,
        "into": replay.into,
        "jobs": preview.jobs,
        "bytes": preview.bytes,
        "left_out": preview.left_out,
        "lost": preview.lost,
        "put_before": state.put,
        "first_at": None if preview.first_at is None else time_text(preview.first_at),
        "last_at": None if preview.last_at is None else time_text(preview.last_at),
        "seconds": preview.jobs / request.rate if request.rate else None,
        "kinds": [
            {"pri": pri, "tag": tag or None, "jobs": kind.jobs, "bytes": kind.bytes}
            for (pri, tag), kind in kinds
        ],
        "dry_run": True,
    }
