"""The connections of all workers, for `conns`.

A connection belongs to its home worker; its proxies at other workers have the jobs that it has
reserved there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypedDict

from beanstalkd_py.core.clocks import NEVER, read_clocks
from beanstalkd_py.core.connections import Connection, origin_of
from beanstalkd_py.core.core import Core

SLOTS = 50
"""Slots per message. A row takes up to about 1,000 bytes, a message 64 KiB."""
NAMES_BYTES = 400
JOBS = 16

ConnectionRow = TypedDict(
    "ConnectionRow",
    {
        "proxy": bool,
        "worker": int,
        "number": int,
        "holds": int,
        "jobs": list[int],
        "from": str,
        "use": str,
        "watch": list[str],
        "watching": int,
        "waits": bool,
        "waits-s": float | None,
        "producer": bool,
        "worker-role": bool,
        "unread-bytes": int,
        "unsent-bytes": int,
    },
    total=False,
)
"""The keys from "from" on are missing in a proxy's row."""


class ConnectionPage(NamedTuple):
    """The rows from one slot on; `next` is the slot of the next page, None at the end."""

    rows: list[ConnectionRow]
    next: int | None


def read_page(core: Core, first: int) -> ConnectionPage:
    found, following = core.connections(first, SLOTS)
    now_mono = read_clocks().mono
    return ConnectionPage([_row(one, now_mono) for one in found], following)


def all_connections(workers: Sequence[Callable[[int], ConnectionPage]]) -> Iterator[ConnectionRow]:
    """Yield a row per connection, with the jobs that its proxies hold.

    `workers` request a page, by its first slot, from each worker. Raises ControlError.
    """
    rows: dict[tuple[int, int], ConnectionRow] = {}
    proxies: list[ConnectionRow] = []
    for request in workers:
        first: int | None = 0
        while first is not None:
            page = request(first)
            first = page.next
            for row in page.rows:
                if row.pop("proxy"):
                    proxies.append(row)
                else:
                    rows[row["worker"], row["number"]] = row
    for row in proxies:
        home = rows.get((row["worker"], row["number"]))
        if home is not None:
            home["holds"] += row["holds"]
            home["jobs"] = (home["jobs"] + row["jobs"])[:JOBS]
    yield from rows.values()


def _row(one: Connection, now_mono: int) -> ConnectionRow:
    row: ConnectionRow = {
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
    return {
        **row,
        "from": origin_of(one.fd),
        "use": one.use.decode(),
        "watch": _first_names(one.watched),
        "watching": one.watching,
        "waits": one.waits,
        "waits-s": waits_s,
        "producer": one.producer,
        "worker-role": one.worker,
        "unread-bytes": one.unread,
        "unsent-bytes": one.unsent,
    }


def _first_names(names: list[bytes]) -> list[str]:
    left, first = NAMES_BYTES, []
    for name in names:
        left -= len(name) + 3
        if left < 0:
            break
        first.append(name.decode())
    return first
