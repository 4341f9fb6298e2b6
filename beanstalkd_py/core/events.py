"""Events of the core: log lines, traced clients, and `stats` that Python answers (`bs_event`)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from beanstalkd_py.core._core import ffi, lib


class EventKind(enum.IntEnum):
    STATS = lib.BS_EVENT_STATS
    LOG = lib.BS_EVENT_LOG
    ACCEPTED = lib.BS_EVENT_ACCEPTED
    MOVED = lib.BS_EVENT_MOVED
    CLOSED = lib.BS_EVENT_CLOSED
    COMMAND = lib.BS_EVENT_COMMAND
    JOB = lib.BS_EVENT_JOB
    REPLY = lib.BS_EVENT_REPLY
    SLOW = lib.BS_EVENT_SLOW
    SLOW_MORE = lib.BS_EVENT_SLOW_MORE


class Closed(enum.IntEnum):
    """Why a connection has ended."""

    QUIT = lib.BS_CLOSED_QUIT
    BY_CLIENT = lib.BS_CLOSED_BY_CLIENT
    BROKEN = lib.BS_CLOSED_BROKEN


class Slow(enum.IntEnum):
    """The cause of a slow reply."""

    UNKNOWN = lib.BS_SLOW_UNKNOWN
    SYNC = lib.BS_SLOW_SYNC
    WORKER = lib.BS_SLOW_WORKER


class Trace(enum.IntEnum):
    """Trace levels; each includes those before."""

    NOTHING = lib.BS_TRACE_NOTHING
    CONNECTIONS = lib.BS_TRACE_CONNECTIONS
    COMMANDS = lib.BS_TRACE_COMMANDS


@dataclass(slots=True)
class Event:
    """One `bs_event`; `kind` decides which fields are used.

    `line` is a line of a client, which may contain any bytes, or of a reply. `duration` is
    nanoseconds.
    """

    kind: int
    level: int = 0
    session: int = 0
    text: str = ""
    line: bytes = b""
    connection: int = 0
    origin: str = ""
    job: int = 0
    count: int = 0
    duration: int = 0
    cause: int = 0
    cut: bool = False
    shard: int = 0
    word: str = ""
    tube: str = ""


_PLAIN = ("connection", "job", "count", "duration", "cause", "cut", "shard")


def event_of(event: Any) -> Event:
    kind = event.kind
    if kind == lib.BS_EVENT_STATS:
        return Event(kind, session=event.session)
    if kind == lib.BS_EVENT_LOG:
        text = ffi.string(event.text, ffi.sizeof(event.text)).decode("utf-8", "replace")
        return Event(kind, event.level, text=text)
    return Event(
        kind,
        line=bytes(ffi.buffer(event.text, event.length)) if event.length else b"",
        origin=text_in(event.address),
        word=text_in(event.word),
        tube=text_in(event.tube),
        **{name: getattr(event, name) for name in _PLAIN},
    )


def text_in(field: Any) -> str:
    return ffi.string(field).decode("ascii", "replace")
