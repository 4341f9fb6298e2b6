"""Which tube a new connection is after, from the bytes that it has sent first.

A pure function of bytes. It need not be right, as every worker can execute everything; being right
saves work. Must not know sockets, workers or shards.
"""

from __future__ import annotations

import enum
import re

PEEK_BYTES = 1024
"""How much of the beginning is worth looking at."""
LINE_BYTES = 224
"""No command line is longer, with its CR LF."""
CRLF = b"\r\n"
DEFAULT_TUBE = b"default"


class Hint(enum.Enum):
    """What the bytes tell when they name no tube."""

    INCOMPLETE = 1
    """The first line has not arrived whole."""
    ANYWHERE = 2
    """Nothing in it belongs to one tube."""


_TUBE = rb"([A-Za-z0-9+/;.$_()][-A-Za-z0-9+/;.$_()]{0,199})"
_SELECTS_A_TUBE = re.compile(rb"(?:use|watch) " + _TUBE)
_IGNORES_A_TUBE = re.compile(rb"ignore " + _TUBE)
_ASKS_ABOUT_A_TUBE = re.compile(rb"(?:stats-tube |pause-tube *)%b(?: +[0-9]+)?" % _TUBE)
# What works on the tubes that a new connection uses and watches.
_ABOUT_THE_DEFAULT_TUBE = re.compile(
    rb"(?:put |reserve-with-timeout |kick ).*|reserve|peek-ready|peek-delayed|peek-buried",
    re.DOTALL,
)


def tube_of_first_command(data: bytes, ended: bool) -> bytes | Hint:
    """The tube that a connection which begins with `data` is about.

    `ended`: nothing will be added. Of several `use` and `watch` at the beginning the last decides,
    as clients say `use a`, `watch a`, `ignore default` in one packet and mean a.
    """
    lines = data.split(CRLF)
    # What follows the last CR LF is no line yet.
    lines.pop()
    if not lines:
        return Hint.ANYWHERE if ended or len(data) >= LINE_BYTES else Hint.INCOMPLETE
    chosen = None
    for line in lines:
        selected = _SELECTS_A_TUBE.fullmatch(line)
        if selected is not None:
            chosen = selected[1]
        elif not _IGNORES_A_TUBE.fullmatch(line):
            break
    return chosen or _of_one(lines[0])


def _of_one(line: bytes) -> bytes | Hint:
    named = _IGNORES_A_TUBE.fullmatch(line) or _ASKS_ABOUT_A_TUBE.fullmatch(line)
    if named is not None:
        return named[1]
    return DEFAULT_TUBE if _ABOUT_THE_DEFAULT_TUBE.fullmatch(line) else Hint.ANYWHERE
