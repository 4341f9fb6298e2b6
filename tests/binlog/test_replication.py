"""Parts of binlog files that a replicator stores elsewhere, and replies that wait for it."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from binlog.workload import Actor, Step, check, replies_in
from core.rig import Rig

from beanstalkd_py.core.core import Core, CoreConfig, Run
from beanstalkd_py.core.replication import Part, Replication
from beanstalkd_py.core.shared_memory import new_shared
from beanstalkd_py.errors import CoreError

FILE = 4096
MILLISECOND = 1_000_000
LIMIT_S = 10.0
PUT = b"put 0 0 100 4\r\nbody\r\n"


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Core]:
    core = Core(CoreConfig(str(folder), FILE), new_shared())
    try:
        core.recover()
        yield core
    finally:
        core.close()


class Copy:
    """The replicator's folder, with the files of `source` as far as they were offered."""

    def __init__(self, replication: Replication, source: Path, folder: Path) -> None:
        self.folder = folder
        self._replication = replication
        self._source = source
        self._ends: dict[int, int] = {}
        folder.mkdir()

    def take(self) -> int:
        """Copy what was offered; return the generation that is complete."""
        while True:
            parts, generation = self._replication.take()
            for part in parts:
                self._copy(part)
            if generation:
                return generation

    def _copy(self, part: Part) -> None:
        assert part.file >= max(self._ends, default=0)
        assert part.begin == self._ends.get(part.file, 0) < part.end
        self._ends[part.file] = part.end
        name = f"binlog.{part.file}"
        with (self._source / name).open("rb") as source:
            data = os.pread(source.fileno(), part.end - part.begin, part.begin)
        assert len(data) == part.end - part.begin
        with (self.folder / name).open("ab") as out:
            assert out.tell() == part.begin
            out.write(data)

    def check(self, actor: Actor, scratch: Path) -> None:
        """Check that a server that starts on the copy has the actor's jobs."""
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(self.folder, scratch)
        with Rig(scratch, file_size=FILE) as rig:
            check([actor], rig)


def adopted(core: Core) -> socket.socket:
    ours, theirs = socket.socketpair()
    core.adopt(theirs.detach())
    ours.setblocking(False)
    return ours


def run_until(core: Core, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it does not become true"
        core.run(MILLISECOND, linger=True)


def is_readable(one: socket.socket) -> bool:
    return bool(select.select([one], [], [], 0)[0])


def settle(core: Core) -> None:
    """Run rounds until nothing happens for a while."""
    for _ in range(20):
        core.run(MILLISECOND, linger=True)


def test_a_reply_waits_for_the_replicator_and_others_do_not(folder: Path, tmp_path: Path) -> None:
    with opened(folder) as core:
        replication = Replication(core)
        copy = Copy(replication, folder, tmp_path / "copy")
        replication.confirm(copy.take())
        writer, reader = adopted(core), adopted(core)
        writer.sendall(PUT)
        settle(core)
        assert select.select([replication.fd], [], [], 0)[0] and not is_readable(writer)
        reader.sendall(b"list-tube-used\r\n")
        run_until(core, lambda: is_readable(reader))
        generation = copy.take()
        settle(core)
        assert not is_readable(writer)
        replication.confirm(generation - 1)
        settle(core)
        assert not is_readable(writer)
        replication.confirm(generation)
        run_until(core, lambda: is_readable(writer))
        assert writer.recv(100) == b"INSERTED 1\r\n"


@pytest.mark.parametrize("seed", range(3))
def test_the_copy_has_every_acknowledged_job(folder: Path, tmp_path: Path, seed: int) -> None:
    """Also after restarts, which offer the whole folder again."""
    actor = Actor(f"replicate {seed}", unique=seed == 0, moves=seed == 1)
    for start in range(3):
        with opened(folder) as core:
            replication = Replication(core)
            copy = Copy(replication, folder, tmp_path / f"copy-{start}")
            replication.confirm(copy.take())
            copy.check(actor, tmp_path / "started")
            client = adopted(core)
            for number in range(250):
                client.sendall(actor.next())
                assert actor.pending is not None
                actor.take(replies_to(actor.pending, core, client, replication, copy))
                if number % 50 == 0:
                    copy.check(actor, tmp_path / "started")
            copy.check(actor, tmp_path / "ended")


def replies_to(
    step: Step, core: Core, client: socket.socket, replication: Replication, copy: Copy
) -> list[bytes]:
    received = b""
    while len(replies := replies_in(received)) < len(step.words):
        run_until(core, lambda: is_readable(client) or is_offered(replication))
        replication.confirm(copy.take())
        if is_readable(client):
            received += client.recv(1 << 16)
    return replies


def is_offered(replication: Replication) -> bool:
    with contextlib.suppress(BlockingIOError):
        return bool(os.read(replication.fd, 8))
    return False


def test_no_file_is_removed_before_the_replicator_has_it(folder: Path, tmp_path: Path) -> None:
    with opened(folder) as core:
        replication = Replication(core)
        copy = Copy(replication, folder, tmp_path / "copy")
        replication.confirm(copy.take())
        client = adopted(core)
        client.sendall(b"put 0 0 100 2000\r\n%b\r\n" % (b"x" * 2000) * 3)
        settle(core)
        replication.confirm(copy.take())
        run_until(core, lambda: is_readable(client))
        client.sendall(b"delete 1\r\ndelete 2\r\ndelete 3\r\n")
        settle(core)
        first = folder / "binlog.1"
        assert first.exists()
        replication.confirm(copy.take())
        run_until(core, lambda: not first.exists())


def test_a_failure_stops_the_core(folder: Path) -> None:
    with opened(folder) as core:
        replication = Replication(core)
        client = adopted(core)
        client.sendall(PUT)
        settle(core)
        replication.fail(errno.EPERM)
        replication.confirm(1 << 62)
        run_until(core, lambda: bool(core.run(0, linger=False) & Run.FATAL))
        assert "replication failed: Operation not permitted" in core.error
        assert not is_readable(client)


@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_waits_for_the_replicator(folder: Path, tmp_path: Path, fails: bool) -> None:
    actor = Actor("stop")
    with opened(folder) as core:
        replication = Replication(core)
        copy = Copy(replication, folder, tmp_path / "copy")
        client = adopted(core)
        client.sendall(actor.next())
        settle(core)

        def replicate() -> None:
            time.sleep(0.1)
            while not ended.is_set():
                if fails:
                    replication.fail(errno.ETIMEDOUT)
                else:
                    replication.confirm(copy.take())
                time.sleep(0.01)

        ended = threading.Event()
        thread = threading.Thread(target=replicate)
        thread.start()
        try:
            with pytest.raises(CoreError) if fails else contextlib.nullcontext():
                core.stop()
        finally:
            ended.set()
            thread.join()
        received = client.recv(1 << 16)
    assert (b"INSERTED" in received) != fails
    if not fails:
        actor.take(replies_in(received))
        copy.check(actor, tmp_path / "ended")


@pytest.mark.parametrize("interval", [-1, 50 * MILLISECOND])
def test_a_core_that_does_not_sync_before_replies_is_refused(folder: Path, interval: int) -> None:
    core = Core(CoreConfig(str(folder), sync_interval_ns=interval), new_shared())
    core.recover()
    with contextlib.closing(core), pytest.raises(OSError, match="Invalid argument"):
        Replication(core)


def test_a_core_without_a_binlog_is_refused() -> None:
    with (
        contextlib.closing(Core(CoreConfig(), new_shared())) as core,
        pytest.raises(OSError, match="Invalid argument"),
    ):
        Replication(core)
