"""`wait` round by round: many clients that wait for one job, and answers that wait for the disk."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from core import fault_injection
from core.fault_injection import Call
from core.long_commands.rounds import Rounds, received

from beanstalkd_py.core.clocks import Now

PIECE = 128
PEEK = b"peek-ready\r\n"


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    fault_injection.heal()


def put(rounds: Rounds, client: socket.socket) -> int:
    return int(rounds.ask(client, b"put 0 0 100 1\r\nx\r\n").split()[1])


def waiters_of(rounds: Rounds, job: int, count: int) -> list[socket.socket]:
    waiters = [rounds.client() for _ in range(count)]
    for waiter in waiters:
        waiter.sendall(b"wait 100 %d\r\n" % job)
    for _ in range(count // 100 + 1):
        rounds.run()
    assert all(received(waiter) == b"" for waiter in waiters)
    return waiters


@pytest.mark.parametrize("with_binlog", [False, True])
def test_a_round_answers_some_of_them_and_serves_others(tmp_path: Path, with_binlog: bool) -> None:
    with Rounds(tmp_path if with_binlog else None, sync_interval_ns=0) as rounds:
        client, other = rounds.client(), rounds.client()
        job = put(rounds, client)
        waiters = waiters_of(rounds, job, 3 * PIECE + 1)
        assert rounds.ask(client, b"delete %d\r\n" % job) == b"DELETED\r\n"
        answered, rounds_taken = 0, 0
        while answered < len(waiters):
            assert rounds.ask(other, PEEK) == b"NOT_FOUND\r\n"
            replies = [reply for waiter in waiters if (reply := received(waiter))]
            assert set(replies) <= {b"DELETED %d\r\n" % job}
            assert len(replies) <= 2 * PIECE  # the delete may have been followed by a round
            answered += len(replies)
            rounds_taken += 1
        assert answered == len(waiters)
        assert rounds_taken > 1


def test_an_answer_waits_for_the_disk(tmp_path: Path) -> None:
    with Rounds(tmp_path, sync_interval_ns=0) as rounds:
        client, other = rounds.client(), rounds.client()
        job = put(rounds, client)
        kept = put(rounds, client)
        (waiter,) = waiters_of(rounds, job, 1)
        fault_injection.fail(Call.DATASYNC, error=errno.EIO, lasting=True)
        client.sendall(b"delete %d\r\n" % job)
        other.sendall(b"reserve-job %d\r\nbury %d 0\r\n" % (kept, kept))
        for _ in range(10):
            rounds.run()
            assert received(waiter) == b""


def test_a_job_that_is_gone_is_not_found_before_that_is_on_the_disk(tmp_path: Path) -> None:
    with Rounds(tmp_path, sync_interval_ns=0) as rounds:
        client, waiter = rounds.client(), rounds.client()
        job = put(rounds, client)
        fault_injection.fail(Call.DATASYNC, error=errno.EIO, lasting=True)
        client.sendall(b"delete %d\r\n" % job)
        rounds.run()
        waiter.sendall(b"wait 9 %d\r\n" % job)
        for _ in range(10):
            rounds.run()
            assert received(waiter) == b""


def test_those_that_leave_while_others_are_answered_are_forgotten() -> None:
    with Rounds() as rounds:
        client = rounds.client()
        job = put(rounds, client)
        waiters = waiters_of(rounds, job, 4 * PIECE)
        assert rounds.ask(client, b"delete %d\r\n" % job) == b"DELETED\r\n"
        for waiter in waiters[1::2]:
            waiter.close()
        for _ in range(20):
            rounds.run()
        assert all(received(waiter) == b"DELETED %d\r\n" % job for waiter in waiters[::2])
        assert rounds.shared.worker[0].connections == 1 + len(waiters) // 2
        again = put(rounds, client)
        assert again > job


def test_an_ended_job_answers_those_that_waited_and_not_those_that_come() -> None:
    """A buried job that is kicked at once is buried for the first and alive for the second."""
    with Rounds() as rounds:
        client = rounds.client()
        job = put(rounds, client)
        waiters = waiters_of(rounds, job, 2 * PIECE)
        late = rounds.client()
        client.sendall(
            b"reserve-job %d\r\nbury %d 0\r\nkick-job %d\r\nwait 0 %d\r\n" % (job, job, job, job)
        )
        rounds.run()
        late.sendall(b"wait 100 %d\r\n" % job)
        for _ in range(10):
            rounds.run()
        assert received(client).endswith(b"BURIED\r\nKICKED\r\nTIMED_OUT\r\n")
        assert all(received(waiter) == b"BURIED %d\r\n" % job for waiter in waiters)
        assert received(late) == b""
        rounds.ask(client, b"delete %d\r\n" % job)
        rounds.run()
        assert received(late) == b"DELETED %d\r\n" % job


def test_nothing_else_ends_a_wait_whose_job_has_ended() -> None:
    """Their answers follow in later rounds, when a timeout, an abort or the end of input comes."""
    with Rounds() as rounds:
        client = rounds.client()
        job, held = put(rounds, client), put(rounds, client)
        waiters_of(rounds, job, 4 * PIECE)
        timed, aborted, closed, holder = (rounds.client() for _ in range(4))
        timed.sendall(b"wait 1 %d\r\n" % job)
        holder.sendall(b"reserve-job %d\r\n" % held)
        for one in (aborted, closed, holder):
            one.sendall(b"wait 100 %d\r\n" % job)
        rounds.run()
        assert received(holder).startswith(b"RESERVED ")
        assert rounds.ask(client, b"delete %d\r\n" % job) == b"DELETED\r\n"
        assert [received(one) for one in (timed, aborted, closed, holder)] == [b""] * 4
        # The timeout, and the last second of the job that `holder` has reserved.
        rounds.core.tick(Now(time.monotonic_ns() + 99_500_000_000, time.time_ns()))
        aborted.sendall(b"reserve-abort\r\n")
        closed.shutdown(socket.SHUT_WR)
        for _ in range(10):
            rounds.run()
        deleted = b"DELETED %d\r\n" % job
        assert received(aborted) == deleted + b"ABORTED\r\n"
        assert [received(one) for one in (timed, closed, holder)] == [deleted] * 3


def test_a_core_may_end_while_clients_wait() -> None:
    with Rounds() as rounds:
        client = rounds.client()
        job = put(rounds, client)
        waiters_of(rounds, job, 10)
        waiters_of(rounds, put(rounds, client), 2 * PIECE)
        client.sendall(b"delete %d\r\n" % (job + 1))
        rounds.run()
