"""How the archiver has its store: sizes of files, and when the oldest messages go.

Must not know what is archived.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.history.files.layout import COMMIT_LOG, segment_starts
from beanstalkd_py.history.options import (
    ARCHIVER_SIZES,
    Options,
    Retention,
    Sizes,
    load_sizes,
)

ALL_HOURS = tuple(range(24))
DISK_CROWDED = 0.90
"""From here on the oldest messages go, whatever their age."""
DISK_FULL = 0.95
"""From here on nothing is archived."""
NEVER_S = float("inf")
UMASK = 0o027
"""Bodies of jobs are for the server's user, and for its group to read."""
FLUSH_S = 10.0
"""Between two syncs that nothing asks for. The binlog has all of it until the archiver syncs."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the server has said of its history.

    `age_s` is seconds after which messages go, `most_bytes` what the log may have; 0 is no limit.
    `rocketmq_sizes`: a new store gets files of RocketMQ's sizes.
    """

    folder: Path
    age_s: float = 0
    most_bytes: int = 0
    rocketmq_sizes: bool = False

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Self:
        """From a message of the server, which has a `folder` in bytes, and maybe more."""
        values = {each.name: said[each.name] for each in fields(cls)}
        return cls(**{**values, "folder": Path(said["folder"].decode("utf-8", "surrogateescape"))})

    def options(self, background: bool = True) -> Options:
        """How to open the store. StoreUsageError if its description says nothing useful.

        Each message has a checksum of all of itself, so that a torn one is known after a crash.
        """
        sizes = None
        if load_sizes(self.folder) is None and not segment_starts(self.folder / COMMIT_LOG):
            sizes = replace(Sizes() if self.rocketmq_sizes else ARCHIVER_SIZES, property_crc=True)
        return Options(
            sizes=sizes,
            max_body_bytes=Sizes().segment_bytes,
            retention=self.retention(),
            background=background,
            flush_interval_seconds=FLUSH_S,
            queue_flush_seconds=FLUSH_S,
        )

    def retention(self) -> Retention:
        """When the oldest messages go."""
        return Retention(
            reserved_seconds=self.age_s or NEVER_S,
            at_hours=ALL_HOURS,
            disk_used=DISK_CROWDED,
            disk_crowded=DISK_CROWDED,
            disk_full=DISK_FULL,
            most_bytes=self.most_bytes,
        )


@contextlib.contextmanager
def writing_history(folder: Path) -> Iterator[None]:
    """Files created inside the block belong to the folder's owner and are readable by its group."""
    before = os.umask(UMASK)
    try:
        with creating_as_owner_of(folder):
            yield
    finally:
        os.umask(before)
