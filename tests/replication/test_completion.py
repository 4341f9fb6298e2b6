"""The first server's workers get no stored position before the streams are complete (N2).

Their recovered jobs wait for that position, so no reply leaves before another server has them.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field

import pytest

from beanstalkd_py.core.shared_memory import BinlogPosition, stored_position
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process.channel import Channel, channel_pair
from beanstalkd_py.server.process.messages import ProcessConfig
from beanstalkd_py.server.process.shared_memory import SharedMemory, create_segment
from beanstalkd_py.server.replicator import process
from beanstalkd_py.server.replicator.process import Descriptors, Replicator

OFFERED = BinlogPosition(1, 4096)
NOTHING = BinlogPosition(0, 0)


@dataclass
class GatedNode:
    """A node whose second stream and whose completion wait for the test."""

    second_stored: asyncio.Event = field(default_factory=asyncio.Event)
    completed: asyncio.Event = field(default_factory=asyncio.Event)
    completions: int = 0

    async def store(self, worker: int, position: BinlogPosition) -> None:
        if worker == 1:
            await self.second_stored.wait()

    async def complete(self) -> None:
        self.completions += 1
        await self.completed.wait()

    async def record(self) -> None:
        """Nothing to record."""


def test_workers_wait_for_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "offered_position", lambda shared, worker: OFFERED)
    ours, theirs = channel_pair()
    shared = SharedMemory(create_segment())
    config = ProcessConfig(os.getpid(), "", 0.0, 0, ["a", "b"], ServeOptions())
    offered, stored = ([os.eventfd(0, os.EFD_NONBLOCK) for _ in "ab"] for _ in "ab")

    def positions() -> list[BinlogPosition | None]:
        return [stored_position(shared.pointer, worker) for worker in range(2)]

    async def run() -> None:
        descriptors = Descriptors(offered=offered, stored=stored)
        replicator = Replicator(Channel(theirs), shared, config, descriptors)
        node, first = GatedNode(), asyncio.Barrier(2)
        tasks = [
            asyncio.create_task(replicator._store(node, worker, first))  # type: ignore[arg-type]
            for worker in range(2)
        ]
        for fd in offered:
            os.eventfd_write(fd, 1)
        await asyncio.sleep(0.1)
        assert (positions(), node.completions) == ([NOTHING, NOTHING], 0)
        node.second_stored.set()
        await asyncio.sleep(0.1)
        assert (positions(), node.completions) == ([NOTHING, NOTHING], 1)
        node.completed.set()
        await asyncio.sleep(0.1)
        assert (positions(), node.completions) == ([OFFERED, OFFERED], 1)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    with ours, theirs:
        asyncio.run(run())
    for fd in (*offered, *stored):
        os.close(fd)
