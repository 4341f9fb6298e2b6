"""Settings of a tube policy as texts: those of a configuration file, a command and a form."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from beanstalkd_py.core.tube_policy import Backoff, Rate, TubePolicy
from beanstalkd_py.quantities import INT64_MAX, UINT32_MAX, bytes_of, number_of, whole_seconds
from beanstalkd_py.server.tube_policies import NAMES, check_action, check_pattern, check_unique


def _number(what: str, maximum: int) -> Callable[[str], int]:
    return lambda text: number_of(text, what, 1, maximum)


def _seconds(minimum: int) -> Callable[[str], int]:
    return lambda text: whole_seconds(text, minimum)


def _checked_by(check: Callable[[str], object]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        check(text)
        return text

    return parse


_PARSERS: Mapping[str, Callable[[str], str | int]] = {
    "max-jobs": _number("a number of jobs", INT64_MAX),
    "max-bytes": lambda text: bytes_of(text, 1),
    "default-ttr": _seconds(1),
    "max-delay": _seconds(0),
    "max-reserves": _number("a number of reserves", UINT32_MAX),
    "then": _checked_by(check_action),
    "release-backoff": _checked_by(Backoff.parse),
    "max-reserved": _number("a number of jobs", INT64_MAX),
    "rate": _checked_by(Rate.parse),
    "expires": _seconds(1),
    "unique": _checked_by(check_unique),
}


def parse_policy(pattern: str, settings: Mapping[str, object]) -> TubePolicy:
    """Raises ValueError."""
    check_pattern(pattern)
    fields: dict[str, str | int] = {}
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
    return TubePolicy(pattern, **fields)  # type: ignore[arg-type]


assert set(_PARSERS) == set(NAMES.values())
