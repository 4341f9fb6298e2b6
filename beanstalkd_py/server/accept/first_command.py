"""The tube that a new connection will probably use, from its first bytes.

A wrong answer only costs performance, because every worker can execute every command.
"""

from __future__ import annotations

import enum
import re

PEEK_BYTES = 1024
LINE_BYTES = 224
"""The maximum length of a command line with its CR LF."""
CRLF = b"\r\n"
DEFAULT_TUBE = b"default"


class Hint(enum.Enum):
    """The result if the bytes name no tube."""

    INCOMPLETE = 1
    """More data may name a tube, because the first line is incomplete."""
    ANYWHERE = 2
    """The first command belongs to no tube."""


_TUBE = rb"([A-Za-z0-9+/;.$_()][-A-Za-z0-9+/;.$_()]{0,199})"
_USE_OR_WATCH = re.compile(rb"(?:use|watch) " + _TUBE)
_IGNORE = re.compile(rb"ignore " + _TUBE)
_NAMED_TUBE = re.compile(rb"(?:stats-tube |pause-tube *)%b(?: +[0-9]+)?" % _TUBE)
# Commands for the used tube or the watched tubes, which are the default tube at first.
_DEFAULT_TUBE = re.compile(
    rb"(?:put |reserve-with-timeout |reserve-batch |kick |with ).*"
    rb"|reserve|peek-ready|peek-delayed|peek-buried",
    re.DOTALL,
)


def tube_of_first_command(data: bytes, ended: bool) -> bytes | Hint:
    """Return the tube of a connection that begins with `data`.

    With `ended` no more data will come. The last of several leading `use` and `watch` decides,
    because clients send `use a`, `watch a`, `ignore default` in one packet and mean a.
    """
    lines = data.split(CRLF)
    lines.pop()  # an incomplete line
    if not lines:
        return Hint.ANYWHERE if ended or len(data) >= LINE_BYTES else Hint.INCOMPLETE
    chosen = None
    for line in lines:
        selected = _USE_OR_WATCH.fullmatch(line)
        if selected is not None:
            chosen = selected[1]
        elif not _IGNORE.fullmatch(line):
            break
    return chosen or _tube_of_line(lines[0])


def _tube_of_line(line: bytes) -> bytes | Hint:
    named = _IGNORE.fullmatch(line) or _NAMED_TUBE.fullmatch(line)
    if named is not None:
        return named[1]
    return DEFAULT_TUBE if _DEFAULT_TUBE.fullmatch(line) else Hint.ANYWHERE
