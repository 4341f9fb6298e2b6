"""Several TLS processes: spreading, resumption, reload, deaths, metrics."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import socket
import ssl
from collections import Counter
from typing import Any

import pytest
from processes import eventually
from server.metrics.scrape import watched
from server.tls.tls_servers import (
    HELLO,
    USING,
    Both,
    Files,
    ask,
    can_connect,
    known,
    process_of,
    read,
    serving,
    serving_with_ca,
    tls_processes,
)
from servers import free_port

from beanstalkd_py.control.client import connect
from beanstalkd_py.core._core import lib
from beanstalkd_py.core.connections import Roles
from beanstalkd_py.server.options import MAX_TLS_PROCESSES, ServeOptions, auto_tls_processes
from beanstalkd_py.server.process.messages import ProcessConfig
from beanstalkd_py.server.process.proc_stats import TICKS_PER_S, Usage
from beanstalkd_py.server.process.shared_memory import SharedMemory, create_segment
from beanstalkd_py.server.stats import stats_reply
from beanstalkd_py.server.tls import session_tickets
from beanstalkd_py.server.tls.tls_processes import TlsProcesses

TWO = "--tls-processes=2"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Clients(contextlib.ExitStack):
    """Clients that stay connected."""

    def __init__(self, both: Both) -> None:
        super().__init__()
        self._both = both

    def connect(
        self, context: ssl.SSLContext | None = None, session: ssl.SSLSession | None = None
    ) -> ssl.SSLSocket:
        client = self.enter_context(self._both.connect(context, session))
        assert ask(client, HELLO) == USING
        return client


def idle(both: Both) -> bool:
    """Return whether all connections are closed, so that the next ones find equal loads."""
    with both.server.connect() as plain:
        return plain.stats()["current-connections"] == "1"


# --- spreading ------------------------------------------------------------------------------------


@pytest.mark.costly
def test_connections_are_spread(files: Files) -> None:
    with serving(files, "--workers=2", "--tls-processes=3") as both, Clients(both) as clients:
        assert eventually(lambda: idle(both))
        found = [clients.connect() for _ in range(9)]
        used = Counter(map(process_of, found))
        assert used == dict.fromkeys(tls_processes(both.server), 3)
        with connect(f"127.0.0.1:{both.server.port}") as control:
            shown = {row["from"] for row in control.parts("conns") if "from" in row}
        assert {"{}:{}".format(*one.getsockname()) for one in found} <= shown


class Fake:
    """A supervisor with free slots; None: its process has ended, unnoticed."""

    def __init__(self, handshakes: int, tunnels: int, slots: int | None = 1024) -> None:
        self.handshakes = handshakes
        self.tunnels = tunnels
        self.ended = slots is None
        self.slots = 1024 if slots is None else slots
        self.got: list[int] = []

    def uncounted_connections(self) -> int:
        return self.handshakes

    def rank(self) -> tuple[int, int]:
        return self.handshakes, self.tunnels

    def free_slots(self) -> int:
        return self.slots

    def pass_copy(self, fd: int) -> bool:
        if not self.ended:
            os.fstat(fd)  # still open
            self.got.append(fd)
            self.handshakes += 1
            self.slots -= 1
        return not self.ended


@pytest.mark.parametrize(
    ("loads", "shares"),
    [
        ([(0, 0), (0, 0)], [[0, 2], [1, 3]]),
        ([(0, 5), (0, 0)], [[1, 3], [0, 2]]),
        ([(3, 0), (0, 9)], [[3], [0, 1, 2]]),  # handshakes count more than tunnels
        ([(0, 0, 0), (9, 9)], [[], [0, 1, 2, 3]]),
        ([(0, 0, 1), (9, 9)], [[0], [1, 2, 3]]),
        ([(0, 0, -3), (0, 0, 4)], [[], [0, 1, 2, 3]]),
        ([(0, 0, None), (9, 9)], [[], [0, 1, 2, 3]]),
        ([(0, 0, None), (0, 0, 2)], [[], [0, 1]]),
    ],
)
def test_the_process_with_the_least_load_is_chosen(
    monkeypatch: pytest.MonkeyPatch, loads: list[tuple[Any, ...]], shares: list[list[int]]
) -> None:
    monkeypatch.setattr("beanstalkd_py.server.tls.tls_processes.TlsSupervisor", Fake)
    fakes: Any = [Fake(*load) for load in loads]
    processes = TlsProcesses(fakes)
    assert processes.free_slots() == sum(max(0, one.slots) for one in fakes)
    assert processes.uncounted_connections() == sum(one.handshakes for one in fakes)
    fds = [os.memfd_create("test") for _ in range(4)]
    processes.send(list(fds))
    assert [[fds.index(fd) for fd in one.got] for one in fakes] == shares
    for fd in fds:
        with pytest.raises(OSError):
            os.fstat(fd)


@pytest.mark.parametrize(("processors", "processes"), [(1, 1), (3, 1), (4, 2), (9, 4), (999, 64)])
def test_automatic_number(monkeypatch: pytest.MonkeyPatch, processors: int, processes: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    assert auto_tls_processes() == processes


def test_shared_memory_has_counters_for_each() -> None:
    assert MAX_TLS_PROCESSES == lib.BS_MAX_TLS_PROCESSES


@pytest.mark.slow
def test_the_limit_of_connections_is_that_of_all_processes(files: Files) -> None:
    with serving(files, TWO, "--workers=2", "--max-connections=4") as both:
        assert eventually(lambda: idle(both))
        with Clients(both) as clients:
            for _ in range(4):
                clients.connect()
            with pytest.raises(OSError):
                both.connect()
        assert eventually(lambda: can_connect(both))


# --- resumption -----------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
def test_every_process_resumes_sessions_of_all(files: Files, version: ssl.TLSVersion) -> None:
    context = known(files)  # the same context, because a session belongs to it
    context.minimum_version = context.maximum_version = version
    with serving_with_ca(files, "--tls-processes=3") as both, Clients(both) as clients:
        assert eventually(lambda: idle(both))
        session = clients.connect(context).session
        others = [clients.connect(context, session) for _ in range(5)]
        assert {process_of(one) for one in others} == set(tls_processes(both.server))
        assert all(one.session_reused for one in others)


@pytest.mark.costly
def test_a_replaced_process_resumes_sessions(files: Files) -> None:
    context = files.context()
    with serving(files, "--tls-processes=1") as both, Clients(both) as clients:
        session = clients.connect(context).session
        os.kill(tls_processes(both.server)[0], signal.SIGKILL)
        assert eventually(lambda: can_connect(both), 10)
        assert clients.connect(context, session).session_reused


@pytest.mark.costly
def test_a_reload_ends_resumption(files: Files) -> None:
    """Otherwise a client could stay whose CA the reload has removed."""
    context = files.context()
    with serving(files, TWO) as both, Clients(both) as clients:
        session = clients.connect(context).session
        reload(both)
        for _ in range(4):
            assert not clients.connect(context, session).session_reused


@pytest.mark.parametrize("failing", ["CDLL", "no function", "another library"])
def test_without_openssl_each_process_has_its_own_key(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    def load(name: str | None) -> ctypes.CDLL:
        if failing == "CDLL":
            raise OSError("no such library")
        return ctypes.CDLL(None if failing == "no function" else name)

    monkeypatch.setattr(session_tickets, "ctypes", _Replaced(load))
    if failing == "another library":
        monkeypatch.setattr(session_tickets, "_created", _Uncalled())
    session_tickets._key_setter.cache_clear()
    monkeypatch.setattr(session_tickets.LOGGER, "propagate", True)
    try:
        with caplog.at_level(logging.INFO, session_tickets.LOGGER.name):
            assert isinstance(session_tickets.server_context(bytes(80)), ssl.SSLContext)
    finally:
        session_tickets._key_setter.cache_clear()
    assert "sessions resume only at the process that began them" in caplog.text


class _Uncalled(list[int]):
    """Gets no address, because the callback is registered with another copy."""

    def append(self, _: int) -> None:
        pass


class _Replaced:
    """The module ctypes with another CDLL."""

    def __init__(self, load: Any) -> None:
        self.CDLL = load

    def __getattr__(self, name: str) -> Any:
        return getattr(ctypes, name)


def test_a_key_of_the_wrong_size_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_tickets.LOGGER, "propagate", True)
    with caplog.at_level(logging.INFO, session_tickets.LOGGER.name):
        session_tickets.server_context(bytes(80))
        assert caplog.text == ""
        session_tickets.server_context(bytes(48))
    assert "does not accept a key of 48 bytes" in caplog.text


# --- reload, deaths, stop -------------------------------------------------------------------------


def reload(both: Both) -> None:
    with connect(f"127.0.0.1:{both.server.port}") as control:
        control.ask("reload")


def serial(client: ssl.SSLSocket) -> object:
    found = client.getpeercert()
    assert found
    return found["serialNumber"]


@pytest.mark.costly
def test_after_a_reload_all_processes_have_the_new_certificate(files: Files) -> None:
    """From the first connection on, not eventually."""
    with serving(files, "--tls-processes=3") as both:
        for _ in range(5):
            with Clients(both) as clients:
                before = clients.connect()
                files.renew()
                reload(both)
                after = [clients.connect() for _ in range(6)]
                assert serial(before) not in {serial(one) for one in after}
                assert len({serial(one) for one in after}) == 1
                assert {process_of(one) for one in after} == set(tls_processes(both.server))
                assert ask(before, HELLO) == USING


@pytest.mark.costly
def test_a_killed_process_loses_only_its_own_connections(files: Files) -> None:
    with serving(files, "--workers=2", TWO, "-V") as both, Clients(both) as clients:
        assert eventually(lambda: idle(both))
        found = [clients.connect() for _ in range(4)]
        first, second = tls_processes(both.server)
        lost = [one for one in found if process_of(one) == first]
        kept = [one for one in found if process_of(one) == second]
        assert len(lost) == len(kept) == 2
        os.kill(first, signal.SIGKILL)
        for client in lost:
            with contextlib.suppress(OSError):
                assert client.recv(10) == b""
        assert all(ask(one, HELLO) == USING for one in kept)
        text = f"TLS process 0 (pid {first}) was killed by signal 9"
        assert eventually(lambda: text in both.server.stderr())
        assert can_connect(both)  # the other process serves at once
        assert eventually(lambda: both.server.stderr().count("TLS 0 is ready") == 2, 10)
        assert tls_processes(both.server)[0] == second
        with both.server.connect() as plain:
            assert eventually(lambda: plain.stats()["current-connections"] == "3")
        new = [clients.connect() for _ in range(2)]
        assert {process_of(one) for one in new} == {tls_processes(both.server)[1]}


@pytest.mark.slow
def test_a_hung_process_delays_no_others(files: Files) -> None:
    with serving(files, TWO) as both, Clients(both) as clients:
        assert eventually(lambda: idle(both))
        hung, other = tls_processes(both.server)
        os.kill(hung, signal.SIGSTOP)
        try:
            # Its handshakes do not end, so it gets no more connections than the other one has.
            works = [eventually(lambda: can_connect(both), 0.1) for _ in range(4)]
            assert works.count(True) >= 3
        finally:
            os.kill(hung, signal.SIGCONT)
        assert eventually(lambda: process_of(clients.connect()) == hung)
        assert tls_processes(both.server) == [hung, other]


@pytest.mark.slow
def test_a_stop_sends_pending_replies_of_all(files: Files) -> None:
    with serving(files, TWO) as both:
        found = [both.connect() for _ in range(2)]
        for client in found:
            client.sendall(b"put 0 0 9 1\r\nx\r\n" * 100)
        with both.server.connect() as plain:
            assert eventually(lambda: plain.stats()["total-jobs"] == "200")
        assert {process_of(one) for one in found} == set(tls_processes(both.server))
        assert both.server.stop() == 0
        for client in found:
            with client:
                assert read(client, 1 << 20).count(b"INSERTED") == 100


# --- metrics and the log --------------------------------------------------------------------------


@pytest.mark.costly
def test_metrics_are_sums_and_name_each_process(files: Files) -> None:
    port = free_port()
    words = (f"--tls-listen=127.0.0.1:{port}", *files.arguments, TWO, "--workers=2")
    with watched(*words) as server:
        both = Both(server.server, port, files)
        assert eventually(lambda: can_connect(both), 10)
        assert eventually(lambda: idle(both))
        before = server.scrape().sum("beanstalkd_tls_connections_accepted_total")
        failed = "beanstalkd_tls_connections_failed_total"
        with Clients(both) as clients:
            assert len({process_of(clients.connect()) for _ in range(4)}) == 2
            metrics = server.scrape()
            assert metrics.sum("beanstalkd_tls_connections") == 4
            assert metrics.sum("beanstalkd_tls_connections_accepted_total") == before + 4
            for count in (1, 2):  # one at each process
                with socket.create_connection(("127.0.0.1", port)) as plain:
                    plain.sendall(b"stats\r\n" * 10)
                assert eventually(lambda count=count: server.scrape().sum(failed) == count)
                clients.connect()
            used = metrics.all("beanstalkd_tls_cpu_seconds_total")
            assert [labels for labels, _ in used] == [{"process": "0"}, {"process": "1"}]
            assert all(value > 0 for _, value in used)
            components = metrics.labels("beanstalkd_component_restarts_total", "component")
            assert components == {"worker 0", "worker 1", "TLS 0", "TLS 1"}
            first = tls_processes(server.server)[0]
            os.kill(first, signal.SIGKILL)
            assert eventually(lambda: server.scrape().sum("beanstalkd_tls_connections") == 3)
        assert eventually(
            lambda: (
                server.scrape().sum("beanstalkd_component_restarts_total", component="TLS 0") == 1
            )
        )
        assert server.scrape().sum("beanstalkd_tls_connections_accepted_total") == before + 8
        assert server.scrape().sum(failed) == 2


def test_stats_include_the_cpu_time_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    fd = create_segment()
    shared = SharedMemory(fd)
    shared.pointer.workers, shared.pointer.tls_processes = 1, 2
    blocks = [*shared.all_counters(), *shared.all_tls_counters()]
    for block, pid in zip(blocks, (10_000, 20_000, 40_000), strict=True):
        block.pid = pid
    monkeypatch.setattr(stats_reply, "process_usage", lambda pid: Usage(user=pid * TICKS_PER_S))
    config = ProcessConfig(1, "", 0.0, 0, [], ServeOptions())
    reply = stats_reply.StatsReply(config, shared).render(Roles(0, 0)).decode()
    seconds = float(reply.partition("rusage-utime: ")[2].split()[0])
    assert 70_000 <= seconds < 75_000
    os.close(fd)
