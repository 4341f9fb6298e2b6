"""A schedule: a job that the server puts again and again. Imports nothing slow."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

CATCH_UP_ONE = "one"
CATCH_UP_ALL = "all"
CATCH_UP_NONE = "none"
CATCH_UPS = (CATCH_UP_ONE, CATCH_UP_ALL, CATCH_UP_NONE)

MAX_NAME = 64
NAMES = f"1 to {MAX_NAME} letters, digits or - _ ."
_NAME = re.compile(rf"[-A-Za-z0-9_.]{{1,{MAX_NAME}}}")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A checked schedule. Times are seconds. Priority and TTR default to those of `put`."""

    name: str
    cron: str
    tube: str
    timezone: str = "UTC"
    body: str = ""
    priority: int = 65536
    ttr: int = 60
    delay: int = 0
    catch_up: str = CATCH_UP_ONE
    """How missed ticks are caught up: one of CATCH_UPS."""


def is_schedule_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def schedule_values(schedule: Schedule) -> dict[str, str | int]:
    """Return all settings by the names of the configuration file, and the name."""
    return {field.replace("_", "-"): value for field, value in asdict(schedule).items()}
