"""The binlog as it was at an earlier time, from the streams of a replicated queue.

A stream begins with the oldest file that the primary had when it purged the last time. So it has
all files of any later time, and not those of an earlier one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.binlog.layout import GUARD_TARGET, LAYOUT, LOCK, WHOLE, Layout, shard_name
from beanstalkd_py.binlog.new_folder import NewFolder
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.binlog.steps import Steps
from beanstalkd_py.replication.cluster_status import read_configuration
from beanstalkd_py.replication.folder_copy import CopyState, FolderCopy
from beanstalkd_py.replication.log import CONFIGURATION, Log, LogUnavailableError
from beanstalkd_py.replication.piece import Piece

ATTEMPTS = 40
RETRY_S = 0.25


async def restore(log: Log, folder: Path, at_ns: int, steps: Steps | None = None) -> int:
    """Write the binlog of a time to a missing or empty folder; return the number of workers.

    After an error or a kill the folder is as before. Raises ToolUsageError if NATS does not have
    all files of that time, ReplicationError, LogUnavailableError, OSError.
    """
    steps = steps or Steps()
    new = NewFolder(folder, steps)
    new.check()
    if at_ns > time.time_ns():
        raise errors.ToolUsageError(f"{_text(at_ns)} is in the future")
    configuration = await read_configuration(log)
    if not configuration.is_complete:
        raise errors.ToolUsageError("NATS does not have all jobs of the first server of this queue")
    colocate = configuration.colocate
    separator = None if colocate is None else colocate.encode("latin-1")
    layout = Layout.wanted(configuration.workers, separator)
    below = [] if layout == WHOLE else [shard_name(number) for number in range(layout.workers)]
    earliest_ns = await log.changed_ns(CONFIGURATION)  # nothing changes it when it is complete
    with creating_as_owner_of(new.like):
        new.begin(below)
        try:
            for worker, name in enumerate(below or [""]):
                stream = _Stream(log, worker, new.staging / name)
                earliest_ns = max(earliest_ns, await stream.copy_until(at_ns))
            if earliest_ns > at_ns:
                raise errors.ToolUsageError(
                    f"NATS does not have all files of {_text(at_ns)} any more; the earliest"
                    f" possible time is {_text(earliest_ns)}"
                )
        except errors.BeanstalkdError:
            new.discard()
            raise
        if layout != WHOLE:
            steps.write(new.staging / LAYOUT, layout.to_bytes())
            steps.link(new.staging / LOCK, Path(GUARD_TARGET))
        new.put_in_place(below)
    return layout.workers


def _text(wall_ns: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=wall_ns // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class _Start:
    """The first file of a stream, and the message since which the primary has no older one.

    `sequence` is 0 as long as no such message was read.
    """

    file: int
    sequence: int = 0


class _Stream:
    """One worker's stream, and the folder for its files."""

    def __init__(self, log: Log, worker: int, folder: Path) -> None:
        self._log = log
        self._worker = worker
        self._copy = FolderCopy(folder, CopyState())
        self._read = CopyState()
        """The end of what was read, which may be more than the copy has."""

    async def copy_until(self, at_ns: int) -> int:
        """Write the files of a time; return the earliest time for which that is possible.

        If that is later, what is in the folder is of no use.
        """
        ends = await self._log.ends(self._worker)
        last = await self._last_until(ends.first, ends.last, at_ns)
        after = ends.first - 1
        start: _Start | None = None
        while after < ends.last and not (start and start.sequence and after >= last):
            for sequence, piece in await self._next(after, ends.last):
                start = start or _Start(piece.file)
                if not start.sequence and piece.first >= start.file:
                    start.sequence = sequence
                if sequence <= last:
                    self._copy.apply(piece, sequence)
                self._count(piece, sequence)
                after = sequence
        if start is None or not start.sequence:
            raise errors.ReplicationError("the streams were purged by something else")
        self._copy.cut()
        return 0 if start.sequence <= last else await self._stored_ns(start.sequence)

    def _count(self, piece: Piece, sequence: int) -> None:
        if sequence != self._read.sequence + 1:
            self._read.files.clear()
        self._read.add(piece, sequence)

    async def _last_until(self, first: int, last: int, at_ns: int) -> int:
        """Return the last message that was stored at this time or before, first - 1 for none."""
        low, high = first - 1, last
        while low < high:
            middle = (low + high + 1) // 2
            if await self._stored_ns(middle) <= at_ns:
                low = middle
            else:
                high = middle - 1
        return low

    async def _stored_ns(self, sequence: int) -> int:
        return await self._log.stored_ns(self._worker, sequence)

    async def _next(self, after: int, last: int) -> list[tuple[int, Piece]]:
        """Read the next messages. Raises ToolUsageError if the primary purges them meanwhile."""
        for _ in range(ATTEMPTS):
            with contextlib.suppress(LogUnavailableError):
                return await self._log.read(self._worker, after, last, self._read)
            ends = await self._log.ends(self._worker)
            if ends.first > after + 1:
                raise errors.ToolUsageError(
                    "the primary has removed files while they were read; repeat the command"
                )
            await asyncio.sleep(RETRY_S)
        raise LogUnavailableError(f"NATS: no answer for {ATTEMPTS * RETRY_S:.0f} s")
