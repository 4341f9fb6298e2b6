"""The files beside the binlog of servers on a log in memory: no acknowledged change is lost."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from replication.memory_log import MemoryCluster, MemoryLog
from replication.test_node import begin_queue, follow, new_node, primary, run

from beanstalkd_py.binlog.layout import POLICIES, SCHEDULES
from beanstalkd_py.replication import node as node_module
from beanstalkd_py.replication.log import Record
from beanstalkd_py.replication.stream_writer import FencedError

pytestmark = pytest.mark.usefixtures("short_times")


@pytest.fixture(autouse=True)
def no_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "FILES_S", 0.0)


@pytest.fixture
def cluster(tmp_path: Path) -> MemoryCluster:
    """A queue whose first server, with folder `a`, has stopped."""
    (tmp_path / "a").mkdir()
    found = MemoryCluster()
    begin_queue(found, tmp_path / "a")
    return found


def text_of(cluster: MemoryCluster, name: str) -> str | None:
    text: str | None = json.loads(cluster.keys[name][0])["text"]
    return text


class InterruptedLog(MemoryLog):
    """Calls `before_read` and `after_read` once, at the first read of the policies."""

    before_read: Callable[[], Awaitable[None]] | None = None
    after_read: Callable[[], Awaitable[None]] | None = None

    async def get(self, key: str) -> Record | None:
        if key == POLICIES and (interrupt := self.before_read) is not None:
            self.before_read = None
            await interrupt()
        found = await super().get(key)
        if key == POLICIES and (interrupt := self.after_read) is not None:
            self.after_read = None
            await interrupt()
        return found


def test_a_primary_has_the_files_of_the_one_before(tmp_path: Path, cluster: MemoryCluster) -> None:
    async def test() -> None:
        old = await primary(MemoryLog(cluster), tmp_path / "a")
        (tmp_path / "a" / POLICIES).write_text("[1]")
        await old.files.store(POLICIES)
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / SCHEDULES).write_text("of an earlier time")
        await primary(MemoryLog(cluster), tmp_path / "b")

    run(test)
    assert (tmp_path / "b" / POLICIES).read_text() == "[1]"
    assert not (tmp_path / "b" / SCHEDULES).exists()


@pytest.mark.parametrize("before", [None, "[1]"], ids=["new", "changed"])
def test_a_former_primary_cannot_overwrite(
    tmp_path: Path, cluster: MemoryCluster, before: str | None
) -> None:
    """Also a file that did not exist when the other server became the primary."""

    async def test() -> None:
        old = await primary(MemoryLog(cluster), tmp_path / "a")
        if before is not None:
            (tmp_path / "a" / POLICIES).write_text(before)
            await old.files.store(POLICIES)
        new = await primary(MemoryLog(cluster), tmp_path / "b")
        (tmp_path / "a" / POLICIES).write_text("[2]")
        with pytest.raises(FencedError):
            await old.files.store(POLICIES)
        assert text_of(cluster, POLICIES) == before
        (tmp_path / "b" / POLICIES).write_text("[3]")
        await new.files.store(POLICIES)

    run(test)
    assert text_of(cluster, POLICIES) == "[3]"


@pytest.mark.parametrize("before", [None, "[1]"], ids=["new", "changed"])
def test_a_change_that_arrives_during_a_failover_holds(
    tmp_path: Path, cluster: MemoryCluster, before: str | None
) -> None:
    """The former primary acknowledges it after the next one has read the key."""

    async def test() -> None:
        old = await primary(MemoryLog(cluster), tmp_path / "a")
        if before is not None:
            (tmp_path / "a" / POLICIES).write_text(before)
            await old.files.store(POLICIES)
        log = InterruptedLog(cluster)

        async def change() -> None:
            (tmp_path / "a" / POLICIES).write_text("[2]")
            await old.files.store(POLICIES)

        node = await joined(log, tmp_path / "b")
        log.after_read = change
        await node.become_primary()

    run(test)
    assert (tmp_path / "b" / POLICIES).read_text() == text_of(cluster, POLICIES) == "[2]"


def test_a_server_that_was_suspended_while_it_took_over_cannot_overwrite(
    tmp_path: Path, cluster: MemoryCluster
) -> None:
    """It has fenced the streams, and another server has become the primary since."""

    async def test() -> None:
        log = InterruptedLog(cluster)
        late = await joined(log, tmp_path / "b")

        async def overtake() -> None:
            new = await primary(MemoryLog(cluster), tmp_path / "c")
            (tmp_path / "c" / POLICIES).write_text("[3]")
            await new.files.store(POLICIES)

        log.before_read = overtake
        with pytest.raises(FencedError):
            await late.become_primary()

    run(test)
    assert text_of(cluster, POLICIES) == "[3]"
    assert not (tmp_path / "b" / POLICIES).exists()


async def joined(log: MemoryLog, folder: Path) -> node_module.Node:
    """Return a server that has the lease."""
    node = new_node(log, folder)
    await node.open()
    await node.stand_by()
    return node


def test_the_first_server_brings_its_files(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / POLICIES).write_bytes(b"[1]\xff")
    begin_queue(cluster, tmp_path / "a")
    run(lambda: primary_of(cluster, tmp_path / "b"))
    assert (tmp_path / "b" / POLICIES).read_bytes() == b"[1]\xff"


async def primary_of(cluster: MemoryCluster, folder: Path) -> None:
    await primary(MemoryLog(cluster), folder)


@pytest.mark.parametrize("corrected", ["[1]", None], ids=["corrected", "removed"])
def test_an_invalid_file_of_the_first_server_can_be_corrected(
    tmp_path: Path, corrected: str | None
) -> None:
    """The server ends because of it, after it has stored it and before the queue is complete."""
    cluster, path = MemoryCluster(), tmp_path / "a" / POLICIES
    path.parent.mkdir()
    path.write_text("{")
    run(lambda: primary_of(cluster, path.parent))
    if corrected is None:
        path.unlink()
    else:
        path.write_text(corrected)
    begin_queue(cluster, path.parent)
    assert text_of(cluster, POLICIES) == corrected
    assert path.exists() == (corrected is not None)


def test_a_standby_copies_the_files(tmp_path: Path, cluster: MemoryCluster) -> None:
    """So that its folder has no earlier ones if NATS and the primary are lost."""
    path = tmp_path / "a" / POLICIES

    async def test() -> None:
        old = await primary(MemoryLog(cluster), tmp_path / "a")
        old._lease.duration_s = 60.0
        await old._lease.renew()
        log = MemoryLog(cluster)
        standby = new_node(log, tmp_path / "b")
        (tmp_path / "b" / SCHEDULES).write_text("of an earlier time")
        await standby.open()
        for text in ("[1]", "[2]"):
            path.write_text(text)
            await old.files.store(POLICIES)
            await follow(standby, log)
            assert (tmp_path / "b" / POLICIES).read_text() == text
        assert not (tmp_path / "b" / SCHEDULES).exists()

    run(test)


@pytest.mark.parametrize("seed", range(10))
def test_no_acknowledged_change_is_lost(tmp_path: Path, cluster: MemoryCluster, seed: int) -> None:
    """Calls fail before or after their effect, and some changes are given up halfway."""
    chance = random.Random(f"files {seed}")

    async def test() -> None:
        possible: set[str | None] = {None}
        for term in range(6):
            folder = tmp_path / str(term % 3)
            log = MemoryLog(cluster, 0.2, (seed, term))
            node = await joined(log, folder)
            await node.become_primary()
            found = text_of(cluster, SCHEDULES)
            assert found in possible
            assert found == (
                (folder / SCHEDULES).read_text() if (folder / SCHEDULES).exists() else None
            )
            possible = {found}
            for number in range(chance.randrange(5)):
                text = f"{term} {number}"
                (folder / SCHEDULES).write_text(text)
                storing = asyncio.create_task(node.files.store(SCHEDULES))
                await asyncio.wait([storing], timeout=0.0 if chance.random() < 0.5 else None)
                if storing.done():
                    possible = {text}
                else:
                    storing.cancel()
                    possible.add(text)
                    await asyncio.wait([storing])

    run(test)
