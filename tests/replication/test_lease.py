"""The lease as another server observes it."""

from __future__ import annotations

import asyncio

import pytest
from replication.memory_log import MemoryCluster, MemoryLog

from beanstalkd_py.replication.lease import Holder, Lease

LEASE_S = 0.02

pytestmark = pytest.mark.usefixtures("short_times")


def test_only_another_primary_is_a_change() -> None:
    log = MemoryLog(MemoryCluster())
    found: list[Holder | None] = []

    async def test() -> None:
        observer = Lease(log, "b1", "b:1", LEASE_S)
        observer.primary_changed = found.append
        assert await observer.observe()
        one = Lease(log, "a1", "a:1", LEASE_S)
        await one.observe()
        await one.take()
        for _ in range(3):  # a renewal is no change
            await observer.observe()
            await one.renew()
        assert found == [Holder("a1", "a:1", 0, LEASE_S)]
        await one.give_up()
        await observer.observe()
        assert found[1:] == [None]
        again = Lease(log, "a2", "a:1", LEASE_S)
        await again.observe()
        await again.take()
        await observer.observe()
        assert found[2:] == [Holder("a2", "a:1", 0, LEASE_S)]
        # At the same address as another process: the lease may still name one before a restart.
        restarted = Lease(log, "a3", "a:1", LEASE_S)
        restarted.primary_changed = found.append
        await restarted.observe()
        assert len(found) == 3

    asyncio.run(test())
