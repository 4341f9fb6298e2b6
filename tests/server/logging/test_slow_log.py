"""--slow-log: which commands are slow, and their records."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from preloading import build_library, preload
from processes import eventually
from server.logging.records import JSON, Record, of
from servers import Server, ours
from shards import TUBES, client_of, worker_pids
from wire import Client, inserted_id

pytestmark = pytest.mark.costly

SLOW = ("--slow-log", "100", *JSON)
DELAY_S = 0.15
STOPPED_S = 0.5
LONG = 5.0
LINES_PER_SECOND = 10

SlowServer = Callable[..., AbstractContextManager[Server]]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the preloaded library that slows the disk down."""
    return build_library(Path(__file__).with_name("slow_disk.c"), tmp_path_factory.mktemp("slow"))


@pytest.fixture
def slow_server(
    library: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> SlowServer:
    """Start a server with a binlog for which one system call is slow, except at start and stop."""
    is_slow = tmp_path_factory.mktemp("slow") / "is slow"

    @contextlib.contextmanager
    def run(variable: str, *args: str | Path) -> Iterator[Server]:
        with pytest.MonkeyPatch.context() as patch:
            preload(library, patch)
            patch.setenv(variable, str(int(DELAY_S * 1000)))
            patch.setenv("SLOW_WHILE", str(is_slow))
            with ours("-b", tmp_path, *args) as server:
                is_slow.touch()
                yield server
                is_slow.unlink()

    return run


def slow_records(server: Server, count: int) -> list[Record]:
    assert eventually(lambda: len(of(server, "slow")) >= count, LONG), server.stderr()
    return of(server, "slow")


def slow_record_of(server: Server, command: str, job: int) -> Record:
    """Return the one record of a command; on a busy machine other commands can be slow, too."""

    def found() -> list[Record]:
        return [one for one in of(server, "slow") if (one["command"], one.get("job")) == wanted]

    wanted = command, job
    assert eventually(lambda: len(found()) > 0, LONG), server.stderr()
    (record,) = found()
    return record


def put(client: Client, count: int = 1) -> list[int]:
    client.send(b"put 0 0 60 1\r\nx\r\n" * count)
    return [inserted_id(reply) for reply in client.replies(count)]


def test_a_slow_sync(slow_server: SlowServer) -> None:
    with slow_server("SLOW_SYNC_MS", *SLOW) as server, server.connect() as client:
        assert client.ask(b"use mails\r\n") == b"USING mails\r\n"
        (job,) = put(client)
        found = slow_record_of(server, "put", job)
        assert DELAY_S <= found.pop("duration_s") < LONG
        for name in ("time", "message", "pid"):
            del found[name]
        assert found == {
            "level": "warning",
            "event": "slow",
            "worker": 0,
            "connection": found["connection"],
            "from": f"127.0.0.1:{client.port}",
            "command": "put",
            "job": job,
            "tube": "mails",
            "waited_for": "sync",
            "others": 0,
        }
        # Commands that waited for the same sync are one line, of the longest wait.
        jobs = put(client, 32)
        assert slow_record_of(server, "put", jobs[0])["others"] == 31
        client.ask(b"delete %d\r\n" % job)
        assert "tube" not in slow_record_of(server, "delete", job)


def test_overlapping_syncs(slow_server: SlowServer) -> None:
    """Entries written during a sync wait for its end and for the next one."""
    with slow_server("SLOW_SYNC_MS", *SLOW) as server:
        clients = [server.connect() for _ in range(3)]
        for client in clients:
            client.send(b"put 0 0 60 1\r\nx\r\n")
            time.sleep(DELAY_S / 3)
        for client in clients:
            inserted_id(client.reply())
        found = slow_records(server, 3)
        assert {one["from"] for one in found} == {f"127.0.0.1:{c.port}" for c in clients}
        assert all(one["duration_s"] >= DELAY_S for one in found if one.get("waited_for"))


def test_a_slow_write(slow_server: SlowServer) -> None:
    """A slow write blocks the worker, so all its clients wait."""
    never = ("-f", "3600000")
    with slow_server("SLOW_WRITE_MS", *never, *SLOW) as server, server.connect() as client:
        (job,) = put(client)
        found = slow_record_of(server, "put", job)
        assert "waited_for" not in found
        assert found["duration_s"] >= DELAY_S


@pytest.mark.slow
def test_lines_are_limited_and_the_rest_is_counted(
    slow_server: SlowServer,
) -> None:
    count = 80
    with slow_server("SLOW_SYNC_MS", *SLOW) as server:
        clients = [server.connect() for _ in range(count)]
        for client in clients:
            client.send(b"put 0 0 60 1\r\nx\r\n" * 3)
        for client in clients:
            client.replies(3)

        def reported() -> int:
            listed = sum(1 + one["others"] for one in of(server, "slow"))
            return listed + sum(one["count"] for one in of(server, "slow-more"))

        # Each put is either listed or counted.
        assert eventually(lambda: reported() == 3 * count, LONG), reported()
        lines, seconds = len(of(server, "slow")), len(of(server, "slow-more"))
        assert 0 < lines <= LINES_PER_SECOND * (seconds + 2)
        assert lines < count


def test_a_slow_remote_worker() -> None:
    with ours("--workers=2", *SLOW) as server, client_of(server, 0) as client:
        pid = worker_pids(server)[1]
        client.ask(b"use %b\r\n" % TUBES[1])
        os.kill(pid, signal.SIGSTOP)
        try:
            client.send(b"peek-ready\r\nput 0 0 60 1\r\nx\r\nlist-tube-used\r\n")
            assert client.silent(STOPPED_S)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert client.replies(3)[2] == b"USING %b\r\n" % TUBES[1]
        found = next(one for one in slow_records(server, 1) if one["command"] == "peek-ready")
        assert (found["tube"], found["waited_for"]) == (TUBES[1].decode(), "worker 1")
        # The arrival is not known to the millisecond.
        assert DELAY_S <= found["duration_s"] < LONG


def test_waiting_for_a_job_is_not_slow() -> None:
    """Neither on one worker nor on several."""
    with ours("--workers=2", "--slow-log", "700", *JSON) as server:
        here, everywhere, timed = (client_of(server, 0) for _ in range(3))
        for one in (everywhere, timed):
            one.ask(b"watch %b\r\n" % TUBES[1])
        here.send(b"reserve\r\n")
        everywhere.send(b"reserve\r\n")
        with client_of(server, 0) as giving:
            job = giving.put(delay=100)
        waiters = [client_of(server, worker) for worker in range(2)]
        for waiter in waiters:
            waiter.send(b"wait 100 %d\r\n" % job)
        batch = client_of(server, 0)
        batch.ask(b"watch %b\r\n" % TUBES[1])
        batch.send(b"reserve-batch 9 1\r\n")
        timed.send(b"reserve-with-timeout 1\r\n")
        assert batch.reply() == b"TIMED_OUT\r\n"
        assert timed.reply() == b"TIMED_OUT\r\n"
        with client_of(server, 0) as giving:
            put(giving, 2)
        assert here.reply().startswith(b"RESERVED")
        assert everywhere.reply().startswith(b"RESERVED")
        assert here.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        assert [waiter.reply() for waiter in waiters] == [b"DELETED %d\r\n" % job] * 2
        assert of(server, "slow") == []


@pytest.mark.slow
def test_a_reload_switches_it_on_and_off(
    slow_server: SlowServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("options") / "options"
    path.write_text('log-format = "json"\n')
    config = f"--config={path}"
    with slow_server("SLOW_SYNC_MS", config) as server, server.connect() as client:
        put(client)
        path.write_text('log-format = "json"\nslow-log = 100\n')
        server.signal(signal.SIGHUP)

        def is_logged() -> bool:
            put(client)  # the lines of earlier commands precede this reply
            before = len(of(server, "slow"))
            for _ in range(3):
                put(client)
            return len(of(server, "slow")) > before

        assert eventually(is_logged, LONG)
        path.write_text('log-format = "json"\n')
        server.signal(signal.SIGHUP)
        assert eventually(lambda: not is_logged(), LONG)
        assert not is_logged()
