"""The file of the binlog folder that has the progress of each schedule.

The server writes it after the reply to a put. A crash in between repeats the put of this tick, and
its key keeps the server from inserting a second job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.binlog.layout import SCHEDULES
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.history.files.layout import write_file
from beanstalkd_py.regular_file import read_regular
from beanstalkd_py.schedules.ticks import tick_text


@dataclass(frozen=True, slots=True)
class Progress:
    """The durable progress of one schedule, and the ticks to which it belongs.

    Times are epochs. `last` and `highest` are those of ScheduleState. `last_put` is the last tick
    whose job was put, or 0.
    """

    cron: str
    timezone: str
    last: int
    highest: int
    last_put: int = 0


def load_progress(folder: str) -> dict[str, Progress]:
    """Return the progress by name of schedule. Raises BinlogFolderError."""
    path = Path(folder) / SCHEDULES
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise errors.BinlogFolderError(f"cannot read {path}: {error.strerror}") from error
    try:
        return {str(name): _progress(values) for name, values in json.loads(data).items()}
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        text = f"cannot read {path}: {error!r}; correct or remove the file"
        raise errors.BinlogFolderError(text) from error


def save_progress(folder: str, progress: Mapping[str, Progress]) -> None:
    """Replace the file durably. Raises OSError."""
    values = {name: _values(one) for name, one in sorted(progress.items())}
    with creating_as_owner_of(folder):
        write_file(Path(folder) / SCHEDULES, json.dumps(values, indent=1).encode() + b"\n")


def _values(progress: Progress) -> dict[str, str]:
    return {
        "cron": progress.cron,
        "timezone": progress.timezone,
        "last": tick_text(progress.last),
        "highest": tick_text(progress.highest),
        "last-put": tick_text(progress.last_put) if progress.last_put else "",
    }


def _progress(values: Mapping[str, str]) -> Progress:
    return Progress(
        str(values["cron"]),
        str(values["timezone"]),
        _epoch(values["last"]),
        _epoch(values["highest"]),
        _epoch(values["last-put"]) if values["last-put"] else 0,
    )


def _epoch(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return int(moment.timestamp())
