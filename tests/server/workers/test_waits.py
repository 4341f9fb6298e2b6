"""Clients that wait for a job, or for several, while workers and the server change."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from servers import ours
from shards import TWO, WORKERS, client_of, kill_worker, worker_pids
from wire import jobs_of

from beanstalkd_py.server.process.proc_stats import process_usage

pytestmark = pytest.mark.costly

WAIT = b"wait 100 %d\r\n"
WAITS = 30_000
LEAST_BYTES = 32
"""Of a wait that is not freed."""


@pytest.mark.parametrize("worker", range(WORKERS))
def test_a_wait_outlasts_the_worker_of_its_job(tmp_path: Path, worker: int) -> None:
    with ours(*TWO, "-b", tmp_path) as server, client_of(server, 1 - worker) as waiter:
        with client_of(server, worker) as putter:
            job, gone = putter.put(), putter.put()
            with client_of(server, 1 - worker) as other:
                waiter.send(WAIT % job)
                other.send(WAIT % gone)
                assert waiter.silent() and other.silent()
                kill_worker(server, worker_pids(server)[worker])
                with client_of(server, worker) as again:
                    assert again.ask(b"delete %d\r\n" % gone) == b"DELETED\r\n"
                    # Deleted before the new worker is asked, or after.
                    assert other.reply() in (b"DELETED %d\r\n" % gone, b"NOT_FOUND\r\n")
                    assert waiter.silent(0.2)
                    assert again.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
                    assert waiter.reply() == b"DELETED %d\r\n" % job
        assert server.stop() == 0


def test_waits_outlast_a_reload_and_a_drain(tmp_path: Path) -> None:
    with ours(*TWO, "-b", tmp_path) as server:
        clients = [client_of(server, worker) for worker in range(WORKERS)]
        jobs = [client.put() for client in clients]
        waiters = [client_of(server, worker) for worker in (0, 1, 0, 1)]
        for number, waiter in enumerate(waiters):
            waiter.send(WAIT % jobs[number // 2])
        for number in (signal.SIGHUP, signal.SIGUSR1):
            server.signal(number)
            time.sleep(0.1)
            assert all(waiter.silent(0.01) for waiter in waiters)
        for client, job in zip(clients, jobs, strict=True):
            assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        replies = [waiter.reply() for waiter in waiters]
        assert replies == [b"DELETED %d\r\n" % jobs[number // 2] for number in range(4)]
        waiters[0].send(WAIT % jobs[0])
        assert waiters[0].reply() == b"NOT_FOUND\r\n"
        assert server.stop() == 0


def test_a_server_stops_while_clients_wait() -> None:
    with ours(*TWO) as server, client_of(server, 0) as putter:
        job = putter.put()
        waiters = [client_of(server, worker) for worker in range(WORKERS)]
        for waiter in waiters:
            waiter.send(WAIT % job)
            assert waiter.silent()
        assert server.stop() == 0
        assert [waiter.read_to_end() for waiter in waiters] == [b"", b""]


@pytest.mark.slow
def test_waiting_needs_memory_only_meanwhile() -> None:
    def all_wait_once() -> int:
        """Return how many waited when the job ended."""
        job = putter.put()
        for client in clients:
            client.send(WAIT % job)
        time.sleep(0.005)
        assert putter.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        replies = [client.reply() for client in clients]
        assert set(replies) <= {b"DELETED %d\r\n" % job, b"NOT_FOUND\r\n"}
        return replies.count(b"DELETED %d\r\n" % job)

    with ours(*TWO) as server, client_of(server, 0) as putter:
        clients = [client_of(server, number % WORKERS) for number in range(100)]
        pids = worker_pids(server)

        def growth() -> int:
            before = sum(process_usage(pid).resident_bytes for pid in pids)
            waits = 0
            while waits < WAITS:
                waits += all_wait_once()
            return sum(process_usage(pid).resident_bytes for pid in pids) - before

        # Memory that is used for the first time counts, too, but not again and again.
        assert any(growth() < LEAST_BYTES * WAITS for _ in range(3))


def test_a_batch_of_a_killed_worker_is_ready_again(tmp_path: Path) -> None:
    with ours(*TWO, "-b", tmp_path) as server:
        with client_of(server, 0) as near, client_of(server, 1) as far:
            jobs = [far.put() for _ in range(5)]
            name = far.ask(b"list-tube-used\r\n").split()[1]
            near.ask(b"watch %b\r\n" % name)
            assert [job.id for job in jobs_of(near.ask(b"reserve-batch 9 9\r\n"))] == jobs
            kill_worker(server, worker_pids(server)[1])
            with client_of(server, 1) as again:
                assert [job.id for job in jobs_of(again.ask(b"reserve-batch 9 9\r\n"))] == jobs
                for job in jobs:
                    assert again.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        assert server.stop() == 0
