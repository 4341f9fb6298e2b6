"""A million jobs end while archiver, workers and server are killed: each is archived once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from archiver.producer import Producer
from processes import children
from servers import Server, ours

from beanstalkd_py.history.reader import StoreReader
from beanstalkd_py.history.verify import verify

pytestmark = pytest.mark.slow

JOBS = 1_000_000
PRODUCERS = 4
SERVERS = 4
WORKERS = 2
KILL_S = 0.2
LIMIT_S = 300.0


def arguments(folder: Path) -> tuple[str, ...]:
    # Small files, so that many are handed over.
    files = (f"-b{folder / 'binlog'}", "-f0", "-s262144", f"--history={folder / 'history'}")
    return (f"--workers={WORKERS}", *files)


def archiver_of(server: Server) -> int | None:
    """Return the pid of the archiver, or None if it is not running."""
    for pid in children(server.pid):
        with contextlib.suppress(OSError):
            if b"server.archiver" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


class Crowd:
    """Producer threads that reconnect to the current server."""

    def __init__(self) -> None:
        self.server: Server | None = None
        self.producers = [Producer(b"tube-%d" % i, self.connect) for i in range(PRODUCERS)]
        self._until = time.monotonic() + LIMIT_S
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(producer,)) for producer in self.producers
        ]

    def connect(self) -> socket.socket:
        server = self.server
        if server is None or server.exit_status is not None:
            time.sleep(0.05)
            raise OSError("there is no server now")
        return socket.create_connection(("127.0.0.1", server.port), timeout=10)

    def _run(self, producer: Producer) -> None:
        try:
            producer.run(JOBS // PRODUCERS, lambda: time.monotonic() < self._until)
        except BaseException as error:
            self._errors.append(error)

    @property
    def done(self) -> int:
        return sum(len(producer.deleted) for producer in self.producers)

    @property
    def working(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        except BaseException:
            self._until = 0
            raise
        finally:
            for thread in self._threads:
                thread.join()
        if self._errors:
            raise self._errors[0]


def kill_at_random(crowd: Crowd, server: Server, share: int, chance: random.Random) -> int:
    """Kill random processes until the producers have done their share; return the kills."""
    killed = 0
    while crowd.working and crowd.done < share:
        time.sleep(KILL_S * chance.uniform(0.5, 1.5))
        archiver = archiver_of(server)
        workers = [pid for pid in children(server.pid) if pid != archiver]
        victim = archiver if chance.random() < 0.6 else chance.choice([None, *workers])
        if victim is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                killed += 1
    return killed


@pytest.mark.timeout(600)
def test_every_job_is_in_the_history_once(tmp_path: Path) -> None:
    chance = random.Random(5)
    (tmp_path / "binlog").mkdir()
    crowd = Crowd()
    killed = 0
    with crowd.at_work():
        for number in range(1, SERVERS + 1):
            with contextlib.ExitStack() as stack:
                server = stack.enter_context(ours(*arguments(tmp_path)))
                crowd.server = server
                share = JOBS if number == SERVERS else JOBS * number // SERVERS
                killed += kill_at_random(crowd, server, share, chance)
                if number < SERVERS:
                    server.kill()
                    continue
                while crowd.working:
                    time.sleep(0.1)
                gone = settle(crowd, server)
    assert crowd.done >= JOBS and killed > 10
    reported = Counter[int]()
    with StoreReader.open(tmp_path / "history") as store:
        for message in store.scan():
            reported[int(message.properties["KEYS"])] += 1
            assert message.properties["TUBE"].encode() == message.body.split()[0]
        assert not list(verify(store).faults)
    assert [job for job in reported if reported[job] > 1] == []
    deleted = {job for producer in crowd.producers for job in producer.deleted} | gone
    extra, missing = sorted(set(reported) - deleted), sorted(deleted - set(reported))
    assert (extra[:20], missing[:20]) == ([], [])
    assert not list((tmp_path / "binlog").glob("**/*.done"))


def settle(crowd: Crowd, server: Server) -> set[int]:
    """Return the jobs of the unacknowledged deletes that are gone."""
    pending = [job for each in crowd.producers for job in each.pending - set(each.deleted)]
    with server.connect() as client:

        def is_gone(job: int) -> bool:
            while (reply := client.ask(b"peek %d\r\n" % job)) == b"INTERNAL_ERROR\r\n":
                time.sleep(0.05)  # its worker was killed a moment ago
            return reply == b"NOT_FOUND\r\n"

        return {job for job in pending if is_gone(job)}
