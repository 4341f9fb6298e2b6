"""The binlog's entries of one live job, read from the files of a running server."""

from __future__ import annotations

import contextlib
import json
import math
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
AGAIN_S = 20.0
"""Files that took too long are read again after this time: the machine may have been busy."""
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
    return _lookup(target.binlog, job, int(stats["file"]), as_of).entries()


@lru_cache(maxsize=64)
def _lookup(binlog: Path, job: int, first: int, _as_of: tuple[str, ...]) -> _Lookup:
    """Return another one when the job has changed."""
    return _Lookup(binlog, job, first)


class _Lookup:
    """Reads the files from the one with the job's body on, and again if that took too long."""

    def __init__(self, binlog: Path, job: int, first: int) -> None:
        self._binlog, self._job, self._first = binlog, job, first
        self._found: list[JobEntry] | None = None
        self._again_mono = -math.inf

    def entries(self) -> Sequence[JobEntry]:
        if self._found is None and time.monotonic() >= self._again_mono:
            self._found = self._read(time.monotonic() + READ_S)
            self._again_mono = time.monotonic() + AGAIN_S
        return self._found or []

    def _read(self, end_mono: float) -> list[JobEntry] | None:
        selection = Selection(as_json=True, ids=(self._job,))
        text = bytearray()
        try:
            for shard in inspect_files(self._binlog).shards:
                with contextlib.closing(Walk(replace(shard, first=self._first), selection)) as walk:
                    for _ in walk.read(text.extend):
                        if time.monotonic() > end_mono:
                            return None
        except (OSError, errors.BinlogFolderError):
            return None
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
