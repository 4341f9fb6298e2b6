"""A core whose replicator is a thread of the test, and the copy that a standby would have."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from binlog.workload import Actor, check
from core.rig import Rig
from replication.memory_log import MemoryCluster, MemoryLog

from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.shared_memory import (
    BinlogPosition,
    new_shared,
    offered_position,
    publish_stored_position,
)
from beanstalkd_py.replication.folder_copy import CopyState, FolderCopy
from beanstalkd_py.replication.log import LogUnavailableError
from beanstalkd_py.replication.stream_writer import StreamWriter

FILE = 4096
POLL_S = 0.01
FLAGS = os.EFD_NONBLOCK | os.EFD_CLOEXEC


class Replicator:
    """Stores what a core offers while `holding` is not set."""

    def __init__(self, log: MemoryLog, folder: Path, epoch: int = 1) -> None:
        self.shared = new_shared()
        self.offered, self._stored = os.eventfd(0, FLAGS), os.eventfd(0, FLAGS)
        self.holding = threading.Event()
        self._ended = threading.Event()
        self._log = log
        state = read_state(log)
        self._writer = StreamWriter(log, 0, folder, state)
        asyncio.run(self._writer.fence(epoch))
        self._stored_position = BinlogPosition(0, 0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def replicate(self, core: Core) -> None:
        """Make this the replicator of a core, before it recovers."""
        core.replicate(os.dup(self.offered), os.dup(self._stored))
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            position = offered_position(self.shared, 0)
            if self.holding.is_set() or position is None or position <= self._stored_position:
                select.select([self.offered], [], [], POLL_S)
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self.offered)
                continue
            asyncio.run(self._store(position))
            self._stored_position = position
            publish_stored_position(self.shared, 0, position)
            os.eventfd_write(self._stored, 1)

    async def _store(self, position: BinlogPosition) -> None:
        await self._writer.write_until(position)
        self._log.deliver()
        with contextlib.suppress(LogUnavailableError):
            await self._writer.purge()

    def has_offer(self) -> bool:
        position = offered_position(self.shared, 0)
        return position is not None and position > self._stored_position

    def close(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self.offered)
        os.close(self._stored)


def read_state(log: MemoryLog) -> CopyState:
    """Return the end of the stream, as a reader of all messages computes it."""
    state = CopyState()
    for sequence, piece in sorted(log.cluster.streams[0].messages.items()):
        if sequence != state.sequence + 1:
            state.files.clear()
        state.add(piece, sequence)
    return state


@contextlib.contextmanager
def replicated(
    folder: Path,
    log: MemoryLog | None = None,
    epoch: int = 1,
    file_size: int = FILE,
    history: bool = False,
    kind: type[Replicator] = Replicator,
) -> Iterator[tuple[Core, Replicator]]:
    """Yield a recovered core and its replicator."""
    log = MemoryLog(MemoryCluster()) if log is None else log
    replicator = kind(log, folder, epoch)
    config = CoreConfig(str(folder), file_size, history=history)
    core = Core(config, replicator.shared)
    try:
        replicator.replicate(core)
        core.recover()
        yield core, replicator
    finally:
        core.close()
        replicator.close()


class Standby:
    """A copy of the stream in `folder`."""

    def __init__(self, log: MemoryLog, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.copy = FolderCopy(folder, CopyState())
        self._log = log

    def follow(self) -> None:
        messages = self._log.cluster.streams[0].messages
        for sequence in sorted(messages):
            if sequence > self.copy.state.sequence:
                self.copy.apply(messages[sequence], sequence)

    def check(self, actor: Actor, scratch: Path) -> None:
        """Check that a server that starts on the copy has the actor's jobs."""
        self.copy.sync()
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(self.copy.folder, scratch)
        with Rig(scratch, file_size=FILE) as rig:
            check([actor], rig)
