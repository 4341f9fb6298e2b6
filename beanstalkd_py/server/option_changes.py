"""The difference between two sets of options, and which options a reload can change."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from beanstalkd_py.plural import counted
from beanstalkd_py.quantities import NS_PER_S
from beanstalkd_py.schedules.schedule import schedule_values
from beanstalkd_py.server.options import SYNC_NEVER, ServeOptions
from beanstalkd_py.server.tube_policies import policy_values

NS_PER_MS = 1_000_000

OptionValues = dict[str, object]
"""Values by the names of the command line, in the units of the command line."""

_RENAMED = {
    "policies": "tube",
    "schedules": "schedule",
    "slow_ns": "slow-log",
    "sync_interval_ns": "fsync-ms",
    "verbosity": "verbose",
}
FIELDS = {
    _RENAMED.get(field.name) or field.name.removesuffix("_ns").replace("_", "-"): field.name
    for field in dataclasses.fields(ServeOptions)
    if field.name != "address_given"
}
"""Fields of ServeOptions by the names of the command line."""

CHANGEABLE = (
    *("allow", "fsync-ms", "history-age", "history-backlog", "history-size", "idle-timeout"),
    *("log-format", "max-connections", "max-job-size", "max-memory", "max-tubes"),
    *("output-limit", "output-timeout", "replicate-timeout", "schedule", "send-timeout"),
    *("slow-log", "tls-ca", "tls-cert", "tls-key", "tube", "verbose"),
)
"""The options that a reload can change; others need a restart."""

_TIMES = (
    *("history-age", "idle-timeout", "output-timeout"),
    *("replicate-keep", "replicate-lease", "replicate-timeout", "send-timeout"),
)
_LIMITS = ("body-memory", "history-size", "max-connections", "max-memory", "max-tubes")


@dataclass(slots=True)
class Changes:
    """New values: `applied` now, or `waiting` for a restart."""

    applied: OptionValues = dataclasses.field(default_factory=dict)
    waiting: OptionValues = dataclasses.field(default_factory=dict)


def option_values(options: ServeOptions) -> OptionValues:
    """Return the values of all options, sorted by name."""
    values = {name: getattr(options, FIELDS[name]) for name in sorted(FIELDS)}
    never = options.sync_interval_ns == SYNC_NEVER
    values["allow"] = ",".join(options.allow) or None
    values["colocate"] = options.colocate.decode() if options.colocate is not None else None
    values["console-host"] = ",".join(options.console_host) or None
    values["fsync-ms"] = "never" if never else options.sync_interval_ns // NS_PER_MS
    values["schedule"] = [schedule_values(one) for one in options.schedules] or None
    values["slow-log"] = options.slow_ns // NS_PER_MS
    values["tls-processes"] = options.tls_processes or "auto"
    values["tube"] = [policy_values(policy) for policy in options.policies] or None
    values["workers"] = options.workers or "auto"
    values |= {name: _seconds(values[name]) for name in _TIMES}
    values |= {name: values[name] or None for name in _LIMITS}
    return values


def value_text(name: str, value: object) -> str:
    """Return the value of an option for a message; tables become their number."""
    if isinstance(value, list):
        return counted(len(value), "policy" if name == "tube" else name)
    return str(value)


def _seconds(nanoseconds: int) -> float | int | None:
    """Return an int for whole seconds, because the option was written as one."""
    whole, rest = divmod(nanoseconds, NS_PER_S)
    return (nanoseconds / NS_PER_S if rest else whole) or None


def compare(old: ServeOptions, new: ServeOptions) -> Changes:
    before, after = option_values(old), option_values(new)
    changes = Changes()
    for name, value in after.items():
        if value == before[name]:
            continue
        # With "never" the server keeps no record of unsynced files, so it cannot sync them later.
        never = name == "fsync-ms" and "never" in (value, before[name])
        is_applied = name in CHANGEABLE and not never
        (changes.applied if is_applied else changes.waiting)[name] = value
    return changes
