"""Conversion of tube policies from and to settings by name, and their validation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgpack

from beanstalkd_py.core.tube_policy import (
    BODY,
    BURY,
    DELETE,
    MOVE,
    Backoff,
    Rate,
    TubePolicy,
)
from beanstalkd_py.quantities import INT64_MAX, UINT32_MAX

MAX_PATTERN = 200
MAX_BYTES = 1 << 16
"""The maximum size of all policies in a message to a worker."""

NAMES = {field: field.replace("_", "-") for field in TubePolicy._fields[1:]}
"""The names of the settings by field of TubePolicy."""

_CHARACTERS = r"[-A-Za-z0-9+/;.$_()]"
_NAME = re.compile(rf"(?!-){_CHARACTERS}{{1,{MAX_PATTERN}}}")
_PATTERN = re.compile(rf"(?!-)(?:{_CHARACTERS}|\*|\?|\[!?{_CHARACTERS}+\])+")
_MAXIMA = dict.fromkeys(("max_jobs", "max_bytes", "max_reserved"), INT64_MAX)


def check_pattern(pattern: str) -> None:
    """Raise ValueError for an invalid pattern."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"a pattern has {MAX_PATTERN} characters at most")
    if not _PATTERN.fullmatch(pattern):
        raise ValueError(
            "invalid pattern; use the characters of tube names, *, ?, [abc], [a-z] and [!abc]"
        )


def check_action(text: str) -> None:
    """Raise ValueError for an invalid `then`."""
    moves = text.startswith(MOVE) and _NAME.fullmatch(text.removeprefix(MOVE))
    if not moves and text not in (BURY, DELETE):
        raise ValueError(f"invalid action {text!r}; use {BURY}, {DELETE} or {MOVE}TUBE")


def check_unique(text: str) -> None:
    """Raise ValueError for an invalid `unique`."""
    if text != BODY:
        raise ValueError(f"invalid value {text!r}; use {BODY}")


def check_size(policies: Sequence[TubePolicy]) -> None:
    """Raise ValueError if the policies do not fit into a message to a worker."""
    size = len(msgpack.packb(policies))
    if size > MAX_BYTES:
        raise ValueError(f"the policies have {size} bytes; the maximum is {MAX_BYTES}")


def policy_values(policy: TubePolicy) -> dict[str, str | int]:
    """Return the pattern and the settings that differ from their defaults, by name."""
    defaults = TubePolicy._field_defaults
    return {"pattern": policy.pattern} | {
        name: getattr(policy, field)
        for field, name in NAMES.items()
        if getattr(policy, field) != defaults[field]
    }


def policy_from(values: Mapping[str, object]) -> TubePolicy:
    """Return the policy with the values of `policy_values`. Raises ValueError."""
    fields: dict[str, object] = {}
    for name, value in values.items():
        field = name.replace("-", "_")
        if field not in TubePolicy._fields:
            raise ValueError(f"unknown setting {name!r}")
        if type(value) is not type(TubePolicy._field_defaults.get(field, "")):
            raise ValueError(f"{name}: invalid value {value!r}")
        if isinstance(value, int) and not 0 <= value <= _MAXIMA.get(field, UINT32_MAX):
            raise ValueError(f"{name}: {value} is out of range")
        fields[field] = value
    if "pattern" not in fields:
        raise ValueError("a policy needs a pattern")
    policy = TubePolicy(**fields)  # type: ignore[arg-type]
    check_pattern(policy.pattern)
    check_action(policy.then)
    if policy.unique:
        check_unique(policy.unique)
    if policy.release_backoff:
        Backoff.parse(policy.release_backoff)
    if policy.rate:
        Rate.parse(policy.rate)
    return policy
