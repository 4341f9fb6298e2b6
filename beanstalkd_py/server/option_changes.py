"""The difference between two sets of options, and which options a reload can change."""

from __future__ import annotations

from dataclasses import dataclass, field

from beanstalkd_py.server.options import NS_PER_S, SYNC_NEVER, ServeOptions

NS_PER_MS = 1_000_000

OptionValues = dict[str, object]
"""Values by the names of the command line, in the units of the command line."""

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
"""Fields of ServeOptions by the names of the command line; other options need a restart."""


@dataclass(slots=True)
class Changes:
    """New values: `applied` now, or `waiting` for a restart."""

    applied: OptionValues = field(default_factory=dict)
    waiting: OptionValues = field(default_factory=dict)


def shown(options: ServeOptions) -> OptionValues:
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
    """Return an int for whole seconds, because the option was written as one."""
    whole, rest = divmod(nanoseconds, NS_PER_S)
    return (nanoseconds / NS_PER_S if rest else whole) or None


def compare(old: ServeOptions, new: ServeOptions) -> Changes:
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
