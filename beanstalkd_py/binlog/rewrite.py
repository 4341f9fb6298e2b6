"""Write the live jobs of a shard to new files, for repair and compact."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from beanstalkd_py.binlog.file_walk import Damage, FileRead, Walk
from beanstalkd_py.binlog.folders import Folder
from beanstalkd_py.binlog.steps import Steps
from beanstalkd_py.core.binlog_reader import Written

PIECE_BYTES = 1 << 24
"""Bytes read between two progress updates."""


@dataclass
class ReadShard:
    """A shard that was read; `walk` has its jobs."""

    walk: Walk
    files: list[FileRead] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of its entries."""
        return sum(file.facts.end for file in self.files if file.facts)


@contextlib.contextmanager
def read_shards(folder: Folder) -> Iterator[list[ReadShard]]:
    """Read every shard to its end. Raises OSError."""
    with contextlib.ExitStack() as stack:
        shards = []
        for shard in folder.shards:
            read = ReadShard(Walk(shard))
            stack.callback(read.walk.close)
            for result in read.walk:
                if isinstance(result, Damage):
                    read.damage.append(result)
                else:
                    read.files.append(result)
            shards.append(read)
        yield shards


def reason_of(error: OSError) -> str:
    """Return the cause of an error for operators."""
    if error.errno == errno.ESTALE:
        return "its files changed while they were read"
    return str(error.strerror)


def write_jobs(
    read: ReadShard, target: Path, first: int, suffix: str, file_size: int, steps: Steps
) -> Written:
    """Write and sync the files binlog.<first>... with `suffix`, but not their folder.

    `file_size` is bytes. Raises OSError, ESTALE if the old files changed since they were read.
    """
    steps.before(f"rewrite {target}")
    rewrite = read.walk.reader.rewrite(str(target), first, suffix, file_size, time.time_ns())
    with contextlib.closing(rewrite), steps.progress(read.size) as advance:
        while rewrite.run(PIECE_BYTES):
            steps.before("rewrite on")
            advance(rewrite.written().read)
        advance(read.size)
        return rewrite.written()
