"""A log that stores nothing for longer than --replicate-timeout."""

from __future__ import annotations

import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from replication.memory_log import MemoryCluster, MemoryLog
from replication.replicas import replicated
from replication.test_core import LIMIT_S, PUT, SECOND, adopted, is_readable, run_until, settle

from beanstalkd_py.core.core import Core
from beanstalkd_py.core.limits import Limits
from beanstalkd_py.server.metrics.server_metrics import REFUSED

TIMEOUT_S = 0.5
LIMITS = Limits(replicate_timeout_ns=int(TIMEOUT_S * SECOND))
OUT_OF_MEMORY = b"OUT_OF_MEMORY\r\n"
REFUSED_LINES = ("kick 1", "kick-job 2", "truncate default", "move 1 other 0 0")


def ask(core: Core, client: socket.socket, line: bytes) -> bytes:
    client.sendall(line)
    run_until(core, lambda: is_readable(client))
    return client.recv(1000)


def closed(client: socket.socket) -> bool:
    return is_readable(client) and client.recv(1) == b""


def test_waiting_connections_are_closed_and_puts_refused(folder: Path) -> None:
    with replicated(folder) as (core, replicator):
        core.limit(LIMITS)
        waiting, other = adopted(core), adopted(core)
        assert ask(core, other, PUT) == b"INSERTED 1\r\n"
        assert ask(core, other, b"reserve\r\n").startswith(b"RESERVED 1 ")
        replicator.holding.set()
        begun = time.monotonic()
        waiting.sendall(PUT)
        run_until(core, lambda: is_readable(waiting))
        assert closed(waiting)
        assert time.monotonic() - begun > TIMEOUT_S
        assert ask(core, other, PUT) == OUT_OF_MEMORY
        for line in REFUSED_LINES:
            assert ask(core, other, line.encode() + b"\r\n") == OUT_OF_MEMORY, line
        counters = replicator.shared.worker[0]
        assert counters.refused_puts[REFUSED.index("log_overdue")] == 1
        assert counters.timed_out_connections == 1
        assert ask(core, other, b"touch 1\r\n") == b"TOUCHED\r\n"
        assert ask(core, other, b"list-tube-used\r\n") == b"USING default\r\n"
        replicator.holding.clear()
        run_until(core, lambda: not replicator.has_offer())
        settle(core)
        assert ask(core, other, b"delete 1\r\n") == b"DELETED\r\n"
        # The outcome of the connection that was closed: the log has stored its put.
        assert ask(core, other, b"peek 2\r\n").startswith(b"FOUND 2 4")
        assert ask(core, other, b"peek 3\r\n") == b"NOT_FOUND\r\n"


@pytest.mark.parametrize("line", ["delete 1", "release 1 5 0", "bury 1 5"])
def test_the_end_of_a_reserved_job_is_not_refused(folder: Path, line: str) -> None:
    """Otherwise a client would work on it again."""
    with replicated(folder) as (core, replicator):
        core.limit(LIMITS)
        waiting, worker = adopted(core), adopted(core)
        assert ask(core, worker, PUT) == b"INSERTED 1\r\n"
        assert ask(core, worker, b"reserve\r\n").startswith(b"RESERVED 1 ")
        replicator.holding.set()
        waiting.sendall(PUT)
        run_until(core, lambda: is_readable(waiting))
        worker.sendall(line.encode() + b"\r\n")
        run_until(core, lambda: is_readable(worker))
        assert closed(worker)
        replicator.holding.clear()
        run_until(core, lambda: not replicator.has_offer())
        settle(core)
        stats = ask(core, adopted(core), b"stats-job 1\r\n")
        if line == "delete 1":
            assert stats == b"NOT_FOUND\r\n"
        else:
            assert b"\npri: 5\n" in stats and b"\nreserves: 1\n" in stats


@pytest.mark.parametrize("line", ["stats-tube default", "peek 7", "reserve-with-timeout 0"])
def test_replies_that_show_unstored_changes_wait(folder: Path, line: str) -> None:
    with replicated(folder) as (core, replicator):
        core.limit(Limits(replicate_timeout_ns=60 * SECOND))
        reader, writer = adopted(core), adopted(core)
        replicator.holding.set()
        writer.sendall(b"put 0 9 100 4\r\nbody\r\n")
        run_until(core, replicator.has_offer)
        reader.sendall(line.encode() + b"\r\n")
        settle(core)
        assert not is_readable(reader)
        # A reload may set a shorter time.
        core.limit(LIMITS)
        run_until(core, lambda: is_readable(reader))
        assert closed(reader)
        replicator.holding.clear()


def test_the_loop_wakes_at_the_timeout(folder: Path) -> None:
    """Nothing else wakes it before the end of its budget."""
    with replicated(folder) as (core, replicator), ThreadPoolExecutor(1) as pool:
        core.limit(LIMITS)
        replicator.holding.set()
        waiting = adopted(core)
        waiting.sendall(PUT)
        begun = time.monotonic()

        def seconds_until_readable() -> float:
            select.select([waiting], [], [], LIMIT_S)
            return time.monotonic() - begun

        took_s = pool.submit(seconds_until_readable)
        core.run(int(10 * TIMEOUT_S * SECOND), linger=True)
        assert TIMEOUT_S < took_s.result() < 8 * TIMEOUT_S
        assert closed(waiting)
        replicator.holding.clear()


def test_later_waits_end_after_another_timeout(folder: Path) -> None:
    """A client that reads a job of an unstored put waits, too, but is not closed at once."""
    with replicated(folder) as (core, replicator):
        core.limit(LIMITS)
        replicator.holding.set()
        first, second = adopted(core), adopted(core)
        first.sendall(PUT)
        run_until(core, lambda: is_readable(first))
        begun = time.monotonic()
        second.sendall(b"peek 1\r\n")
        run_until(core, lambda: is_readable(second))
        assert closed(second)
        assert time.monotonic() - begun > TIMEOUT_S / 2
        replicator.holding.clear()


@pytest.mark.parametrize("timeout_s", [0, 5])
def test_a_log_that_answers_in_time(folder: Path, timeout_s: int) -> None:
    """Without the option no time is too long."""
    with replicated(folder, MemoryLog(MemoryCluster())) as (core, replicator):
        core.limit(Limits(replicate_timeout_ns=timeout_s * SECOND))
        client = adopted(core)
        for number in range(1, 4):
            replicator.holding.set()
            client.sendall(PUT)
            begun = time.monotonic()
            while time.monotonic() - begun < TIMEOUT_S / 2:
                settle(core)
            assert not select.select([client], [], [], 0)[0]
            replicator.holding.clear()
            run_until(core, lambda: is_readable(client))
            assert client.recv(100) == b"INSERTED %d\r\n" % number
