"""Decodes the statistics of tubes, which the C core packs (csrc/runtime/tube_stats.c).

The server does not decode them, because ten thousand tubes are 700 KB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack

NUMBERS = (
    *("urgent", "ready", "reserved", "delayed", "buried"),
    *("total", "using", "watching", "waiting"),
    *("pause", "pause-time-left"),
    *("cmd-delete", "cmd-pause-tube", "reserves"),
    "oldest-ready-age-s",
)
"""The values after the name, in the order of csrc/runtime/tube_stats.c."""
_TIMES = ("pause", "pause-time-left", "oldest-ready-age-s")

Row = dict[str, Any]


def values(packed: bytes) -> Iterator[list[Any]]:
    """Yield a list per tube: its name as bytes, then NUMBERS, with times in milliseconds."""
    unpacker = msgpack.Unpacker(raw=True)
    unpacker.feed(packed)
    return iter(unpacker)


def rows(packed: bytes) -> list[Row]:
    """Return a dict per tube: `name`, NUMBERS, and the counters `puts` and `deletes`.

    `puts` and `deletes` equal `total` and `cmd-delete`. Times are seconds. `oldest-ready-age-s` is
    how long the next job has been available: its age without the delay of its put, or the time
    since it became ready if that is longer; None if no job is ready.
    """
    return [_row(*tube) for tube in values(packed)]


def _row(name: bytes, *numbers: Any) -> Row:
    row: Row = dict(zip(NUMBERS, numbers, strict=True))
    row |= {"name": name.decode(), "puts": row["total"], "deletes": row["cmd-delete"]}
    for key in _TIMES:
        if row[key]:
            row[key] /= 1000
    return row
