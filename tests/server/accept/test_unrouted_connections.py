"""Routing of connections: unrouted, slow and queued ones."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import children, eventually
from servers import Server, our_command, ours, reference
from shards import TUBES, TWO, client_of, kill_worker, worker_pids
from wire import NoReplyError, in_tube

from beanstalkd_py.core.placement import shard_of

SILENT = 4000
BYTES_PER_SILENT = 300
# Until the requesting connection is closed, because callers count descriptors next.
ITS_END_S = 0.05
# For 20,000 connections; a leak of one small object each would be more.
LEVEL_BYTES = 1 << 20
# A worker reserves 64 and a link to its peer, the parent 64 and 4 to its workers.
FEW_DESCRIPTORS = 84
WORKER_CAPACITY = FEW_DESCRIPTORS - 64 - 2
PARENT_CAPACITY = FEW_DESCRIPTORS - 64 - 4


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with ours(*TWO) as running:
        yield running


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Raise the descriptor limit of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_connections(server: Server) -> int:
    """Return the number of open connections except the one that asks."""
    with server.connect() as client:
        count = int(client.stats()["current-connections"]) - 1
    time.sleep(ITS_END_S)
    return count


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208


def at_rest(pid: int) -> int:
    """Return the descriptors of a process without short-lived ones for statistics."""
    counts = [descriptors(pid)]
    while len(counts) < 5 or len(set(counts[-5:])) > 1:
        assert len(counts) < 500, "the number of descriptors does not settle"
        time.sleep(0.02)
        counts.append(descriptors(pid))
    return counts[-1]


def private_memory(pid: int) -> int:
    """Return the bytes of memory that a process does not share."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


# --- the first line -----------------------------------------------------------------------------


@pytest.fixture
def alone(server: Server) -> Iterator[None]:
    """Return whether there is only one connection, on worker 0."""
    with client_of(server, 0) as asking:
        assert eventually(lambda: asking.stats()["current-connections"] == "1")
        yield


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("worker", range(len(TUBES)))
def test_a_connection_goes_to_the_owner_of_its_tube(server: Server, worker: int) -> None:
    pids = worker_pids(server)
    owner, other = pids[worker], pids[1 - worker]
    before = at_rest(owner), at_rest(other)
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(client_of(server, worker))
        # For `stats` a worker opens files of /proc for a moment.
        wanted = before[0] + 5, before[1]
        assert eventually(lambda: (descriptors(owner), descriptors(other)) == wanted)


@pytest.mark.usefixtures("alone")
def test_connections_without_a_tube_are_balanced(server: Server) -> None:
    before = [at_rest(pid) for pid in worker_pids(server)]
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            client = stack.enter_context(server.connect())
            assert client.ask(b"list-tube-used\r\n") == b"USING default\r\n"
        wanted = [count + 5 for count in before]
        assert eventually(lambda: [descriptors(pid) for pid in worker_pids(server)] == wanted)


@pytest.mark.parametrize("tube", TUBES)
def test_a_first_line_in_pieces(server: Server, tube: bytes) -> None:
    line = b"use %b\r\n" % tube
    with server.connect() as client:
        for byte in line:
            assert client.silent(0.01)
            client.send(bytes([byte]))
        assert client.reply() == b"USING %b\r\n" % tube


def test_data_sent_before_the_handover_is_executed_in_order(server: Server) -> None:
    with server.connect() as client:
        client.send(
            b"use %b\r\nput 0 0 9 3\r\nabc\r\nwatch %b\r\nreserve\r\n" % (TUBES[1], TUBES[1])
        )
        first, inserted, _, reserved = client.replies(4)
        assert first == b"USING %b\r\n" % TUBES[1]
        assert reserved == b"RESERVED %d 3\r\nabc\r\n" % int(inserted.split()[1])


def test_a_line_that_never_ends(server: Server) -> None:
    with server.connect() as client:
        client.send(b"x" * 5000)
        assert client.silent(0.05)
        assert client.ask(b"\r\n") == b"BAD_FORMAT\r\n"


def test_a_client_that_closes_within_a_line(server: Server) -> None:
    with server.connect() as client:
        client.send(b"use")
        client.silent(0.05)
        client.half_close()
        assert client.read_to_end() == b""


def test_a_client_that_closes_after_a_line(server: Server) -> None:
    for pause_s in (0, 0.05):
        with server.connect() as client:
            client.silent(pause_s)
            client.send(b"use %b\r\n" % TUBES[0])
            client.half_close()
            assert client.read_to_end() == b"USING %b\r\n" % TUBES[0]


# --- idle connections ---------------------------------------------------------------------------


def test_an_idle_connection_is_routed_by_its_first_command(server: Server) -> None:
    clients = [server.connect() for _ in range(20)]
    time.sleep(0.1)
    for client in clients:
        assert client.ask(b"list-tube-used\r\n") == b"USING default\r\n"
        client.close()


def test_an_idle_connection_that_ends_is_closed(server: Server) -> None:
    assert eventually(lambda: open_connections(server) == 0)
    before = at_rest(server.pid)
    clients = [server.connect() for _ in range(20)]
    assert eventually(lambda: descriptors(server.pid) == before + 20)
    for client in clients[:10]:
        client.close()
    for client in clients[10:]:
        client.half_close()
        assert client.read_to_end() == b""
        client.close()
    assert eventually(lambda: descriptors(server.pid) == before)
    assert eventually(lambda: open_connections(server) == 0)


def test_an_idle_connection_that_is_reset_is_closed(server: Server) -> None:
    assert eventually(lambda: open_connections(server) == 0)
    before = at_rest(server.pid)
    for sent in (b"", b"us"):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(sent)
            assert eventually(lambda: descriptors(server.pid) == before + 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        assert eventually(lambda: descriptors(server.pid) == before)


@pytest.mark.slow
@pytest.mark.usefixtures("many_descriptors")
def test_idle_connections_take_little_memory() -> None:
    with ours(*TWO) as server, contextlib.ExitStack() as stack:
        before = private_memory(server.pid)
        clients = [stack.enter_context(server.connect()) for _ in range(SILENT)]
        with server.connect() as client:
            assert int(client.stats()["current-connections"]) == SILENT + 1
        assert private_memory(server.pid) - before < BYTES_PER_SILENT * SILENT
        for client in clients[:100]:
            client.send(b"us")
        time.sleep(0.2)
        used_s = server.cpu_s()
        time.sleep(1)
        assert server.cpu_s() - used_s < 0.05


# --- waiting connections ------------------------------------------------------------------------


@pytest.mark.costly
def test_a_hung_worker_delays_only_its_own_connections() -> None:
    with ours(*TWO) as server:
        stuck = worker_pids(server)[0]
        os.kill(stuck, signal.SIGSTOP)
        waiting = []
        for _ in range(300):
            client = server.connect()
            client.send(b"use %b\r\n" % TUBES[0])
            waiting.append(client)
        for _ in range(100):
            with client_of(server, 1) as client:
                client.put()
        assert not any(client.ready_replies() for client in waiting)
        os.kill(stuck, signal.SIGCONT)
        for client in waiting:
            assert client.reply() == b"USING %b\r\n" % TUBES[0]
            client.close()
        assert server.complaints() == ""


@pytest.mark.costly
def test_connections_of_a_full_worker_go_to_the_other() -> None:
    limits = {resource.RLIMIT_NOFILE: FEW_DESCRIPTORS}
    with ours(*TWO, limits=limits) as server, contextlib.ExitStack() as stack:
        assert eventually(lambda: open_connections(server) == 0)
        for _ in range(WORKER_CAPACITY + 5):
            stack.enter_context(client_of(server, 0))
        assert server.complaints() == ""


@pytest.mark.slow
def test_out_of_descriptors() -> None:
    """Idle connections fill the parent; further ones wait for free descriptors."""
    limits = {resource.RLIMIT_NOFILE: FEW_DESCRIPTORS}
    with ours(*TWO, limits=limits) as server, contextlib.ExitStack() as stack:
        assert eventually(lambda: open_connections(server) == 0)
        silent = [stack.enter_context(server.connect()) for _ in range(PARENT_CAPACITY)]
        time.sleep(0.1)
        late = [stack.enter_context(server.connect()) for _ in range(5)]
        for client in late:
            client.send(b"use %b\r\n" % TUBES[1])
        time.sleep(0.3)
        used_s = server.cpu_s()
        assert all(client.silent(0.2) for client in late)
        assert server.cpu_s() - used_s < 0.1
        for client in silent[:3]:
            client.close()
        assert [client.reply() for client in late] == [b"USING %b\r\n" % TUBES[1]] * 5
        lines = server.complaints().splitlines()
    assert len(lines) == 1, lines
    assert "have to wait" in lines[0]


# --- many connections ---------------------------------------------------------------------------


def churn(server: Server, rounds: int, at_once: int) -> float:
    """Open and close connections with one command each; return how many per second."""
    began = time.monotonic()
    for _ in range(rounds):
        clients: list[socket.socket] = []
        for number in range(at_once):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            client.sendall(b"use t%d\r\n" % number)
            clients.append(client)
        for number, client in enumerate(clients):
            assert client.recv(100) == b"USING t%d\r\n" % number
            client.close()
    return rounds * at_once / (time.monotonic() - began)


def test_many_short_connections(server: Server) -> None:
    churn(server, 10, 200)
    assert eventually(lambda: open_connections(server) == 0)


@pytest.mark.slow
@pytest.mark.usefixtures("many_descriptors")
def test_twenty_thousand_short_connections(capsys: pytest.CaptureFixture[str]) -> None:
    """No connection is refused or leaked. C beanstalkd serves 7,500 per second to this client,
    and ours 3,000 or more, on the machine where this was measured.
    """
    with reference() as server:
        rate_of_c = churn(server, 5, 1000)
    with ours(*TWO) as server:
        processes = server.pid, *worker_pids(server)
        churn(server, 5, 1000)  # allocate the memory of a thousand concurrent connections now
        assert eventually(lambda: open_connections(server) == 0)
        before = [(descriptors(pid), private_memory(pid)) for pid in processes]
        used_s = server.cpu_s()
        rate = churn(server, 20, 1000)
        used_s = server.cpu_s() - used_s
        assert eventually(lambda: open_connections(server) == 0)
        for pid, (count, _) in zip(processes, before, strict=True):
            assert eventually(lambda pid=pid, count=count: descriptors(pid) <= count)
        grown = [
            private_memory(pid) - memory for pid, (_, memory) in zip(processes, before, strict=True)
        ]
        with capsys.disabled():
            print(
                f" {rate:.0f}/s, C {rate_of_c:.0f}/s, {used_s / 20:.3f} ms of processor time each,"
                f" memory {grown} ",
                end="",
            )
        assert max(grown) < LEVEL_BYTES
        with server.connect() as client:
            assert int(client.stats()["total-connections"]) >= 25_000
        assert server.complaints() == ""
        assert rate >= 0.4 * rate_of_c


@pytest.mark.slow
def test_short_connections_while_workers_are_killed() -> None:
    """A killed worker's connections end; the parent leaks none of them."""
    with ours(*TWO) as server:
        before = at_rest(server.pid)
        over = threading.Event()
        counts = [0, 0]

        def send_commands(worker: int) -> None:
            while not over.is_set():
                with contextlib.suppress(NoReplyError, OSError), client_of(server, worker):
                    counts[worker] += 1

        threads = [threading.Thread(target=send_commands, args=(worker,)) for worker in (0, 1) * 2]
        try:
            for thread in threads:
                thread.start()
            for turn in range(8):
                time.sleep(0.3)
                kill_worker(server, children(server.pid)[turn % len(children(server.pid))])
            assert eventually(lambda: len(children(server.pid)) == 2, 10)
        finally:
            over.set()
            for thread in threads:
                thread.join(10)
        assert min(counts) > 100
        for worker in (0, 1):
            with client_of(server, worker) as client:
                client.put()
        assert eventually(lambda: open_connections(server) == 0)
        assert eventually(lambda: descriptors(server.pid) == before)
        assert server.stop() == 0


# --- placement and Unix sockets -----------------------------------------------------------------


@pytest.mark.costly
def test_colocate_keeps_tubes_with_a_common_prefix_together() -> None:
    """Without --colocate half of these tubes would be on another worker."""
    tubes = [b"user.%d" % number for number in range(20)]
    assert {shard_of(tube, 2) for tube in tubes} == {0, 1}
    owner = shard_of(tubes[0], 2, b".")
    with ours(*TWO, "--colocate", ".") as server, contextlib.ExitStack() as stack:
        with client_of(server, 0) as client:
            assert eventually(lambda: client.stats()["current-connections"] == "1")
        before = [at_rest(pid) for pid in worker_pids(server)]
        for tube in tubes:
            stack.enter_context(in_tube(server.connect(), tube))
        pids = worker_pids(server)
        assert descriptors(pids[1 - owner]) <= before[1 - owner]
        assert descriptors(pids[owner]) >= before[owner] + len(tubes) - 1


@pytest.mark.costly
def test_unix_sockets(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    command = [*our_command(), *TWO, "-V", "-l", f"unix:{path}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "listening" in process.stderr.readline()
        for pause_s in (0, 0.05):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(10)
                client.connect(str(path))
                time.sleep(pause_s)
                client.sendall(b"use %b\r\n" % TUBES[1])
                assert client.recv(100) == b"USING %b\r\n" % TUBES[1]
        process.terminate()
        assert process.wait(10) == 0
