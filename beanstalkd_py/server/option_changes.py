"""The difference between two sets of options, and which options a reload can change."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from beanstalkd_py.plural import counted
from beanstalkd_py.server.options import NS_PER_S, SYNC_NEVER, ServeOptions
from beanstalkd_py.server.tube_policies import policy_values

NS_PER_MS = 1_000_000

OptionValues = dict[str, object]
"""Values by the names of the command line, in the units of the command line."""

_RENAMED = {
    "policies": "tube",
    "slow_ns": "slow-log",
    "sync_interval_ns": "fsync-ms",
    "verbosity": "verbose",
}
FIELDS = {
    _RENAMED.get(one.name) or one.name.removesuffix("_ns").replace("_", "-"): one.name
    for one in fields(ServeOptions)
    if one.name != "address_given"
}
"""Fields of ServeOptions by the names of the command line."""

CHANGEABLE = (
    *("allow", "fsync-ms", "history-age", "history-backlog", "history-size", "idle-timeout"),
    *("log-format", "max-connections", "max-job-size", "max-memory", "max-tubes"),
    *("output-limit", "output-timeout", "send-timeout", "slow-log"),
    *("tls-ca", "tls-cert", "tls-key", "tube", "verbose"),
)
"""The options that a reload can change; others need a restart."""

_TIMES = ("history-age", "idle-timeout", "output-timeout", "send-timeout")
_LIMITS = ("body-memory", "history-size", "max-connections", "max-memory", "max-tubes")


@dataclass(slots=True)
class Changes:
    """New values: `applied` now, or `waiting` for a restart."""

    applied: OptionValues = field(default_factory=dict)
    waiting: OptionValues = field(default_factory=dict)


def option_values(options: ServeOptions) -> OptionValues:
    """Return the values of all options, sorted by name."""
    found = {name: getattr(options, FIELDS[name]) for name in sorted(FIELDS)}
    never = options.sync_interval_ns == SYNC_NEVER
    found["allow"] = ",".join(options.allow) or None
    found["colocate"] = options.colocate.decode() if options.colocate is not None else None
    found["fsync-ms"] = "never" if never else options.sync_interval_ns // NS_PER_MS
    found["slow-log"] = options.slow_ns // NS_PER_MS
    found["tls-processes"] = options.tls_processes or "auto"
    found["tube"] = [policy_values(one) for one in options.policies] or None
    found["workers"] = options.workers or "auto"
    found |= {name: _seconds(found[name]) for name in _TIMES}
    found |= {name: found[name] or None for name in _LIMITS}
    return found


def shown(value: object) -> str:
    """Return a value for people: of policies their number."""
    return counted(len(value), "policy") if isinstance(value, list) else str(value)


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
        # Without syncs no file has been made durable, and nothing is kept to catch up with.
        never = name == "fsync-ms" and "never" in (value, before[name])
        can = name in CHANGEABLE and not never
        (changes.applied if can else changes.waiting)[name] = value
    return changes
