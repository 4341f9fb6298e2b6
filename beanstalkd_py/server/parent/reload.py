"""Options read again while the server runs: what can change does, and the rest is said.

Must not know where options come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.server.logging.setup import LOGGER, set_up_logging
from beanstalkd_py.server.options import NS_PER_S, SYNC_NEVER, ServeOptions

NS_PER_MS = 1_000_000

Reread = Callable[[], ServeOptions]
"""Reads the options as at the start. Raises UsageError."""

Names = dict[str, Any]

CHANGEABLE = {
    "allow": "allow",
    "fsync-ms": "sync_interval_ns",
    "history-age": "history_age_ns",
    "history-backlog": "history_backlog",
    "history-size": "history_size",
    "idle-timeout": "idle_timeout_ns",
    "log-format": "log_format",
    "max-connections": "max_connections",
    "max-job-size": "max_job_size",
    "max-memory": "max_memory",
    "max-tubes": "max_tubes",
    "output-limit": "output_limit",
    "output-timeout": "output_timeout_ns",
    "send-timeout": "send_timeout_ns",
    "slow-log": "slow_ns",
    "tls-ca": "tls_ca",
    "tls-cert": "tls_cert",
    "tls-key": "tls_key",
    "verbose": "verbosity",
}
"""Fields of ServeOptions by the names of the command line; others wait for the next start."""


def changeable(options: ServeOptions) -> Names:
    """What a running worker is told when options have changed."""
    return {
        "max_job_size": options.max_job_size,
        "sync_interval_ns": options.sync_interval_ns,
        "verbosity": options.verbosity,
        "limits": options.limits(),
        "log_format": options.log_format,
        "slow_ns": options.slow_ns,
    }


@dataclass(slots=True)
class Changes:
    """New values by name: those that hold from now on, and those that wait for a restart."""

    applied: Names = field(default_factory=dict)
    waiting: Names = field(default_factory=dict)


def shown(options: ServeOptions) -> Names:
    """Every option by its name on the command line, in the units it has there."""
    never = options.sync_interval_ns == SYNC_NEVER
    return {
        "allow": ",".join(options.allow) or None,
        "binlog-dir": options.binlog_dir,
        "colocate": options.colocate.decode() if options.colocate is not None else None,
        "control": options.control,
        "file-size": options.file_size,
        "fsync-ms": "never" if never else options.sync_interval_ns // NS_PER_MS,
        "history": options.history,
        "history-age": _seconds(options.history_age_ns),
        "history-backlog": options.history_backlog,
        "history-size": options.history_size or None,
        "history-sizes": options.history_sizes,
        "idle-timeout": _seconds(options.idle_timeout_ns),
        "listen": options.listen,
        "log-format": options.log_format,
        "max-connections": options.max_connections or None,
        "max-job-size": options.max_job_size,
        "max-memory": options.max_memory or None,
        "max-tubes": options.max_tubes or None,
        "metrics": options.metrics,
        "metrics-tubes": options.metrics_tubes,
        "output-limit": options.output_limit,
        "output-timeout": _seconds(options.output_timeout_ns),
        "port": options.port,
        "send-timeout": _seconds(options.send_timeout_ns),
        "slow-log": options.slow_ns // NS_PER_MS,
        "tls-ca": options.tls_ca,
        "tls-cert": options.tls_cert,
        "tls-key": options.tls_key,
        "tls-listen": options.tls_listen,
        "user": options.user,
        "verbose": options.verbosity,
        "workers": options.workers or "auto",
    }


def _seconds(nanoseconds: int) -> float | int | None:
    """As it was written, if that was in whole seconds."""
    whole, rest = divmod(nanoseconds, NS_PER_S)
    return (nanoseconds / NS_PER_S if rest else whole) or None


def compare(old: ServeOptions, new: ServeOptions) -> Changes:
    """What is different, and what becomes of it."""
    before, after = shown(old), shown(new)
    changes = Changes()
    for name, value in after.items():
        if value == before[name]:
            continue
        # Without syncs no file has been made durable, and nothing is kept to catch up with.
        never = name == "fsync-ms" and "never" in (value, before[name])
        can = name in CHANGEABLE and not never
        (changes.applied if can else changes.waiting)[name] = value
    return changes


class Reloader:
    """The options in force. `tell` gives those that can change to every worker that runs."""

    def __init__(self, options: ServeOptions, reread: Reread | None) -> None:
        self.options = options
        self._reread = reread

    def reload(
        self, tell: Callable[[ServeOptions], None], check: Callable[[ServeOptions], None]
    ) -> Changes:
        """Reads again and applies. Raises UsageError, and then everything stays as it is.

        `check` may find something wrong with the options that would be in force: UsageError.
        """
        if self._reread is None:
            raise errors.UsageError("this server was started without a way to read options again")
        new = self._reread()
        changes = compare(self.options, new)
        names = changes.applied
        new_values = {CHANGEABLE[name]: getattr(new, CHANGEABLE[name]) for name in names}
        options = replace(self.options, **new_values)
        check(options)
        self.options = options
        set_up_logging(self.options.verbosity, self.options.log_format)
        tell(self.options)
        for name, value in names.items():
            LOGGER.info("reload: %s is %s now", name, value)
        for name, value in changes.waiting.items():
            LOGGER.warning("reload: %s %s needs a restart", name, value)
        return changes
