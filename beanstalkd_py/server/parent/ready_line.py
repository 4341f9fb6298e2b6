"""The log line of a server that has started."""

from __future__ import annotations

from beanstalkd_py import __version__
from beanstalkd_py.plural import counted
from beanstalkd_py.server.accept.listeners import Sockets
from beanstalkd_py.server.option_changes import NS_PER_MS
from beanstalkd_py.server.options import SYNC_EACH, ServeOptions


def ready_line(options: ServeOptions, sockets: Sockets, workers: int) -> str:
    """Return `ready: version 0.2.0, listening on ..., binlog ..., 2 workers, control socket ...`.

    Programs parse the prefix.
    """
    addresses = [str(listener) for listener in sockets.clients]
    if sockets.tls is not None:
        addresses.append(f"{sockets.tls} (TLS)")
    parts = [
        f"ready: version {__version__}",
        f"listening on {' and '.join(addresses)}",
        _binlog_text(options),
    ]
    if options.history is not None:
        parts.append(f"history {options.history}")
    parts.append(counted(workers, "worker"))
    if options.schedules:
        parts.append(counted(len(options.schedules), "schedule"))
    if sockets.metrics is not None:
        parts.append(f"metrics on {sockets.metrics}")
    if sockets.console is not None:
        parts.append(f"console on http://{sockets.console}/")
    if sockets.control is not None:
        parts.append(f"control socket {str(sockets.control).removeprefix('unix:')}")
    else:
        parts.append(f"no control socket ({sockets.no_control})")
    return ", ".join(parts)


def _binlog_text(options: ServeOptions) -> str:
    if options.binlog_dir is None:
        return "no binlog (jobs are in memory only)"
    interval_ns = options.sync_interval_ns
    if interval_ns < 0:
        sync = "never synced"
    elif interval_ns == SYNC_EACH:
        sync = "synced before each reply"
    else:
        sync = f"synced every {interval_ns // NS_PER_MS} ms"
    return f"binlog {options.binlog_dir} ({sync})"
