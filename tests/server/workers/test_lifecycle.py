"""Start, stop, drain and statistics of a server with several workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from processes import PROMPT_S, alive, children, eventually
from servers import Server, ours
from shards import TUBES, TWO, WORKERS, client_of, kill_worker, worker_pids
from wire import Client, list_of

pytestmark = pytest.mark.costly


def wait_for_end(server: Server) -> int | None:
    assert eventually(lambda: server.exit_status is not None, 10)
    return server.exit_status


def test_sigterm_stops_all_workers(tmp_path: Path) -> None:
    with ours(*TWO, "-b", tmp_path) as server:
        silent = server.connect()
        clients = [client_of(server, worker) for worker in range(WORKERS)]
        for client in clients:
            client.put()
        workers = worker_pids(server)
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        assert wait_for_end(server) == 0
        assert time.monotonic() - began < PROMPT_S
        assert not any(map(alive, workers))
        assert [client.read_to_end() for client in (silent, *clients)] == [b""] * 3
        assert server.complaints() == ""


@pytest.mark.slow
def test_sigterm_while_a_worker_restarts() -> None:
    for delay_s in (0, 0.11, 0.2):
        with ours(*TWO) as server:
            kill_worker(server, worker_pids(server)[1])
            time.sleep(delay_s)
            server.signal(signal.SIGTERM)
            assert wait_for_end(server) == 0


def test_a_second_signal_changes_nothing() -> None:
    with ours(*TWO) as server:
        os.killpg(server.pid, signal.SIGINT)
        os.kill(server.pid, signal.SIGTERM)
        assert wait_for_end(server) == 0
        assert server.complaints() == ""


def test_killing_the_parent_ends_all_workers_and_loses_no_jobs(tmp_path: Path) -> None:
    jobs = []
    with ours(*TWO, "-b", tmp_path) as server:
        for worker in range(WORKERS):
            with client_of(server, worker) as client:
                jobs.append([client.put(b"job %d" % number) for number in range(20)])
        workers = worker_pids(server)
        server.signal(signal.SIGKILL)
        assert eventually(lambda: not any(map(alive, workers)))
    with ours(*TWO, "-b", tmp_path) as server:
        for worker in range(WORKERS):
            with client_of(server, worker) as client:
                assert [client.reserve() for _ in range(20)] == jobs[worker]
                assert client.put() > max(map(max, jobs))


def test_each_worker_has_its_own_folder(tmp_path: Path) -> None:
    with ours(*TWO, "-b", tmp_path):
        pass
    assert sorted(path.name for path in tmp_path.glob("shard-*")) == ["shard-000", "shard-001"]
    assert all((folder / "binlog.1").exists() for folder in tmp_path.glob("shard-*"))


def test_one_worker_keeps_the_layout_of_c_beanstalkd(tmp_path: Path) -> None:
    with ours("--workers", "1", "-b", tmp_path) as server:
        assert len(children(server.pid)) == 1
    assert (tmp_path / "binlog.1").exists()
    assert not list(tmp_path.glob("shard-*"))


def test_a_drain_applies_to_all_workers_and_restarted_ones() -> None:
    with ours(*TWO) as server, client_of(server, 0) as one, client_of(server, 1) as other:
        server.signal(signal.SIGUSR1)
        for client in (one, other):
            assert eventually(lambda client=client: client.stats()["draining"] == "true")
            assert client.ask(b"put 0 0 1 1\r\nx\r\n") == b"DRAINING\r\n"
        kill_worker(server, worker_pids(server)[0])
        with client_of(server, 0) as client:
            assert client.ask(b"put 0 0 1 1\r\nx\r\n") == b"DRAINING\r\n"


# --- statistics ---------------------------------------------------------------------------------


def test_ids_are_global() -> None:
    with ours(*TWO) as server, client_of(server, 0) as one, client_of(server, 1) as other:
        assert [client.put() for client in (one, other, other, one)] == [1, 2, 3, 4]
        stats = one.stats()
    assert stats["current-jobs-ready"] == stats["total-jobs"] == stats["cmd-put"] == "4"
    assert stats["current-producers"] == "2"


@pytest.mark.slow
def test_connections_are_counted_once() -> None:
    with ours(*TWO) as server, client_of(server, 0) as asking:

        def counts() -> tuple[int, int]:
            stats = asking.stats()
            return int(stats["current-connections"]), int(stats["total-connections"]) - base

        base = 0
        assert eventually(lambda: counts()[0] == 1)
        base = counts()[1]
        silent = [server.connect() for _ in range(7)]
        assert eventually(lambda: counts() == (8, 7))
        talking = [client_of(server, worker) for worker in (0, 1, 1)]
        assert counts() == (11, 10)
        for client in silent[:2]:
            assert client.ask(b"use %b\r\n" % TUBES[1]) == b"USING %b\r\n" % TUBES[1]
        assert counts() == (11, 10)
        for client in (*silent[1:4], *talking[:2]):
            client.close()
        assert eventually(lambda: counts() == (6, 10))
        for client in (*silent, *talking):
            client.close()
        assert eventually(lambda: counts() == (1, 10))


def keep_busy(client: Client, server: Server, seconds: float) -> float:
    """Make the client's worker use that much processor time; return the server's total."""
    client.ask(b"list-tubes\r\n")
    before_s = server.cpu_s()
    used_s = 0.0
    while used_s < seconds:
        client.send(b"stats-tube default\r\n" * 1000 + b"list-tubes\r\n")
        client.replies(1001)
        used_s = server.cpu_s() - before_s
    return used_s


@pytest.mark.slow
def test_processor_time_includes_all_processes() -> None:
    with ours(*TWO) as server, client_of(server, 0) as asking, client_of(server, 1) as busy:
        before = asking.stats()
        used_s = keep_busy(busy, server, 0.3)
        after = asking.stats()
    reported_s = sum(
        float(after[key]) - float(before[key]) for key in ("rusage-utime", "rusage-stime")
    )
    # Each process reports two times in hundredths of a second.
    assert abs(reported_s - used_s) < 0.08


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_restart_keeps_the_order_of_tubes(tmp_path: Path, workers: int) -> None:
    names = [b"tube-%d" % (number * 7 % 30) for number in range(30)]
    options = (f"--workers={workers}", "-b", tmp_path)
    with ours(*options) as server, server.connect() as client:
        for name in names:
            client.ask(b"use %b\r\n" % name)
            client.put()
    listed = [b"default", *names]
    with ours(*options) as server, server.connect() as client:
        assert list_of(client.ask(b"list-tubes\r\n")) == listed
        client.ask(b"use a-new-one\r\n")
        assert list_of(client.ask(b"list-tubes\r\n")) == [*listed, b"a-new-one"]
