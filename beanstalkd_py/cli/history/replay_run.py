"""`history replay`, done: from where it stopped, and how it ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from beanstalkd_py import errors
from beanstalkd_py.cli.history.message_format import one_line, time_text
from beanstalkd_py.cli.history.replay_progress import Progress
from beanstalkd_py.cli.history.replay_request import (
    Wish,
    check_not_empty,
    part_of,
    range_text,
    same,
)
from beanstalkd_py.cli.history.store_options import DAMAGED, Place, told
from beanstalkd_py.cli.interrupts import interrupts_noted
from beanstalkd_py.cli.output import counted, say, write_json, write_line

if TYPE_CHECKING:
    from beanstalkd_py.admin.connection import Connection
    from beanstalkd_py.history.message import Stored
    from beanstalkd_py.history.queries.ranges import MessageRange, RangeItem
    from beanstalkd_py.history.reader import StoreReader
    from beanstalkd_py.replay.state import Reached, Replay, StateFile

LINES_OF_LEFT_OUT = 20
"""After so many lines the rest is only counted."""


def replay_into(place: Place, store: StoreReader, wish: Wish, asked: Replay, path: Path) -> int:
    """Does it, or what is left of it; the status to leave with.

    ToolUsageError, NoConnectionError, RefusedError; KeyboardInterrupt when it was interrupted.
    """
    from beanstalkd_py.replay.state import Reached, StateFile, load

    def is_done(before: tuple[Replay, Reached] | None) -> bool:
        if before is not None:
            same(path, before[0], asked)
        return before is not None and before[1].is_finished

    before = None if wish.restart else load(path)
    if before is None:
        check_not_empty(wish, part_of(place, store, asked, 0, quiet=True))
    elif is_done(before):
        return tell_finished(place, wish, before[0], before[1], path)
    reached = Reached() if before is None else before[1]
    try:
        with wish.server.connect() as connection, StateFile.taken(path) as file:
            # Another process may have done it between the look and the lock.
            before = None if wish.restart else file.load()
            if before is not None and is_done(before):
                return tell_finished(place, wish, before[0], before[1], path)
            begun, reached = _begin(place, store, file, asked) if before is None else before
            if before is not None:
                _go_on(place, store, begun, reached)
            return _run(place, store, wish, connection, file, begun, reached)
    except (errors.RefusedError, errors.NoConnectionError) as error:
        if reached.looked_at or reached.put:
            rest = f"; put {counted(reached.put)}, the same command goes on from there"
            error.args = (f"{error}{rest}",)
        raise


def _begin(
    place: Place, store: StoreReader, file: StateFile, asked: Replay
) -> tuple[Replay, Reached]:
    from beanstalkd_py.replay.state import Reached

    begun = replace(asked, total=part_of(place, store, asked, 0, quiet=True).count())
    oldest = store.log.store_timestamp(store.log.begin) if store.log.begin else None
    if oldest is not None and 0 < begun.begin < oldest:
        say(f"the store begins at {time_text(oldest)}; what was before that has expired")
    file.begin(begun)
    return begun, Reached()


def _go_on(place: Place, store: StoreReader, begun: Replay, reached: Reached) -> None:
    say(f"going on with the replay of {_time(begun.begun_at)}; {counted(reached.put)} put so far")
    if store.log.begin <= max(begun.log_begin, reached.offset):
        return
    # What the store has lost since can be put no more.
    left = part_of(place, store, begun, reached.offset, quiet=True).count()
    gone = max(begun.total - reached.looked_at - left, 0)
    reached.expired += gone
    reached.looked_at += gone
    reached.offset = store.log.begin


def _read(place: Place, part: MessageRange) -> Iterator[RangeItem]:
    """What fails to be read is no failure of the connection."""
    with told(place.folder):
        yield from part


def _run(
    place: Place,
    store: StoreReader,
    wish: Wish,
    connection: Connection,
    file: StateFile,
    begun: Replay,
    reached: Reached,
) -> int:
    from beanstalkd_py.replay.put import Listener, Order, Replaying

    put_before, started_mono = reached.put, time.monotonic()
    part = part_of(place, store, begun, reached.offset)
    left_out = _LeftOut()
    with (
        interrupts_noted((signal.SIGINT, signal.SIGTERM)) as stopped,
        Progress(f"{wish.tube} into {begun.into}", begun.total) as progress,
    ):
        listener = Listener(
            file.note,
            left_out.tell,
            lambda reached: progress.advance(reached.looked_at, reached.put),
            stopped,
        )
        wanted = wish.wanted()
        order = Order(begun.into, wanted, wish.terms, wish.rate)
        try:
            is_whole = Replaying(connection, order, reached, listener).run(_read(place, part))
        finally:
            file.sync()
    if is_whole:
        wanted.warn()
    if is_whole and not reached.put and not reached.missing:
        file.remove()
        which = f"stored {range_text(begun.begin, begun.end)}"
        raise errors.ToolUsageError(f"no job of tube {wish.tube} {which} fulfils --filter")
    if is_whole:
        reached.finished_at = round(time.time(), 3)
        file.note(reached)
    file.sync()
    seconds = time.monotonic() - started_mono
    _report(wish, begun, reached, file.path, reached.put - put_before, seconds)
    if not is_whole:
        raise KeyboardInterrupt
    return _status(place, reached)


class _LeftOut:
    """Tells of messages that cannot be put; of many, only the first."""

    def __init__(self) -> None:
        self._count = 0

    def tell(self, message: Stored, why: str) -> None:
        """One more."""
        self._count += 1
        if self._count <= LINES_OF_LEFT_OUT:
            job = one_line(message.properties.get("KEYS", "")) or "-"
            say(f"not put: job {job} at offset {message.offset}; {why}")
        elif self._count == LINES_OF_LEFT_OUT + 1:
            say("not put: more jobs; the rest is only counted")


def _status(place: Place, reached: Reached) -> int:
    return DAMAGED if reached.missing else place.status


def _time(seconds: float) -> str:
    return time_text(int(seconds * 1000)) or "-"


def tell_finished(place: Place, wish: Wish, begun: Replay, reached: Reached, path: Path) -> int:
    """Says that nothing is left to do; the status to leave with."""
    if wish.as_json:
        _report(wish, begun, reached, path, 0, 0.0)
    else:
        write_line(
            f"finished already, at {_time(reached.finished_at)}: {_put(wish, begun, reached)};"
            " nothing is put again without --restart"
        )
    return _status(place, reached)


def _put(wish: Wish, begun: Replay, reached: Reached) -> str:
    text = f"put {counted(reached.put)} of {wish.tube} into {begun.into}"
    counts = {
        "without a body": reached.left_out,
        "too big": reached.too_big,
        "damaged": reached.damaged,
        "expired": reached.expired,
    }
    missing = ", ".join(f"{what}: {count}" for what, count in counts.items() if count)
    return f"{text}; not put, {missing}" if missing else text


def _report(
    wish: Wish, begun: Replay, reached: Reached, path: Path, put_now: int, seconds: float
) -> None:
    if not wish.as_json:
        write_line(_put(wish, begun, reached))
        return
    write_json(
        {
            "tube": wish.tube,
            "into": begun.into,
            "from": time_text(begun.begin) if begun.begin else None,
            "to": time_text(begun.end + 1),
            "put": reached.put,
            "put_now": put_now,
            "bytes": reached.put_bytes,
            "looked_at": reached.looked_at,
            "left_out": reached.left_out,
            "too_big": reached.too_big,
            "damaged": reached.damaged,
            "expired": reached.expired,
            "finished": reached.is_finished,
            "seconds": round(seconds, 3),
            "state": str(path),
        }
    )
