"""The binlog's entries of one live job, read from the files of a running server."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.admin.statistics import Statistics
from beanstalkd_py.binlog.file_walk import Walk
from beanstalkd_py.binlog.folders import inspect_files
from beanstalkd_py.console.target import Target
from beanstalkd_py.core.binlog_reader import Selection

READ_S = 0.1
"""Files are not read for longer, so that a large binlog does not keep the console from others."""
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")


@dataclass(frozen=True, slots=True)
class JobEntry:
    """One entry. Times are seconds since 1970; None if the server that wrote it recorded none.

    `counters` are those of `COUNTERS`, after the event. `delay_s` is that of the job.
    """

    state: str
    event_at: float | None
    reserved_at: float | None
    pri: int
    delay_s: int
    counters: tuple[int, ...]


def entries_of_job(target: Target, job: int, stats: Statistics) -> Sequence[JobEntry]:
    """Return [] if the server has no binlog here, or one that cannot be read in time."""
    if target.binlog is None or stats["file"] == "0":
        return []
    as_of = tuple(stats[name] for name in ("state", "pri", "delay", *COUNTERS))
    return _read(target.binlog, job, int(stats["file"]), as_of)


@lru_cache(maxsize=64)
def _read(binlog: Path, job: int, first: int, as_of: tuple[str, ...]) -> Sequence[JobEntry]:
    """Read the files from the one with the job's body on, again when the job changes."""
    end_mono = time.monotonic() + READ_S
    selection = Selection(as_json=True, ids=(job,))
    text = bytearray()
    try:
        for shard in inspect_files(binlog).shards:
            with contextlib.closing(Walk(replace(shard, first=first), selection)) as walk:
                for _ in walk.read(text.extend):
                    if time.monotonic() > end_mono:
                        return []
    except (OSError, errors.BinlogFolderError):
        return []
    return list(_entries(bytes(text)))


def _entries(text: bytes) -> Iterator[JobEntry]:
    for line in text.splitlines():
        values: dict[str, Any] = json.loads(line)
        yield JobEntry(
            values["state"],
            _seconds(values["event_at"]),
            _seconds(values["reserved_at"]),
            values["pri"],
            values["delay_s"],
            tuple(values[name] for name in COUNTERS),
        )


def _seconds(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()
