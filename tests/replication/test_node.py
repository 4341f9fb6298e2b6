"""Servers of a replicated queue on a log in memory: who may serve, and with which bytes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from core.rig import Rig
from replication.memory_log import MemoryCluster, MemoryLog
from replication.replicas import FILE

from beanstalkd_py.binlog.layout import REPLICA, binlog_files
from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.errors import BinlogFolderError, ReplicationError
from beanstalkd_py.replication import node as node_module
from beanstalkd_py.replication import stream_writer as stream_writer_module
from beanstalkd_py.replication.lease import Lease
from beanstalkd_py.replication.node import Node, key_of
from beanstalkd_py.replication.piece import PieceError
from beanstalkd_py.replication.replica_state import load_replica, save_replica
from beanstalkd_py.replication.stream_writer import FencedError
from beanstalkd_py.server.replicator.cancellation import cancel_all

LEASE_S = 0.02
LIMIT_S = 60.0
HEADER = b"\7\0\0\0"
RECORD = struct.Struct("<QQ")
names = (f"server-{number}" for number in itertools.count())


pytestmark = pytest.mark.usefixtures("short_times")


def new_node(log: MemoryLog, folder: Path) -> Node:
    folder.mkdir(exist_ok=True)
    lease = Lease(log, next(names), "127.0.0.1:1", LEASE_S)
    return Node(log, lease, folder, [folder], None)


async def primary(log: MemoryLog, folder: Path) -> Node:
    node = new_node(log, folder)
    await node.open()
    await node.stand_by()
    await node.become_primary()
    return node


def end_of(folder: Path) -> BinlogPosition:
    last = binlog_files(folder)[-1]
    return BinlogPosition(int(last.suffix[1:]), last.stat().st_size)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), LIMIT_S)

    asyncio.run(bounded())


async def follow(node: Node, log: MemoryLog) -> None:
    """Let a standby read everything; it does not take the lease, because another one holds it."""
    following = asyncio.create_task(node.stand_by())
    try:
        for _ in range(1000):
            await asyncio.sleep(0)
            if following.done():
                await following
    finally:
        following.cancel()


# --- the first server -------------------------------------------------------------------------


def with_jobs(folder: Path, count: int = 60) -> Path:
    folder.mkdir()
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for number in range(count):
            client.put(b"%d" % number * 50)
        rig.stop()
    return folder


async def store_all(cluster: MemoryCluster, folder: Path) -> None:
    """Be the first server of a queue."""
    node = await primary(MemoryLog(cluster), folder)
    await node.store(0, end_of(folder))
    await node.complete()


def test_the_first_server_stores_its_folder(tmp_path: Path) -> None:
    folder, copy = with_jobs(tmp_path / "a"), tmp_path / "b"
    cluster = MemoryCluster()

    async def test() -> None:
        await store_all(cluster, folder)
        second = await primary(MemoryLog(cluster), copy)
        assert second.behind == 0

    run(test)
    assert [path.name for path in binlog_files(copy)] == [one.name for one in binlog_files(folder)]
    for path in binlog_files(folder):
        assert (copy / path.name).read_bytes() == path.read_bytes()


def test_no_other_server_serves_before_the_first_folder_is_stored(tmp_path: Path) -> None:
    folder, copy = with_jobs(tmp_path / "a"), tmp_path / "b"
    cluster = MemoryCluster()

    async def test() -> None:
        first = await primary(MemoryLog(cluster), folder)
        half = binlog_files(folder)[1]
        await first.store(0, BinlogPosition(int(half.suffix[1:]), 500))
        second = new_node(MemoryLog(cluster), copy)
        await second.open()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(second.stand_by(), 10 * LEASE_S)
        assert not binlog_files(copy)
        # The first server was killed, and starts again.
        again = await primary(MemoryLog(cluster), folder)
        await again.store(0, end_of(folder))
        await again.complete()
        await asyncio.wait_for(second.stand_by(), LIMIT_S)
        await second.become_primary()

    run(test)
    with Rig(copy, file_size=FILE) as rig:
        assert rig.counters.ready == 60


def test_an_origin_that_is_late_stores_nothing(tmp_path: Path) -> None:
    """It has read that the queue is incomplete before another process completed it."""
    folder = with_jobs(tmp_path / "a")
    cluster = MemoryCluster()

    async def test() -> None:
        first = await primary(MemoryLog(cluster), folder)
        late = new_node(MemoryLog(cluster), folder)
        await late.open()
        await first.store(0, end_of(folder))
        await first.complete()
        messages = dict(cluster.streams[0].messages)
        await late.stand_by()
        with pytest.raises(ReplicationError, match="completed meanwhile"):
            await late.become_primary()
        assert cluster.streams[0].messages == messages

    run(test)


@pytest.mark.parametrize("share", [0.6, 1.5])
def test_a_lease_survives_a_log_that_is_away_for_a_part_of_it(tmp_path: Path, share: float) -> None:
    cluster = MemoryCluster()
    log = MemoryLog(cluster)
    (tmp_path / "a").mkdir()

    async def test() -> None:
        lease = Lease(log, "holder", "127.0.0.1:1", 1.0)
        node = Node(log, lease, tmp_path / "a", [tmp_path / "a"], None)
        await node.open()
        await node.stand_by()
        keeping = asyncio.create_task(node.keep_lease(lambda end_ns: None))
        await asyncio.sleep(0.1)
        log.is_cut_off = True
        await asyncio.sleep(share)
        log.is_cut_off = False
        await asyncio.sleep(0.6)
        if share < 1:
            assert not keeping.done() and not lease.has_ended
            keeping.cancel()
        else:
            with pytest.raises(ReplicationError, match="the lease has ended"):
                await keeping

    run(test)


# --- folders that do not belong to the queue ---------------------------------------------------


def refused(log: MemoryLog, folder: Path, text: str) -> None:
    with pytest.raises(ReplicationError, match=text):
        asyncio.run(new_node(log, folder).open())


def begin_queue(cluster: MemoryCluster, folder: Path) -> None:
    async def test() -> None:
        node = await primary(MemoryLog(cluster), folder)
        (folder / "binlog.1").write_bytes(HEADER)
        await node.store(0, end_of(folder))
        await node.complete()
        await node.resign()

    run(test)


def test_a_folder_with_other_jobs_is_refused(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")
    folder = with_jobs(tmp_path / "b")
    before = {path.name: path.read_bytes() for path in binlog_files(folder)}
    refused(MemoryLog(cluster), folder, "has jobs that the replicated queue does not have")
    assert {path.name: path.read_bytes() for path in folder.iterdir()}.items() >= before.items()


def test_a_replica_of_another_queue_is_refused(tmp_path: Path) -> None:
    one, other = MemoryCluster(), MemoryCluster()
    begin_queue(one, tmp_path / "a")
    begin_queue(other, tmp_path / "b")
    refused(MemoryLog(one), tmp_path / "b", "is a replica of another queue")


def test_a_replica_of_a_queue_that_is_gone_is_refused(tmp_path: Path) -> None:
    begin_queue(MemoryCluster(), tmp_path / "a")
    refused(MemoryLog(MemoryCluster()), tmp_path / "a", "of a queue that NATS does not have")
    assert (tmp_path / "a/binlog.1").exists()


def test_a_stream_that_has_lost_messages_is_refused(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")
    stream = cluster.streams[0]
    del stream.messages[stream.last]
    stream.last -= 1

    async def test() -> None:
        with pytest.raises(ReplicationError, match="NATS has lost messages"):
            await primary(MemoryLog(cluster), tmp_path / "a")

    run(test)


def test_a_primary_whose_stream_has_lost_messages_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold the lease for ever, and store nothing."""
    cluster, folder = MemoryCluster(), tmp_path / "a"
    begin_queue(cluster, folder)

    async def test() -> None:
        node = await primary(MemoryLog(cluster), folder)
        stream = cluster.streams[0]
        lost = stream.messages.pop(stream.last)
        stream.last -= 1
        with (folder / "binlog.1").open("ab") as out:
            out.write(b"more")
        storing = asyncio.create_task(node.store(0, end_of(folder)))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not storing.done(), "a leader that was just elected may have fewer messages"
        monkeypatch.setattr(stream_writer_module, "SHORT_S", 0.0)
        with pytest.raises(ReplicationError, match="NATS has lost messages"):
            await storing
        stream.append(lost, stream.last)
        await node.store(0, end_of(folder))

    run(test)


def test_the_queue_begins_again_on_the_newest_folder(tmp_path: Path) -> None:
    """What the documentation advises when NATS has lost messages: another name, or a new NATS."""
    cluster, folder = MemoryCluster(), with_jobs(tmp_path / "a")

    run(partial(store_all, cluster, folder))
    before = {path.name: path.read_bytes() for path in binlog_files(folder)}
    (folder / REPLICA).unlink()
    other = MemoryCluster()

    async def test() -> None:
        await store_all(other, folder)
        second = await primary(MemoryLog(other), tmp_path / "b")
        assert second.behind == 0

    run(test)
    for name in ("a", "b"):
        found = {path.name: path.read_bytes() for path in binlog_files(tmp_path / name)}
        assert found == before


def test_another_number_of_workers_is_refused(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")
    folder = tmp_path / "b"
    folder.mkdir()
    log = MemoryLog(cluster)
    lease = Lease(log, "other", "127.0.0.1:1", LEASE_S)
    node = Node(log, lease, folder, [folder / "shard-000", folder / "shard-001"], None)
    with pytest.raises(ReplicationError, match="has --workers 1"):
        asyncio.run(node.open())


# --- changes of the primary --------------------------------------------------------------------


def test_a_primary_stores_nothing_after_the_fence_of_the_next(tmp_path: Path) -> None:
    """Not even packets that arrive late."""
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")

    async def test() -> None:
        log = MemoryLog(cluster)
        old = await primary(log, tmp_path / "a")
        (tmp_path / "a/binlog.2").write_bytes(HEADER + b"late")
        log.is_cut_off = True
        storing = asyncio.create_task(old.store(0, end_of(tmp_path / "a")))
        while not log.delayed:
            await asyncio.sleep(0)
        new = await primary(MemoryLog(cluster), tmp_path / "b")
        log.deliver()
        log.is_cut_off = False
        with pytest.raises(FencedError):
            await storing
        assert [path.name for path in binlog_files(tmp_path / "b")] == ["binlog.1"]
        (tmp_path / "b/binlog.2").write_bytes(HEADER)
        await new.store(0, end_of(tmp_path / "b"))
        # The old server follows, and drops what it could not store.
        again = await primary(MemoryLog(cluster), tmp_path / "a")
        assert again.behind == 0
        assert (tmp_path / "a/binlog.2").read_bytes() == HEADER

    run(test)


def test_a_standby_takes_a_free_lease_right_after_the_last_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby that lacks some when the lease becomes free must not wait for its next look."""
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")

    async def test() -> None:
        first = await primary(MemoryLog(cluster), tmp_path / "a")
        await store_more(first, tmp_path / "a", 40)  # more than one read returns
        await first.resign()
        monkeypatch.setattr(node_module, "OBSERVE_S", 10 * LIMIT_S)
        second = await primary(MemoryLog(cluster), tmp_path / "b")
        assert second.behind == 0

    run(test)


def test_a_log_that_stored_late_is_available(tmp_path: Path) -> None:
    """The append fails and arrives later, so no other one follows."""
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")

    async def test() -> None:
        log = MemoryLog(cluster)
        node = await primary(log, tmp_path / "a")
        (tmp_path / "a/binlog.2").write_bytes(HEADER)
        log.is_cut_off = True
        storing = asyncio.create_task(node.store(0, end_of(tmp_path / "a")))
        while not node.unavailable:
            await asyncio.sleep(0)
        log.deliver()
        log.is_cut_off = False
        await storing
        assert node.unavailable == ""

    run(test)


def test_a_standby_that_missed_a_purge_begins_again(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")

    async def test() -> None:
        log = MemoryLog(cluster)
        standby = new_node(MemoryLog(cluster), tmp_path / "b")
        await standby.open()
        node = await primary(log, tmp_path / "a")
        await follow(standby, log)
        for number in (2, 3):
            (tmp_path / f"a/binlog.{number}").write_bytes(HEADER + b"%d" % number)
        await node.store(0, end_of(tmp_path / "a"))
        for number in (1, 2):
            (tmp_path / f"a/binlog.{number}").unlink()
        (tmp_path / "a/binlog.4").write_bytes(HEADER + b"4")
        await node.store(0, end_of(tmp_path / "a"))
        await node.purge([])
        await node.record()
        assert min(cluster.streams[0].messages) > 3
        standby = await primary(MemoryLog(cluster), tmp_path / "b")
        assert standby.behind == 0

    run(test)
    assert [path.name for path in binlog_files(tmp_path / "b")] == ["binlog.3", "binlog.4"]


async def store_more(node: Node, folder: Path, count: int) -> None:
    """Store messages that continue the ones before them."""
    for number in range(count):
        with (folder / "binlog.1").open("ab") as out:
            out.write(b"%d" % number)
        await node.store(0, end_of(folder))


def test_a_record_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further messages are stored while a thread writes the record."""
    folder = with_jobs(tmp_path / "a")

    async def test() -> None:
        cluster = MemoryCluster()
        await store_all(cluster, folder)
        node = await primary(MemoryLog(cluster), folder)

        async def later(call: Callable[..., None], *arguments: object) -> None:
            with binlog_files(folder)[-1].open("ab") as out:
                out.write(b"later")
            await node.store(0, end_of(folder))
            call(*arguments)

        monkeypatch.setattr(asyncio, "to_thread", later)
        monkeypatch.setattr(node_module, "SAVE_S", 0)
        last = node._writers[0].state.copy()
        await node.record()
        assert node._writers[0].state.sequence == last.sequence + 1
        saved = load_replica(folder)
        assert saved is not None and saved.shards == [last]

    run(test)


def test_a_record_has_whether_the_server_is_the_primary(tmp_path: Path) -> None:
    """Backups refuse the folder of a standby, also of one that was the primary before."""
    cluster, first, second = MemoryCluster(), tmp_path / "a", tmp_path / "b"

    def is_primary(folder: Path) -> bool:
        found = load_replica(folder)
        assert found is not None
        return found.is_primary

    async def test() -> None:
        begun = new_node(MemoryLog(cluster), with_jobs(first))
        await begun.open()
        assert is_primary(first), "nobody else has its jobs"
        await store_all(cluster, first)
        log = MemoryLog(cluster)
        node = await primary(log, first)
        assert is_primary(first)
        standby = new_node(MemoryLog(cluster), second)
        await standby.open()
        assert not is_primary(second)
        await follow(standby, log)
        assert not is_primary(second)
        await node.resign()
        assert is_primary(first)
        await primary(MemoryLog(cluster), second)
        assert is_primary(second)
        former = new_node(MemoryLog(cluster), first)
        await former.open()
        assert not is_primary(first)

    run(test)


def test_a_copy_that_a_message_does_not_continue_begins_again(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")

    async def test() -> None:
        log = MemoryLog(cluster)
        node = await primary(log, tmp_path / "a")
        await store_more(node, tmp_path / "a", 2)
        standby = new_node(MemoryLog(cluster), tmp_path / "b")
        await standby.open()
        await follow(standby, log)
        replica = load_replica(tmp_path / "b")
        assert replica is not None
        replica.shards[0].epoch -= 1
        save_replica(tmp_path / "b", replica)
        await store_more(node, tmp_path / "a", 2)
        with pytest.raises(ReplicationError, match="copying again"):
            await primary(MemoryLog(cluster), tmp_path / "b")
        await primary(MemoryLog(cluster), tmp_path / "b")

    run(test)
    assert (tmp_path / "b/binlog.1").read_bytes() == HEADER + b"0101"


def test_a_damaged_message_is_reported(tmp_path: Path) -> None:
    """A copy from the start of the stream fails, too, so the folder is not the reason."""
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")

    async def test() -> None:
        log = MemoryLog(cluster)
        node = await primary(log, tmp_path / "a")
        await store_more(node, tmp_path / "a", 4)
        stream = cluster.streams[0]
        stream.messages[stream.last - 1] = replace(stream.messages[stream.last - 1], epoch=99)
        standby = new_node(MemoryLog(cluster), tmp_path / "b")
        await standby.open()
        with pytest.raises(PieceError, match="is damaged, or does not continue"):
            await standby.stand_by()

    run(test)


@pytest.mark.parametrize(
    ("damage", "is_running"),
    [("removed", False), ("cut", False), ("flipped", False), ("removed", True), ("cut", True)],
)
def test_a_damaged_copy_begins_again(tmp_path: Path, damage: str, is_running: bool) -> None:
    """Whether the damage is there at the start, or is made while the server stands by.

    While it stands by its workers have read the files, so flipped bits cost nothing.
    """
    folder, copy = with_jobs(tmp_path / "a"), tmp_path / "b"
    cluster = MemoryCluster()

    async def test() -> None:
        await store_all(cluster, folder)
        log = MemoryLog(cluster)
        second = new_node(log, copy)
        await second.open()
        await second.stand_by()
        if is_running:
            make_damage(copy / "binlog.1", damage)
            with pytest.raises(ReplicationError, match="copying again"):
                await second.become_primary()
        else:
            await second.become_primary()
            make_damage(copy / "binlog.1", damage)
        await primary(MemoryLog(cluster), copy)

    run(test)
    assert (copy / REPLICA).exists()
    for path in binlog_files(folder):
        assert (copy / path.name).read_bytes() == path.read_bytes()


def make_damage(path: Path, damage: str) -> None:
    data = bytearray(path.read_bytes())
    if damage == "removed":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[:-1])
    else:
        data[len(data) // 2] ^= 16
        path.write_bytes(data)


def test_a_damaged_record_is_reported(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")
    path = tmp_path / "a" / REPLICA
    data = path.read_bytes()
    for number in range(len(data)):
        path.write_bytes(data[:number] + bytes([data[number] ^ 4]) + data[number + 1 :])
        with contextlib.suppress(BinlogFolderError, ReplicationError):
            asyncio.run(new_node(MemoryLog(cluster), tmp_path / "a").open())
            # Another number in it: the copy begins again, or continues where it can.
            run(lambda: primary_and_nothing(cluster, tmp_path / "a"))
        assert (tmp_path / "a/binlog.1").read_bytes() == HEADER


async def primary_and_nothing(cluster: MemoryCluster, folder: Path) -> None:
    await primary(MemoryLog(cluster), folder)


# --- servers that compete all the time ---------------------------------------------------------


def stream_files(cluster: MemoryCluster, epoch: int = 1 << 62) -> dict[str, bytes]:
    """Return the files that a copy of the stream has, up to the last message of this epoch."""
    files: dict[int, bytes] = {}
    for _, piece in sorted(cluster.streams[0].messages.items()):
        if piece.epoch > epoch:
            break
        if piece.data:
            files[piece.file] = files.get(piece.file, b"") + piece.data
        files = {number: data for number, data in files.items() if number >= piece.first}
    return {f"binlog.{number}": data for number, data in files.items()}


class Competitor:
    """A server that becomes the primary whenever it can, and writes records to its folder.

    A record has a number, and is live. Like the binlog, the server moves the live records of its
    oldest file to the newest one before it removes the file.
    """

    def __init__(self, cluster: MemoryCluster, folder: Path, dice: random.Random) -> None:
        self.folder = folder
        self.acknowledged: set[int] = set()
        self.terms = self.checked = 0
        self.stopped = False
        self._cluster = cluster
        self._dice = dice

    async def run(self, known: set[int], numbers: itertools.count[int]) -> None:
        while not self.stopped:
            faults = self._dice.choice([0, 0.05, 0.3])
            log = MemoryLog(self._cluster, faults, seed=self._dice.random())
            life = asyncio.create_task(self._live(log, known, numbers))
            # A kill at any await.
            await asyncio.wait([life], timeout=self._dice.choice([None, 0.05, 0.2]))
            life.cancel()
            with contextlib.suppress(asyncio.CancelledError, FencedError):
                await life
            if self._dice.random() < 0.5:
                log.deliver()
            else:
                asyncio.get_running_loop().call_later(0.05, log.deliver)

    async def _live(self, log: MemoryLog, known: set[int], numbers: itertools.count[int]) -> None:
        node = await primary(log, self.folder)
        self.terms += 1
        found = self._records()
        files = {path.name: path.read_bytes() for path in binlog_files(self.folder)}
        # Another server may have appended since this one's fence.
        epoch = node._lease.epoch
        assert files == stream_files(self._cluster, epoch)
        if max(piece.epoch for piece in self._cluster.streams[0].messages.values()) == epoch:
            assert known <= found, f"lost: {sorted(known - found)}"
            self.checked += 1
        number = self._begin_file()
        for _ in range(self._dice.randrange(1, 200)):
            record = next(numbers)
            self._append(number, [record])
            if self._dice.random() < 0.1:
                number = self._begin_file()
            files = binlog_files(self.folder)
            is_old = len(files) > 3
            if is_old:
                self._append(number, sorted(self._records_of(files[0])))
            await node.store(0, end_of(self.folder))
            known.add(record)
            if is_old:
                files[0].unlink()
            await node.purge([])
            await node.record()
            await asyncio.sleep(0)

    def _begin_file(self) -> int:
        files = binlog_files(self.folder)
        number = end_of(self.folder).file + 1 if files else 1
        (self.folder / f"binlog.{number}").write_bytes(HEADER)
        return number

    def _append(self, number: int, records: list[int]) -> None:
        with (self.folder / f"binlog.{number}").open("ab") as out:
            out.write(b"".join(RECORD.pack(record, ~record & (1 << 64) - 1) for record in records))

    def _records(self) -> set[int]:
        return set().union(*(self._records_of(path) for path in binlog_files(self.folder)))

    def _records_of(self, path: Path) -> set[int]:
        data = path.read_bytes()
        assert data.startswith(HEADER)
        found = list(RECORD.iter_unpack(data[len(HEADER) :]))
        assert all(one ^ other == (1 << 64) - 1 for one, other in found)
        return {one for one, _ in found}


@pytest.mark.parametrize("seed", range(3))
def test_servers_that_compete_lose_nothing(tmp_path: Path, seed: int) -> None:
    """With a lease of 20 ms, kills, failing calls and packets that arrive late."""
    dice = random.Random(f"compete {seed}")
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "0")
    servers = [Competitor(cluster, tmp_path / str(number), dice) for number in range(3)]
    known: set[int] = set()

    async def test() -> None:
        numbers = itertools.count(1)
        tasks = [asyncio.create_task(one.run(known, numbers)) for one in servers]
        done: set[asyncio.Task[None]] = set()
        pending = set(tasks)
        while not done and not (len(known) > 200 and all(one.checked > 3 for one in servers)):
            done, pending = await asyncio.wait(tasks, timeout=0.1)
        for server in servers:
            server.stopped = True
        await cancel_all(pending)
        for task in done:
            task.result()

    run(test)
    with contextlib.suppress(FileNotFoundError):
        (tmp_path / "last").rmdir()
    last = Competitor(cluster, tmp_path / "last", dice)
    run(lambda: primary_and_nothing(cluster, tmp_path / "last"))
    assert known <= last._records()


def test_messages_are_kept_for_standbys_by_whole_files(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")

    async def test() -> None:
        log = MemoryLog(cluster)
        node = await primary(log, tmp_path / "a")
        messages = cluster.streams[0].messages
        for number in range(1, 5):
            path = tmp_path / f"a/binlog.{number}"
            path.write_bytes(HEADER)
            await node.store(0, end_of(tmp_path / "a"))
            path.write_bytes(HEADER + b"more")
            await node.store(0, end_of(tmp_path / "a"))
        begins = {piece.file: number for number, piece in messages.items() if piece.offset == 0}
        for number in (1, 2, 3):
            (tmp_path / f"a/binlog.{number}").unlink()
        (tmp_path / "a/binlog.4").write_bytes(HEADER + b"more and more")
        await node.store(0, end_of(tmp_path / "a"))
        await node.record()
        assert begins[1] in messages, "it does not know yet whether there are standbys"
        await node.purge([[begins[3]], [begins[2]]])
        await node.record()
        assert min(messages) == begins[2]
        await node.purge([[begins[3]]])
        await node.record()
        assert min(messages) == begins[3], "a part of a file would be useless"
        await node.purge([])
        await node.record()
        assert min(messages) == begins[4]

    run(test)


def test_messages_that_a_killed_standby_reads_again_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")
    monkeypatch.setattr(node_module, "SAVE_S", 1e9)

    def reported(name: str = "sequences") -> list[Any]:
        found: list[Any] = json.loads(cluster.keys[key_of("127.0.0.1:1")][0])[name]
        return found

    def bytes_behind(node: Node) -> int:
        return node.bytes_behind([BinlogPosition(*one) for one in reported("positions")])

    async def test() -> None:
        log = MemoryLog(cluster)
        standby = new_node(MemoryLog(cluster), tmp_path / "b")
        await standby.open()
        node = await primary(log, tmp_path / "a")
        await follow(standby, log)
        (tmp_path / "a/binlog.2").write_bytes(HEADER)
        await node.store(0, end_of(tmp_path / "a"))
        await follow(standby, log)
        assert (tmp_path / "b/binlog.2").exists()
        await standby.report()
        assert reported() == [0]
        files = binlog_files(tmp_path / "a")
        assert bytes_behind(node) == sum(path.stat().st_size for path in files) > 0
        monkeypatch.setattr(node_module, "SAVE_S", 0.0)
        await follow(standby, log)
        await standby.report()
        assert reported() == [cluster.streams[0].last]
        assert bytes_behind(node) == 0
        again = new_node(MemoryLog(cluster), tmp_path / "b")
        await again.open()
        await again.report()
        assert reported() == [cluster.streams[0].last]

    run(test)


def test_removed_files_are_kept_for_an_archiver(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")
    synced: list[BinlogPosition] = []

    async def test() -> None:
        node = await primary(MemoryLog(cluster), tmp_path / "a")
        for number in range(1, 4):
            (tmp_path / f"a/binlog.{number}").write_bytes(HEADER + b"%d" % number)
        await node.store(0, end_of(tmp_path / "a"))
        (tmp_path / "a/binlog.1").unlink()
        (tmp_path / "a/binlog.2").unlink()
        (tmp_path / "a/binlog.4").write_bytes(HEADER + b"4")
        await node.store(0, end_of(tmp_path / "a"))
        (tmp_path / "b").mkdir()
        lease = Lease(MemoryLog(cluster), "archiving", "127.0.0.1:2", LEASE_S)
        standby = Node(
            MemoryLog(cluster), lease, tmp_path / "b", [tmp_path / "b"], None, has_history=True
        )
        await standby.open()
        await asyncio.wait_for(
            standby.stand_by(synced=lambda _, position: synced.append(position)), LIMIT_S
        )

    run(test)
    assert synced[-1] == BinlogPosition(4, len(HEADER) + 1)
    done = {path.name: path.read_bytes() for path in (tmp_path / "b").glob("*.done")}
    assert done == {"binlog.1.done": HEADER + b"1", "binlog.2.done": HEADER + b"2"}
    ids = [(tmp_path / name / "history.id") for name in "ab"]
    assert not ids[0].exists() and ids[1].read_text().endswith("-0\n")


def test_a_queue_without_recorded_identities_has_the_derived_ones(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")
    value, revision = cluster.keys["configuration"]
    configuration = json.loads(value)
    del configuration["history_ids"]
    cluster.keys["configuration"] = json.dumps(configuration).encode(), revision
    (tmp_path / "b").mkdir()
    lease = Lease(MemoryLog(cluster), "archiving", "127.0.0.1:2", LEASE_S)
    node = Node(MemoryLog(cluster), lease, tmp_path / "b", [tmp_path / "b"], None, has_history=True)
    asyncio.run(node.open())
    assert (tmp_path / "b/history.id").read_text() == f"{configuration['identity']}-0\n"


def test_all_folders_have_the_identity_of_the_first_one(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    begin_queue(cluster, tmp_path / "a")
    configuration = json.loads(cluster.keys["configuration"][0])
    assert configuration["history_ids"] == [f"{configuration['identity']}-0"]
    other = MemoryCluster()
    (tmp_path / "c").mkdir()
    (tmp_path / "c/history.id").write_text("0123456789abcdef-0\n")
    begin_queue(other, tmp_path / "c")
    assert json.loads(other.keys["configuration"][0])["history_ids"] == ["0123456789abcdef-0"]
