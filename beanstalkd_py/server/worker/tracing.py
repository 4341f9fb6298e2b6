"""Logs the core's events about connections and commands, in the style of C beanstalkd."""

from __future__ import annotations

import logging
from typing import Any

from beanstalkd_py.core.events import Closed, Event, EventKind, Slow, Trace
from beanstalkd_py.plural import counted
from beanstalkd_py.quantities import NS_PER_S
from beanstalkd_py.server.logging.lines import escaped
from beanstalkd_py.server.logging.setup import LOGGER, fields

Fields = dict[str, Any]

_CLOSE_REASONS = {
    Closed.QUIT: "quit",
    Closed.BY_CLIENT: "closed by the client",
    Closed.BROKEN: "broken off",
}


def trace_level(verbosity: int) -> Trace:
    """Return the level at which the log equals C beanstalkd's with this number of -V."""
    return Trace(min(verbosity, Trace.COMMANDS))


def log_trace(event: Event) -> None:
    level, text, about = _record(event)
    if event.connection:
        about |= {"connection": event.connection, "from": event.origin}
    LOGGER.log(level, "%s", text, extra=fields(**about))


def _record(event: Event) -> tuple[int, str, Fields]:
    client = f"{event.connection} from {event.origin}"
    match event.kind:
        case EventKind.ACCEPTED:
            return logging.INFO, f"accept {client}", {"event": "accept"}
        case EventKind.MOVED:
            text = f"accept {client}, moved here by worker {event.shard}"
            return logging.INFO, text, {"event": "move", "from_worker": event.shard}
        case EventKind.CLOSED:
            reason, duration_s = _CLOSE_REASONS[Closed(event.cause)], _seconds(event.duration)
            commands = counted(event.count, "command")
            text = f"close {client} after {duration_s:.3f} s, {commands}: {reason}"
            about = {"reason": reason, "duration_s": duration_s, "commands": event.count}
            return logging.INFO, text, {"event": "close", **about}
        case EventKind.SLOW:
            return logging.WARNING, *_slow(event)
        case EventKind.SLOW_MORE:
            text = f"slow commands within a second that are not listed: {event.count}"
            return logging.WARNING, text, {"event": "slow-more", "count": event.count}
        case _:
            return logging.DEBUG, *_command(event)


def _command(event: Event) -> tuple[str, Fields]:
    line = escaped(event.line)
    match event.kind:
        case EventKind.COMMAND:
            command_text = "(a line too long)" if event.cut else line
            text = f"{event.origin} <{event.connection} command {command_text}"
            line_or_none = None if event.cut else line
            return text, {"event": "command", "line": line_or_none, **_subject(event)}
        case EventKind.JOB:
            size = counted(event.count, "byte")
            text = f"{event.origin} <{event.connection} job {event.job}, {size}"
            return text, {"event": "job", "job": event.job, "bytes": event.count}
        case EventKind.REPLY:
            text = f"{event.origin} >{event.connection} reply {line}"
            return text, {"event": "reply", "reply": line}
        case unknown:
            raise ValueError(f"the core sent an event of unknown kind {unknown}")


def _slow(event: Event) -> tuple[str, Fields]:
    waited = {
        Slow.UNKNOWN: None,
        Slow.SYNC: "sync",
        Slow.WORKER: f"worker {event.shard}",
    }[Slow(event.cause)]
    about = _subject(event)
    duration_s = _seconds(event.duration)
    subject = ", ".join(f"{name} {value}" for name, value in about.items() if name != "command")
    text = (
        f"slow: {event.word or 'no command'}{f' ({subject})' if subject else ''}"
        f" took {duration_s:.3f} s"
        f"{f', with {event.count} more' if event.count else ''}"
        f"{f', waiting for {waited}' if waited else ''}: {event.connection} from {event.origin}"
    )
    timing = {"duration_s": duration_s, "waited_for": waited, "others": event.count}
    return text, {"event": "slow", **about, **timing}


def _subject(event: Event) -> Fields:
    about = {"command": event.word, "job": event.job, "tube": event.tube}
    return {name: value for name, value in about.items() if value}


def _seconds(ns: int) -> float:
    return round(ns / NS_PER_S, 6)
