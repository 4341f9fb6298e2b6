"""`history replay --dry-run`: print what would be put."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from beanstalkd_py.cli.formatting import short_time
from beanstalkd_py.cli.history.message_format import time_text
from beanstalkd_py.cli.history.replay_request import (
    ReplayRequest,
    check_not_empty,
    check_same_replay,
    message_range,
)
from beanstalkd_py.cli.history.replay_run import report_finished
from beanstalkd_py.cli.output import Table, counted, notice, write_json, write_line, write_table

if TYPE_CHECKING:
    from beanstalkd_py.history.reader import StoreReader
    from beanstalkd_py.replay.preview import Preview
    from beanstalkd_py.replay.state import Replay, ReplayState

MAX_ROWS = 40


def show_preview(request: ReplayRequest, store: StoreReader, replay: Replay, path: Path) -> int:
    """Print the preview and return the exit status. Raises ToolUsageError."""
    from beanstalkd_py.replay.preview import preview_replay
    from beanstalkd_py.replay.state import ReplayState, load

    before = None if request.restart else load(path)
    state = ReplayState()
    if before is None:
        check_not_empty(request, message_range(request, store, replay, 0, quiet=True))
    else:
        check_same_replay(path, before[0], replay)
        replay, state = before
        if state.is_finished:
            return report_finished(request, replay, state, path)
    messages = message_range(request, store, replay, state.offset)
    matches = request.matches()
    found = preview_replay(messages, matches, request.overrides, state.done_beyond)
    matches.warn()
    if request.as_json:
        write_json(_preview_json(request, replay, state, found))
        return request.options.status
    if state.put:
        notice(f"{counted(state.put)} put before; this is the rest")
    kinds = sorted(found.kinds.items())
    rows = [(pri, tag or "-", kind.jobs, kind.bytes) for (pri, tag), kind in kinds[:MAX_ROWS]]
    if rows:
        write_table(Table(("pri", "tag", "jobs", "bytes"), [*rows]))
    if len(kinds) > MAX_ROWS:
        notice(f"{len(kinds) - MAX_ROWS} more priorities and tags; --json prints all")
    write_line(_preview_text(request, replay, found))
    return request.options.status


def _preview_text(request: ReplayRequest, replay: Replay, found: Preview) -> str:
    text = f"would put {counted(found.jobs)} of {counted(found.bytes, 'byte')} into {replay.into}"
    if found.first_at is not None and found.last_at is not None:
        text += f", stored {time_text(found.first_at)} to {time_text(found.last_at)}"
    if request.rate:
        duration = short_time(found.jobs / request.rate)
        text += f"; takes {duration} at {request.rate:g} per second"
    if found.left_out:
        text += f"; without a body: {found.left_out}"
    return text


def _preview_json(
    request: ReplayRequest, replay: Replay, state: ReplayState, found: Preview
) -> dict[str, object]:
    kinds = sorted(found.kinds.items())
    return {
        "tube": request.tube,
        "into": replay.into,
        "jobs": found.jobs,
        "bytes": found.bytes,
        "left_out": found.left_out,
        "lost": found.lost,
        "put_before": state.put,
        "first_at": None if found.first_at is None else time_text(found.first_at),
        "last_at": None if found.last_at is None else time_text(found.last_at),
        "seconds": found.jobs / request.rate if request.rate else None,
        "kinds": [
            {"pri": pri, "tag": tag or None, "jobs": kind.jobs, "bytes": kind.bytes}
            for (pri, tag), kind in kinds
        ],
        "dry_run": True,
    }
