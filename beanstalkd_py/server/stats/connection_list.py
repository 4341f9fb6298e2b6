"""The connections of all workers, for `conns`.

A connection belongs to its home worker; its proxies at other workers have the jobs that it has
reserved there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from beanstalkd_py.core.clocks import NEVER, read_clocks
from beanstalkd_py.core.connections import Connection, origin_of
from beanstalkd_py.core.core import Core

PAGE_SLOTS = 50
"""Slots in one message of 64 KiB; a row takes up to about 1,000 bytes."""
MAX_NAME_BYTES = 400
MAX_JOBS = 16
"""Limits of the watched tubes and reserved jobs in one row."""

Row = dict[str, Any]


def read_page(core: Core, first: int) -> tuple[list[Row], int | None]:
    """Return the rows from one slot on, and the slot of the next page, None at the end."""
    connections, next_first = core.connections(first, PAGE_SLOTS)
    now_mono = read_clocks().mono
    return [_row(connection, now_mono) for connection in connections], next_first


def merge_pages(pages: Iterable[list[Row]]) -> Iterator[Row]:
    """Yield a row per connection, with the jobs that its proxies hold."""
    homes: dict[tuple[int, int], Row] = {}
    proxies: list[Row] = []
    for row in chain.from_iterable(pages):
        if row.pop("proxy"):
            proxies.append(row)
        else:
            homes[row["worker"], row["number"]] = row
    for row in proxies:
        home = homes.get((row["worker"], row["number"]))
        if home is not None:
            home["holds"] += row["holds"]
            home["jobs"] = (home["jobs"] + row["jobs"])[:MAX_JOBS]
    yield from homes.values()


def _row(one: Connection, now_mono: int) -> Row:
    row: Row = {
        "proxy": one.is_proxy,
        "worker": one.home,
        "number": one.number,
        "holds": one.holds,
        "jobs": one.jobs[:MAX_JOBS],
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
    left, first = MAX_NAME_BYTES, []
    for name in names:
        left -= len(name) + 3
        if left < 0:
            break
        first.append(name.decode())
    return first
