"""The lease as another server observes it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import pytest
from replication.memory_log import MemoryCluster, MemoryLog

from beanstalkd_py.replication.lease import Holder, Lease
from beanstalkd_py.replication.log import Record

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
        assert found[2:] == [Holder("a2", "a:1", 0, LEASE_S, failovers=1)]
        # At the same address as another process: the lease may still name one before a restart.
        restarted = Lease(log, "a3", "a:1", LEASE_S)
        restarted.primary_changed = found.append
        await restarted.observe()
        assert len(found) == 3

    asyncio.run(test())


def test_failovers_are_counted() -> None:
    log = MemoryLog(MemoryCluster())

    async def failovers_after_take(lease: Lease) -> int:
        await lease.observe()
        assert await lease.take()
        return lease.failovers

    async def test() -> None:
        one, two = Lease(log, "a", "a:1", LEASE_S), Lease(log, "b", "b:1", LEASE_S)
        assert await failovers_after_take(one) == 0
        await one.give_up()
        assert await failovers_after_take(two) == 1
        # It does not know that it took the lease.
        assert await failovers_after_take(Lease(log, "b", "b:1", LEASE_S)) == 1
        assert await failovers_after_take(Lease(log, "a2", "a:1", 0.0)) == 2

    asyncio.run(test())


def test_fields_of_later_versions_are_ignored() -> None:
    """During an upgrade servers of two versions share a queue."""
    holder = Holder("node", "a:1", 7, 12.0)
    later = {**asdict(holder), "added_later": [1]}
    assert Record(later, 1).decode(Holder) == holder
