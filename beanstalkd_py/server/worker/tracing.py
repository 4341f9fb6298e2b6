"""What the core tells of connections and commands, as log records.

A record has a line in the manner of C beanstalkd, and the same as fields. Must not know how either
is written.
"""

from __future__ import annotations

import logging
from typing import Any

from beanstalkd_py.core.events import Closed, Event, EventKind, Slow, Trace
from beanstalkd_py.plural import counted
from beanstalkd_py.server.logging.lines import escaped
from beanstalkd_py.server.logging.setup import LOGGER, fields

NS_PER_S = 1e9

_ENDS = {
    Closed.QUIT: "quit",
    Closed.BY_CLIENT: "closed by the client",
    Closed.BROKEN: "broken off",
}


def trace_level(verbosity: int) -> Trace:
    """What of clients is told at this many -V, which is what C beanstalkd tells."""
    return Trace(min(verbosity, Trace.COMMANDS))


def log_trace(event: Event) -> None:
    """Logs what is no matter of the core itself."""
    about = {"connection": event.connection, "from": event.origin}
    level, text, more = _said(event)
    LOGGER.log(
        level, "%s", text, extra=fields(**more, **about) if event.connection else fields(**more)
    )


def _said(event: Event) -> tuple[int, str, dict[str, Any]]:
    who = f"{event.connection} from {event.origin}"
    match event.kind:
        case EventKind.ACCEPTED:
            return logging.INFO, f"accept {who}", {"event": "accept"}
        case EventKind.MOVED:
            text = f"accept {who}, moved here by worker {event.shard}"
            return logging.INFO, text, {"event": "move", "from_worker": event.shard}
        case EventKind.CLOSED:
            end, duration_s = _ENDS[Closed(event.cause)], _seconds(event.duration)
            text = f"close {who} after {duration_s:.3f} s, {counted(event.count, 'command')}: {end}"
            more = {"reason": end, "duration_s": duration_s, "commands": event.count}
            return logging.INFO, text, {"event": "close", **more}
        case EventKind.SLOW:
            return logging.WARNING, *_slow(event)
        case EventKind.SLOW_MORE:
            text = f"slow commands within a second that are not listed: {event.count}"
            return logging.WARNING, text, {"event": "slow-more", "count": event.count}
        case _:
            return logging.DEBUG, *_command(event)


def _command(event: Event) -> tuple[str, dict[str, Any]]:
    line = escaped(event.line)
    match event.kind:
        case EventKind.COMMAND:
            what = "(a line too long)" if event.cut else line
            text = f"{event.origin} <{event.connection} command {what}"
            line_or_none = None if event.cut else line
            return text, {"event": "command", "line": line_or_none, **_about(event)}
        case EventKind.JOB:
            size = counted(event.count, "byte")
            text = f"{event.origin} <{event.connection} job {event.job}, {size}"
            return text, {"event": "job", "job": event.job, "bytes": event.count}
        case EventKind.REPLY:
            text = f"{event.origin} >{event.connection} reply {line}"
            return text, {"event": "reply", "reply": line}
        case unknown:
            raise ValueError(f"the core sent an event of unknown kind {unknown}")


def _slow(event: Event) -> tuple[str, dict[str, Any]]:
    waited = {
        Slow.UNKNOWN: None,
        Slow.SYNC: "sync",
        Slow.WORKER: f"worker {event.shard}",
    }[Slow(event.cause)]
    about = _about(event)
    duration_s = _seconds(event.duration)
    what = ", ".join(f"{name} {value}" for name, value in about.items() if name != "command")
    text = (
        f"slow: {event.word or 'no command'}{f' ({what})' if what else ''} took {duration_s:.3f} s"
        f"{f', with {event.count} more' if event.count else ''}"
        f"{f', waiting for {waited}' if waited else ''}: {event.connection} from {event.origin}"
    )
    timing = {"duration_s": duration_s, "waited_for": waited, "others": event.count}
    return text, {"event": "slow", **about, **timing}


def _about(event: Event) -> dict[str, Any]:
    """Only what there is."""
    about = {"command": event.word, "job": event.job, "tube": event.tube}
    return {name: value for name, value in about.items() if value}


def _seconds(ns: int) -> float:
    return round(ns / NS_PER_S, 6)
