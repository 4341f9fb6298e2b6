"""Who is connected: one worker's part of the answer, and what all parts together say.

A connection lives at one worker, its home; what it has reserved at others is known to its proxies
there. Must not know how a worker is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from beanstalkd_py.core.clocks import NEVER, read_clocks
from beanstalkd_py.core.connections import Connection, origin_of
from beanstalkd_py.core.core import Core

SLOTS = 50
"""Looked at for one message. A row takes up to about 1,000 bytes, a message 64 KiB."""
NAMES_BYTES = 400
JOBS = 16

Row = dict[str, Any]
Ask = Callable[[dict[str, Any]], dict[str, Any]]


def part(core: Core, first: int) -> dict[str, Any]:
    """Connections and proxies from slot `first` on: {"rows", "next"}; next is None at the end."""
    found, following = core.connections(first, SLOTS)
    now_mono = read_clocks().mono
    return {"rows": [_row(one, now_mono) for one in found], "next": following}


def all_connections(workers: Sequence[int], ask: Callable[[int], Ask]) -> Iterator[Row]:
    """A row for each connection of these workers, with what it holds at any of them."""
    rows: dict[tuple[int, int], Row] = {}
    held: list[Row] = []
    for worker in workers:
        first: int | None = 0
        while first is not None:
            answer = ask(worker)({"do": "conns", "first": first})
            first = answer["next"]
            for row in answer["rows"]:
                if row.pop("proxy"):
                    held.append(row)
                else:
                    rows[row["worker"], row["number"]] = row
    for row in held:
        home = rows.get((row["worker"], row["number"]))
        if home is not None:
            home["holds"] += row["holds"]
            home["jobs"] = (home["jobs"] + row["jobs"])[:JOBS]
    yield from rows.values()


def _row(one: Connection, now_mono: int) -> Row:
    row: Row = {
        "proxy": one.is_proxy,
        "worker": one.home,
        "number": one.number,
        "holds": one.holds,
        "jobs": one.jobs[:JOBS],
    }
    if one.is_proxy:
        return row
    waits_s = None
    if one.waits and one.until != NEVER:
        waits_s = round(max(0, one.until - now_mono) / 1e9, 1)
    return row | {
        "from": origin_of(one.fd),
        "use": one.use.decode(),
        "watch": _some(one.watched),
        "watching": one.watching,
        "waits": one.waits,
        "waits-s": waits_s,
        "producer": one.producer,
        "worker-role": one.worker,
        "unread-bytes": one.unread,
        "unsent-bytes": one.unsent,
    }


def _some(names: list[bytes]) -> list[str]:
    """The first names, as many as a message can take of each connection."""
    room, some = NAMES_BYTES, []
    for name in names:
        room -= len(name) + 3
        if room < 0:
            break
        some.append(name.decode())
    return some
