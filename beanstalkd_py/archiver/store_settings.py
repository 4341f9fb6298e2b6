"""Settings of the archiver's store: file sizes, retention and file permissions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.history.files.layout import COMMIT_LOG, segment_starts
from beanstalkd_py.history.options import ARCHIVER_SIZES, Options, Retention, Sizes, load_sizes

ALL_HOURS = tuple(range(24))
DISK_CROWDED = 0.90
"""Disk usage from which the oldest messages are removed, whatever their age."""
DISK_FULL = 0.95
"""Disk usage from which nothing is archived."""
NEVER_S = float("inf")
UMASK = 0o027
"""Job bodies are readable by the server's user and its group only."""
FLUSH_S = 10.0
"""Interval of background syncs. The binlog keeps everything that is not synced yet."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The server's history options.

    Messages older than `age_s` seconds are removed; `most_bytes` limits the commit log. 0 means no
    limit. With `rocketmq_sizes` a new store gets files of RocketMQ's sizes.
    """

    folder: Path
    age_s: float = 0
    most_bytes: int = 0
    rocketmq_sizes: bool = False

    def options(self, background: bool = True) -> Options:
        """Return the options to open the store with.

        Every record has a checksum of all its bytes, so that recovery detects torn records. Raises
        StoreUsageError if `store.json` is invalid.
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
    """Give files created inside the block to the folder's owner, readable by the folder's group."""
    before = os.umask(UMASK)
    try:
        with creating_as_owner_of(folder):
            yield
    finally:
        os.umask(before)
