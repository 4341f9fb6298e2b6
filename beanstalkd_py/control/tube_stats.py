"""The statistics of tubes as they travel from a worker to whoever wants them, and as rows.

The C core packs them (csrc/runtime/tube_stats.c), and they are unpacked only where somebody looks
at them: ten
thousand tubes are 700 KB in few messages, which costs the server no more than passing them on.
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
"""What comes after the name, in the order of csrc/runtime/tube_stats.c."""

Row = dict[str, Any]


def values(encode: bytes) -> Iterator[list[Any]]:
    """A list for each tube: its name as bytes, then NUMBERS, times as milliseconds."""
    unpacker = msgpack.Unpacker(raw=True)
    unpacker.feed(encode)
    return iter(unpacker)


def rows(encode: bytes) -> list[Row]:
    """A dict for each tube: `name`, NUMBERS, and the counters `puts` and `deletes`.

    Those two are `total` and `cmd-delete` by the names of the commands that move them, as
    `reserves` has it. Times are seconds. `oldest-ready-age-s` is for how long the job that is
    reserved next could have been: its age without the delay of its put, or the time since it became
    ready if that is longer; None if no job is ready.
    """
    return [_row(found) for found in values(encode)]


def _row(found: list[Any]) -> Row:
    name, *numbers = found
    row: Row = dict(zip(NUMBERS, numbers, strict=True))
    row["name"] = name.decode()
    for key in _TIMES:
        if row[key]:
            row[key] /= 1000
    row["puts"] = row["total"]
    row["deletes"] = row["cmd-delete"]
    return row


_TIMES = ("pause", "pause-time-left", "oldest-ready-age-s")
