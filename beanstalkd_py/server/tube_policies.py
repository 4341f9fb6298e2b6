"""Tube policies as settings: their names, and the check of patterns and of a whole table."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgpack

from beanstalkd_py.core.tube_policy import TubePolicy

MAX_PATTERN = 200
MOST_BYTES = 1 << 16
"""Of all policies as a message to a worker."""

NAMES = {field: field.replace("_", "-") for field in TubePolicy._fields[1:]}
"""The settings of a policy by the fields of TubePolicy."""

_CHARACTERS = r"[-A-Za-z0-9+/;.$_()]"
_PATTERN = re.compile(rf"(?!-)(?:{_CHARACTERS}|\*|\?|\[!?{_CHARACTERS}+\])+")


def check_pattern(pattern: str) -> None:
    """Raise ValueError for a pattern that is not valid or matches no name of a tube."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"a pattern has {MAX_PATTERN} characters at most")
    if not _PATTERN.fullmatch(pattern):
        raise ValueError(
            "invalid pattern; use the characters of tube names, *, ?, [abc], [a-z] and [!abc]"
        )


def check_size(policies: Sequence[TubePolicy]) -> None:
    """Raise ValueError for more policies than a message to a worker can have."""
    size = len(msgpack.packb(policies))
    if size > MOST_BYTES:
        raise ValueError(f"the policies have {size} bytes; the maximum is {MOST_BYTES}")


def policy_values(policy: TubePolicy) -> dict[str, str | int]:
    """Return the pattern and the settings that are not the default, by their names."""
    defaults = TubePolicy._field_defaults
    return {"pattern": policy.pattern} | {
        name: getattr(policy, field)
        for field, name in NAMES.items()
        if getattr(policy, field) != defaults[field]
    }
