"""A worker that ends or hangs is restarted while the others serve."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path

import pytest
from cli.commands import FOLDER, refusal
from processes import alive, children, eventually
from servers import Server, ours
from shards import TUBES, TWO, WORKERS, client_of, kill_worker, worker_pids
from wire import Client, NoReplyError

pytestmark = pytest.mark.costly

BINLOG = 74
HEARTBEAT_LIMIT_S = 10.0


def whole(server: Server) -> bool:
    return len(children(server.pid)) == WORKERS


def kept(client: Client, job: int, body: bytes) -> bool:
    expected = b"RESERVED %d %d\r\n%b\r\n" % (job, len(body), body)
    return client.ask(b"reserve-with-timeout 0\r\n") == expected


@pytest.mark.parametrize("worker", range(WORKERS))
def test_a_killed_worker_restarts_with_its_jobs(tmp_path: Path, worker: int) -> None:
    with ours(*TWO, "-b", tmp_path) as server:
        pid = worker_pids(server)[worker]
        with client_of(server, worker) as ended, client_of(server, 1 - worker) as other:
            job = ended.put(b"acknowledged")
            kill_worker(server, pid)
            assert ended.read_to_end() == b""
            for _ in range(10):
                other.put(b"still served")
            # Waits in the parent until the worker has read its binlog.
            with client_of(server, worker) as again:
                assert kept(again, job, b"acknowledged")
                assert again.put() > job
            assert other.reserve() > job
        assert whole(server)
        assert eventually(lambda: "killed" in server.stderr())
        lines = server.complaints().splitlines()
        assert len(lines) == 1, lines
        assert f"worker {worker} (pid {pid}) was killed by signal 9" in lines[0]
        assert "restarting in 0.1 s" in lines[0]
        assert server.stop() == 0


@pytest.mark.slow
def test_repeated_kills() -> None:
    with ours(*TWO) as server, client_of(server, 1) as other:
        survivor = worker_pids(server)[1]
        for _ in range(4):
            (pid,) = set(children(server.pid)) - {survivor}
            kill_worker(server, pid)
            with client_of(server, 0) as client:
                client.put()
            other.put()
        assert eventually(lambda: server.complaints().count("\n") == 4)
        pauses = [line.rpartition(" in ")[2] for line in server.complaints().splitlines()]
        assert pauses == ["0.1 s", "0.2 s", "0.4 s", "0.8 s"]
        assert other.ask(b"list-tube-used\r\n") == b"USING %b\r\n" % TUBES[1]


def test_all_workers_killed_at_once(tmp_path: Path) -> None:
    with ours(*TWO, "-b", tmp_path) as server:
        jobs = []
        for worker in range(WORKERS):
            with client_of(server, worker) as client:
                jobs.append(client.put(b"kept"))
        for pid in worker_pids(server):
            kill_worker(server, pid)
        for worker in range(WORKERS):
            with client_of(server, worker) as client:
                assert kept(client, jobs[worker], b"kept")
        assert server.stop() == 0


def test_counters_survive_a_worker_and_gauges_do_not() -> None:
    with ours(*TWO) as server, client_of(server, 1) as other:
        lost = [client_of(server, 0) for _ in range(5)]
        for client in lost:
            client.put()
        before = other.stats()
        kill_worker(server, worker_pids(server)[0])
        assert eventually(lambda: other.stats()["current-connections"] == "1")
        after = other.stats()
        assert before["current-jobs-ready"] == before["cmd-put"] == "5"
        assert (after["current-jobs-ready"], after["cmd-put"]) == ("0", "5")
        assert after["current-producers"] == "0"
        assert after["total-connections"] == before["total-connections"]
        assert float(after["rusage-utime"]) >= float(before["rusage-utime"])
        with client_of(server, 0):
            stats = other.stats()
            assert stats["current-connections"] == "2"
            assert int(stats["total-connections"]) == int(before["total-connections"]) + 1
        for client in lost:
            client.close()


FAULTY_WORKER = """
import sys
if "beanstalkd_py.server.worker.process" in sys.orig_argv:
    import errno
    from beanstalkd_py.core._core import lib
    lib.bs_io_fail(1 << lib.BS_IO_DATASYNC, 40, errno.EIO, 1)
"""


def test_a_failed_sync_ends_one_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAULTY_WORKER)
    folder = tmp_path / "binlog"
    folder.mkdir()
    acknowledged = []
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with ours(*TWO, "-b", folder) as server, client_of(server, 1) as other:
        with client_of(server, 0) as client, pytest.raises((NoReplyError, OSError)):
            for _ in range(100):
                acknowledged.append(client.put())
        other.put()
        # Before the parent detects the end, it may still send connections to the worker.
        again = f"ended with status {BINLOG}; restarting"
        assert eventually(lambda: again in server.stderr())
        with client_of(server, 0) as client:
            for job in acknowledged:
                assert client.ask(b"peek %d\r\n" % job).startswith(b"FOUND ")
    assert acknowledged


@pytest.mark.slow
def test_a_worker_that_fails_at_the_first_start_ends_the_server(tmp_path: Path) -> None:
    with ours(*TWO, "-b", tmp_path):
        pass  # creates the shards
    folder = tmp_path / "shard-001"
    with (folder / "lock").open("r+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        line = refusal(FOLDER, *TWO, "-l127.0.0.1", "-p0", "-b", tmp_path)
    assert str(folder) in line
    assert "locked by another process" in line
    # The other worker has ended, too, and released its lock.
    with (tmp_path / "shard-000" / "lock").open("r+") as free:
        fcntl.lockf(free, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.slow
def test_a_failing_restart_is_retried(tmp_path: Path) -> None:
    with ours(*TWO, "-b", tmp_path) as server, client_of(server, 1) as other:
        with client_of(server, 0) as client:
            job = client.put(b"kept")
        with (tmp_path / "shard-000" / "lock").open("r+") as lock:
            kill_worker(server, worker_pids(server)[0])
            assert eventually(lambda: locked(lock.fileno()))
            client = server.connect(timeout_s=10)
            client.send(b"use %b\r\n" % TUBES[0])
            assert eventually(lambda: "locked by another process" in server.stderr(), 10)
            assert client.silent(0.1)
            other.put()
        assert client.reply() == b"USING %b\r\n" % TUBES[0]
        client.close()
        with client_of(server, 0) as client:
            assert kept(client, job, b"kept")
        text = f"ended with status {FOLDER}; restarting in 0.2 s"
        assert eventually(lambda: text in server.stderr())
        assert server.stop() == 0


def locked(fd: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@pytest.mark.slow
def test_a_hung_worker_is_killed_and_restarted(tmp_path: Path) -> None:
    with ours(*TWO, "-b", tmp_path) as server, client_of(server, 1) as other:
        with client_of(server, 0) as client:
            job = client.put(b"kept")
        pid = worker_pids(server)[0]
        began = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        while alive(pid):
            other.put()
            assert time.monotonic() - began < HEARTBEAT_LIMIT_S + 3
            time.sleep(0.05)
        assert time.monotonic() - began > HEARTBEAT_LIMIT_S - 1.5
        with client_of(server, 0) as client:
            assert kept(client, job, b"kept")
        assert eventually(lambda: "worker 0 did not answer for 10 s; killing it" in server.stderr())
        assert server.stop() == 0


@pytest.mark.slow
def test_a_long_stopped_server_continues() -> None:
    with ours(*TWO) as server, client_of(server, 0) as one, client_of(server, 1) as other:
        os.killpg(server.pid, signal.SIGSTOP)
        time.sleep(HEARTBEAT_LIMIT_S + 2)
        os.killpg(server.pid, signal.SIGCONT)
        time.sleep(2)
        one.put()
        other.put()
        assert server.complaints() == ""


@pytest.mark.slow
def test_reserves_skip_a_hung_worker() -> None:
    """Long before its restart, for jobs of other workers and for timeouts."""
    with ours(*TWO) as server, client_of(server, 0) as client, client_of(server, 0) as putter:
        client.ask(b"watch %b\r\n" % TUBES[1])
        hanging = worker_pids(server)[1]
        os.kill(hanging, signal.SIGSTOP)
        try:
            began = time.monotonic()
            job = putter.put(b"here")
            reply = client.ask(b"reserve-with-timeout 4\r\n", 10)
            assert reply == b"RESERVED %d 4\r\nhere\r\n" % job
            assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
            assert client.ask(b"reserve-with-timeout 2\r\n", 10) == b"TIMED_OUT\r\n"
            assert time.monotonic() - began < 6
        finally:
            os.kill(hanging, signal.SIGCONT)
