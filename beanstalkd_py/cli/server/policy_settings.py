"""Tube policies in a configuration file: `[tube."mails.*"]`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from beanstalkd_py.admin.tube_name import is_tube_name
from beanstalkd_py.cli.argument_types import (
    INT64_MAX,
    NS_PER_S,
    UINT32_MAX,
    ArgumentType,
    Bytes,
    Duration,
    Number,
)
from beanstalkd_py.core.tube_policy import BODY, BURY, DELETE, MOVE, Backoff, Rate, TubePolicy
from beanstalkd_py.server.tube_policies import NAMES, check_pattern, check_size

TABLE = "tube"
OPTION = "--tube-policies"
"""A hidden option with the checked policies as JSON, so that a file is read by one mechanism."""


def whole_seconds(minimum: int) -> Callable[[str], int]:
    """Return the parser of a time of at least `minimum` seconds."""

    def parse(text: str) -> int:
        nanoseconds = Duration().parse(text)
        if nanoseconds % NS_PER_S or not minimum * NS_PER_S <= nanoseconds:
            raise ValueError(f"invalid time {text!r}; use whole seconds, at least {minimum}")
        return min(nanoseconds // NS_PER_S, UINT32_MAX)

    return parse


def _checked_by(check: Callable[[str], object]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        check(text)
        return text

    return parse


def _then(text: str) -> str:
    if text in (BURY, DELETE):
        return text
    if text.startswith(MOVE) and is_tube_name(text.removeprefix(MOVE)):
        return text
    raise ValueError(f"invalid action {text!r}; use {BURY}, {DELETE} or {MOVE}TUBE")


def _unique(text: str) -> str:
    if text != BODY:
        raise ValueError(f"invalid value {text!r}; use {BODY}")
    return text


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "max-jobs": Number("a number of jobs", 1, INT64_MAX).parse,
    "max-bytes": Bytes(1).parse,
    "default-ttr": whole_seconds(1),
    "max-delay": whole_seconds(0),
    "max-reserves": Number("a number of reserves", 1, UINT32_MAX).parse,
    "then": _then,
    "release-backoff": _checked_by(Backoff.parse),
    "max-reserved": Number("a number of jobs", 1, INT64_MAX).parse,
    "rate": _checked_by(Rate.parse),
    "expires": whole_seconds(1),
    "unique": _unique,
}


def parse_policy(pattern: str, settings: Mapping[str, Any]) -> TubePolicy:
    """Raises ValueError."""
    check_pattern(pattern)
    fields: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in _PARSERS:
            known = ", ".join(sorted(_PARSERS))
            raise ValueError(f"unknown setting {name!r}; known settings are {known}")
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise ValueError(f"{name}: must be a string or an integer")
        try:
            fields[name.replace("-", "_")] = _PARSERS[name](str(value))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    if "then" in fields and "max_reserves" not in fields:
        raise ValueError("then: requires max-reserves")
    return TubePolicy(pattern, **fields)


def parse_table(table: Any) -> tuple[TubePolicy, ...]:
    """Return the policies of a file's table `tube`. Raises ValueError."""
    if not isinstance(table, dict):
        raise ValueError(f'{TABLE}: must be tables such as [{TABLE}."mails.*"]')
    policies = []
    for pattern, settings in table.items():
        where = f"{TABLE}.{json.dumps(pattern)}"
        if not isinstance(settings, dict):
            raise ValueError(f"{where}: must be a table; quote a pattern that has dots")
        try:
            policies.append(parse_policy(pattern, settings))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    try:
        check_size(policies)
    except ValueError as error:
        raise ValueError(f"{TABLE}: {error}") from error
    return tuple(policies)


class PoliciesType(ArgumentType):
    """Policies as `words_of_table` encodes them."""

    name = "json"

    def parse(self, text: str) -> tuple[TubePolicy, ...]:
        return tuple(TubePolicy._make(fields) for fields in json.loads(text))


def words_of_table(table: Any) -> list[str]:
    """Return the policies of a file's table as an argument of a command line. Raises ValueError."""
    return [f"{OPTION}={json.dumps(parse_table(table))}"]


assert set(_PARSERS) == set(NAMES.values())
