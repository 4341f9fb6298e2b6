"""Schedules in a configuration file: `[schedule.nightly]`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from beanstalkd_py.admin.tube_name import TUBE_NAMES, is_tube_name
from beanstalkd_py.cli.argument_types import ArgumentType, Number
from beanstalkd_py.quantities import UINT32_MAX, whole_seconds
from beanstalkd_py.schedules.schedule import (
    CATCH_UPS,
    NAMES,
    Schedule,
    is_schedule_name,
    schedule_values,
)

TABLE = "schedule"
OPTION = "--schedules"
"""A hidden option with the checked schedules as JSON, so that a file is read by one mechanism."""

_REQUIRED = ("cron", "tube")


def _tube(text: str) -> str:
    if not is_tube_name(text):
        raise ValueError(f"invalid tube name {text[:200]!r}; use {TUBE_NAMES}")
    return text


def _catch_up(text: str) -> str:
    if text not in CATCH_UPS:
        raise ValueError(f"invalid value {text!r}; use {', '.join(CATCH_UPS)}")
    return text


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "cron": str,
    "timezone": str,
    "tube": _tube,
    "body": str,
    "priority": Number("a priority", 0, UINT32_MAX).parse,
    "ttr": lambda text: whole_seconds(text, 1),
    "delay": lambda text: whole_seconds(text, 0),
    "catch-up": _catch_up,
}


def parse_schedule(name: str, settings: Mapping[str, Any]) -> Schedule:
    """Raises ValueError."""
    if not is_schedule_name(name):
        raise ValueError(f"invalid name; use {NAMES}")
    fields: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in _PARSERS:
            known = ", ".join(sorted(_PARSERS))
            raise ValueError(f"unknown setting {key!r}; known settings are {known}")
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise ValueError(f"{key}: must be a string or an integer")
        try:
            fields[key.replace("-", "_")] = _PARSERS[key](str(value))
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error
    for key in _REQUIRED:
        if key not in fields:
            raise ValueError(f"missing setting {key!r}")
    schedule = Schedule(name, **fields)
    _check_ticks(schedule)
    return schedule


def _check_ticks(schedule: Schedule) -> None:
    from beanstalkd_py.schedules.ticks import Ticks, find_zone

    try:
        find_zone(schedule.timezone)
    except ValueError as error:
        raise ValueError(f"timezone: {error}") from error
    try:
        ticks = Ticks(schedule.cron, schedule.timezone)
    except ValueError as error:
        raise ValueError(f"cron: {error}") from error
    if ticks.after(int(time.time())) is None:
        raise ValueError(f"cron: {schedule.cron!r} has no tick in 50 years; correct its days")


def parse_table(table: Any) -> tuple[Schedule, ...]:
    """Return the schedules of a file's table `schedule`. Raises ValueError."""
    if not isinstance(table, dict):
        raise ValueError(f"{TABLE}: must be tables such as [{TABLE}.nightly]")
    schedules = []
    for name, settings in table.items():
        where = f"{TABLE}.{name if is_schedule_name(name) else json.dumps(name)}"
        if not isinstance(settings, dict):
            raise ValueError(f"{where}: must be a table; write [{TABLE}.nightly]")
        try:
            schedules.append(parse_schedule(name, settings))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    return tuple(schedules)


class SchedulesType(ArgumentType):
    """Schedules as `words_of_table` encodes them."""

    name = "json"

    def parse(self, text: str) -> tuple[Schedule, ...]:
        return tuple(Schedule(**fields) for fields in json.loads(text))


def words_of_table(table: Any) -> list[str]:
    """Return a file's schedules as an argument of a command line. Raises ValueError."""
    return [f"{OPTION}={json.dumps([asdict(schedule) for schedule in parse_table(table)])}"]


def check_bodies(schedules: tuple[Schedule, ...], max_job_size: int) -> None:
    """Raise ValueError for a body that the server would reject."""
    for schedule in schedules:
        size = len(schedule.body.encode())
        if size > max_job_size:
            raise ValueError(
                f"{TABLE}.{schedule.name}: body has {size} bytes, more than max-job-size"
                f" {max_job_size}; shorten it or raise max-job-size"
            )


assert {*_PARSERS, "name"} == set(schedule_values(Schedule("", "", "")))
