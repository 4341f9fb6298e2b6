"""Client timeouts: which clients are closed, when, and which are not."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterator

import pytest
from core.rig import MILLISECOND, NEVER, SECOND, YEAR, Rig, RigClient
from core.workers.cluster import Cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import eventually
from wire import CRLF

from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.limits import Limits
from beanstalkd_py.core.shared_memory import new_shared
from beanstalkd_py.errors import SessionEndedError

TIMEOUT = 10 * SECOND
IDLE = Limits(idle_timeout_ns=TIMEOUT)
SEND = Limits(send_timeout_ns=TIMEOUT)


def is_closed(client: RigClient) -> bool:
    try:
        client.read()
    except SessionEndedError:
        return True
    return False


def test_no_client_is_closed_without_timeouts() -> None:
    with Rig() as rig:
        client = rig.client()
        client.send(b"put 0 0 9")
        assert rig.advance(YEAR) == NEVER
        assert not is_closed(client)


def test_silence() -> None:
    with Rig(limits=IDLE) as rig:
        client = rig.client()
        assert rig.advance(TIMEOUT - 1) == rig.now.mono + 1
        client.do(b"list-tube-used", b"USING default")
        rig.advance(TIMEOUT - 1)
        assert not is_closed(client)
        assert rig.advance(1) == NEVER
        assert is_closed(client)
        assert rig.counters.timed_out_connections == 1
        assert (rig.counters.connections, rig.counters.closed_connections) == (0, 1)


def test_a_waiting_client_or_holder_may_be_silent() -> None:
    with Rig(limits=IDLE) as rig:
        waiting, holding, silent = rig.client(), rig.client(), rig.client()
        silent.use(b"t")
        holding.use(b"t")
        holding.put(ttr=10**6)
        number = holding.reserve()
        waiting.send(b"reserve\r\n")
        rig.advance(TIMEOUT)
        rig.advance(YEAR // 1000)
        assert is_closed(silent)
        assert not is_closed(waiting)
        holding.do(b"delete %d" % number, b"DELETED")
        for _ in range(2):
            rig.advance(TIMEOUT)
        assert is_closed(holding)
        assert not is_closed(waiting)


@pytest.mark.parametrize("seconds", [5, 10, 15, 20])
def test_the_idle_timeout_starts_again_after_a_wait(seconds: int) -> None:
    with Rig(limits=IDLE) as rig:
        client = rig.client()
        client.send(b"reserve-with-timeout %d\r\n" % seconds)
        for _ in range(seconds):
            rig.advance(SECOND)
        assert client.read() == b"TIMED_OUT\r\n"
        rig.advance(TIMEOUT - 1)
        assert not is_closed(client)


@pytest.mark.parametrize("beginning", [b"p", b"put 0 0 9 5\r\n", b"put 0 0 9 5\r\nabc", b"x" * 999])
def test_a_sender_that_does_not_go_on(beginning: bytes) -> None:
    with Rig(limits=SEND) as rig:
        client, patient = rig.client(), rig.client()
        client.put()
        rig.advance(YEAR)
        assert not is_closed(client)
        client.send(beginning)
        rig.advance(TIMEOUT - 1)
        client.send(b"y")
        rig.advance(TIMEOUT - 1)
        assert not is_closed(client)
        rig.advance(1)
        assert is_closed(client)
        assert not is_closed(patient)
        assert patient.stats(b"stats-tube default")["current-jobs-ready"] == "1"


def test_the_send_timeout_applies_to_refused_bodies() -> None:
    with Rig(limits=SEND, max_job_size=10) as rig:
        client = rig.client()
        client.send(b"put 0 0 9 1000\r\nabc")
        rig.advance(TIMEOUT)
        assert is_closed(client)


def test_silence_that_is_excused_is_no_excuse_for_half_a_body() -> None:
    """The idle timeout and the sender's jobs make no difference."""
    limits = Limits(idle_timeout_ns=TIMEOUT // 5, send_timeout_ns=TIMEOUT)
    with Rig(limits=limits) as rig:
        client = rig.client()
        client.put(ttr=1000)
        client.reserve()
        rig.advance(TIMEOUT)
        assert not is_closed(client)
        client.send(b"put 0 0 9 100\r\nabc")
        for _ in range(9):
            rig.advance(TIMEOUT // 10)
            assert not is_closed(client)
        rig.advance(TIMEOUT // 10)
        assert is_closed(client)


def test_commands_that_wait_for_their_turn_are_no_fault() -> None:
    with Rig(limits=SEND) as rig:
        client, other = rig.client(), rig.client()
        client.send(b"reserve\r\nlist-tu")
        rig.advance(YEAR)
        assert not is_closed(client)
        other.put()
        assert client.read().startswith(b"RESERVED")
        rig.advance(TIMEOUT - 1)
        client.do(b"be-used", b"USING default")
        client.send(b"reser")
        rig.advance(TIMEOUT)
        assert is_closed(client)


def test_jobs_of_a_closed_connection_are_ready_again() -> None:
    with Rig(limits=SEND) as rig:
        client, other = rig.client(), rig.client()
        number = client.put(ttr=1000)
        assert client.reserve() == number
        other.send(b"reserve\r\n")
        client.send(b"delete")
        rig.advance(TIMEOUT)
        assert is_closed(client)
        assert other.read() == b"RESERVED %d 1\r\nx\r\n" % number


def test_a_reload_begins_anew() -> None:
    with Rig() as rig:
        client = rig.client()
        rig.advance(YEAR)
        rig.core.limit(IDLE, rig.now)
        rig.advance(TIMEOUT - 1)
        assert not is_closed(client)
        rig.core.limit(Limits(), rig.now)
        assert rig.advance(YEAR) == NEVER
        rig.core.limit(IDLE, rig.now)
        rig.advance(TIMEOUT)
        assert is_closed(client)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(
            [b"", b"pu", b"\r\n", b"reserve-with-timeout 3\r\n", b"put 0 0 2 3\r\n", b"ab"]
        ),
        st.integers(0, 4 * SECOND),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_clients_are_closed_neither_early_nor_late(
    steps: list[tuple[int, bytes, int]],
) -> None:
    """Early: within the shorter timeout after the last byte. In the end all were silent."""
    limits = Limits(idle_timeout_ns=7 * SECOND, send_timeout_ns=3 * SECOND)
    with Rig(limits=limits) as rig:
        clients = [rig.client() for _ in range(4)]
        active_at = [rig.now.mono] * 4
        for index, data, pause in steps:
            if data and not is_closed(clients[index]):
                clients[index].send(data)
                active_at[index] = rig.now.mono
            rig.advance(pause)
            for client, at in zip(clients, active_at, strict=True):
                if rig.now.mono < at + 3 * SECOND:
                    assert not is_closed(client)
        for _ in range(10):
            rig.advance(7 * SECOND)
            closed = [is_closed(client) for client in clients]  # takes the replies, too
        assert all(closed)
        assert rig.counters.connections == 0
        assert rig.counters.reserved == 0


def test_thousands_of_connections_cost_no_walk() -> None:
    """A tick without a due client does nothing, whatever the number of clients."""
    with Rig(limits=Limits(idle_timeout_ns=YEAR)) as rig:
        for _ in range(5000):
            rig.client()
        started = time.process_time()
        for _ in range(20_000):
            rig.core.tick(rig.now)
        assert time.process_time() - started < 2


# --- several workers ------------------------------------------------------------------------------


def ended(core: Core, session: int) -> bool:
    try:
        core.output(session)
    except SessionEndedError:
        return True
    return False


def test_a_job_held_at_another_worker_is_held() -> None:
    with Cluster(2, limits=Limits(idle_timeout_ns=50 * MILLISECOND)) as cluster:
        there = cluster.tube_on(1)
        client = cluster.client(0)
        number = client.put(ttr=1000, tube=there)
        client.do(b"watch " + there, b"WATCHING 2")
        assert client.reserve() == number
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            cluster.settle()
            time.sleep(0.01)
        client.do(b"delete %d" % number, b"DELETED")

        def closed() -> bool:
            cluster.settle()
            return ended(client.core, client.session)

        assert eventually(closed)
        assert cluster.shared.worker[0].timed_out_connections == 1


def dialogue(limits: Limits, seed: int) -> list[bytes]:
    """Return the replies to a client that holds a job at both shards."""
    dice = random.Random(seed)
    with Cluster(2, limits=limits) as cluster:
        tubes = [cluster.tube_on(0), cluster.tube_on(1)]
        client = cluster.client(0)
        for tube in tubes:
            client.put(ttr=1000, tube=tube)
            client.do(b"watch " + tube, b"WATCHING %d" % (2 + tubes.index(tube)))
        held = [client.reserve(), client.reserve()]
        replies = []
        for step in range(150):
            data = b""
            for _ in range(dice.randrange(1, 6)):
                data += dice.choice(
                    [
                        b"use %b\r\n" % dice.choice(tubes),
                        b"put %d 0 900 1\r\nx\r\n" % dice.randrange(9),
                        b"reserve-with-timeout 0\r\n",
                        b"peek-ready\r\n",
                        b"kick 1\r\n",
                        b"delete %d\r\n" % dice.randrange(3, 60),
                        b"list-tubes-watched\r\n",
                        b"nonsense\r\n",
                    ]
                )
            replies.append(client.ask(data))
            if step % 10 == 0:
                time.sleep(0.002)
                cluster.settle()
        assert all(client.job(number)["state"] == "reserved" for number in held if number)
        return replies


@pytest.mark.parametrize("seed", range(3))
def test_questions_about_held_jobs_change_no_reply(seed: int) -> None:
    often = Limits(idle_timeout_ns=MILLISECOND)
    assert dialogue(often, seed) == dialogue(Limits(), seed)


# --- output, which needs a socket -----------------------------------------------------------------


@contextlib.contextmanager
def served(limits: Limits) -> Iterator[tuple[Core, socket.socket]]:
    core = Core(CoreConfig(max_job_size=1 << 20), new_shared())
    core.limit(limits)
    ours, theirs = socket.socketpair()
    core.adopt(theirs.detach())
    ours.settimeout(5)
    try:
        yield core, ours
    finally:
        ours.close()
        core.close()


def go_on(core: Core, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        core.run(5 * MILLISECOND, linger=True)


SIZE = 200_000


def put_large(core: Core, client: socket.socket) -> bytes:
    """Put a job of SIZE bytes in small pieces; return the reply to a peek."""
    data = b"put 0 0 9 %d\r\n" % SIZE + b"x" * SIZE + CRLF
    for start in range(0, len(data), 50_000):
        client.sendall(data[start : start + 50_000])
        go_on(core, 0.002)
    assert client.recv(100) == b"INSERTED 1\r\n"
    return b"FOUND 1 %d\r\n" % SIZE + b"x" * SIZE + CRLF


def is_connected(core: Core) -> bool:
    return bool(core.connections(0, 10)[0])


def test_a_client_that_takes_no_replies() -> None:
    limits = Limits(output_timeout_ns=400 * MILLISECOND, output=4096)
    with served(limits) as (core, client):
        put_large(core, client)
        client.sendall(b"peek 1\r\n" * 20)
        go_on(core, 0.1)
        (shown,), _ = core.connections(0, 10)
        assert 0 < shown.unsent < 2 * SIZE  # no further replies are made meanwhile
        for _ in range(8):  # reading some output is progress
            client.recv(SIZE)
            go_on(core, 0.1)
            assert is_connected(core)
        assert eventually(lambda: not (go_on(core, 0.01) or is_connected(core)))


def test_a_client_that_reads_late_is_not_closed() -> None:
    with served(Limits(output_timeout_ns=10 * SECOND)) as (core, client):
        reply = put_large(core, client)
        client.sendall(b"peek 1\r\n" * 30)
        go_on(core, 0.1)
        got = b""
        while len(got) < 30 * len(reply):
            core.run(MILLISECOND, linger=True)
            got += client.recv(1 << 20)
        assert got == 30 * reply
