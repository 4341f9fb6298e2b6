"""`history replay --dry-run`: what would be put."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from beanstalkd_py.cli.formatting import short_time
from beanstalkd_py.cli.history.message_format import time_text
from beanstalkd_py.cli.history.replay_request import Wish, check_not_empty, part_of, same
from beanstalkd_py.cli.history.replay_run import tell_finished
from beanstalkd_py.cli.history.store_options import Place
from beanstalkd_py.cli.output import (
    Table,
    counted,
    say,
    write_json,
    write_line,
    write_table,
)

if TYPE_CHECKING:
    from beanstalkd_py.history.reader import StoreReader
    from beanstalkd_py.replay.preview import Preview
    from beanstalkd_py.replay.state import Reached, Replay

MOST_ROWS = 40
"""Of the table."""


def show_preview(place: Place, store: StoreReader, wish: Wish, asked: Replay, path: Path) -> int:
    """Shows it; the status to leave with. ToolUsageError."""
    from beanstalkd_py.replay.preview import preview
    from beanstalkd_py.replay.state import Reached, load

    before = None if wish.restart else load(path)
    reached = Reached()
    if before is None:
        check_not_empty(wish, part_of(place, store, asked, 0, quiet=True))
    else:
        asked, reached = same(path, before[0], asked), before[1]
        if reached.is_finished:
            return tell_finished(place, wish, asked, reached, path)
    part = part_of(place, store, asked, reached.offset)
    wanted = wish.wanted()
    found = preview(part, wanted, wish.terms, reached.done_beyond)
    wanted.warn()
    if wish.as_json:
        write_json(_preview_json(wish, asked, reached, found))
        return place.status
    if reached.put:
        say(f"{counted(reached.put)} were put already; this is the rest")
    kinds = sorted(found.kinds.items())
    rows = [(pri, tag or "-", kind.jobs, kind.bytes) for (pri, tag), kind in kinds[:MOST_ROWS]]
    if rows:
        write_table(Table(("pri", "tag", "jobs", "bytes"), [*rows]))
    if len(kinds) > MOST_ROWS:
        say(f"and {len(kinds) - MOST_ROWS} more priorities and tags; --json has all")
    write_line(_preview_text(wish, asked, found))
    return place.status


def _preview_text(wish: Wish, asked: Replay, found: Preview) -> str:
    text = f"would put {counted(found.jobs)} of {counted(found.bytes, 'byte')} into {asked.into}"
    if found.first_at is not None and found.last_at is not None:
        text += f", stored {time_text(found.first_at)} to {time_text(found.last_at)}"
    if wish.rate:
        text += f"; at {wish.rate:g} per second that takes {short_time(found.jobs / wish.rate)}"
    if found.left_out:
        text += f"; without a body: {found.left_out}"
    return text


def _preview_json(wish: Wish, asked: Replay, reached: Reached, found: Preview) -> dict[str, object]:
    kinds = sorted(found.kinds.items())
    return {
        "tube": wish.tube,
        "into": asked.into,
        "jobs": found.jobs,
        "bytes": found.bytes,
        "left_out": found.left_out,
        "lost": found.lost,
        "put_before": reached.put,
        "first_at": None if found.first_at is None else time_text(found.first_at),
        "last_at": None if found.last_at is None else time_text(found.last_at),
        "seconds": found.jobs / wish.rate if wish.rate else None,
        "kinds": [
            {"pri": pri, "tag": tag or None, "jobs": kind.jobs, "bytes": kind.bytes}
            for (pri, tag), kind in kinds
        ],
        "dry_run": True,
    }
