"""Admission of connections: limits and networks, with one worker and with several."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.commands import USAGE, refusal
from processes import eventually
from servers import Server, ours
from shards import TUBES, kill_worker, worker_pids
from wire import Client

from beanstalkd_py import errors
from beanstalkd_py.control.client import connect
from beanstalkd_py.server.accept.admission import Admission
from beanstalkd_py.server.accept.networks import Networks, parse_networks
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.logging.throttling import LOG_INTERVAL_S, ThrottledLog
from beanstalkd_py.server.options import ServeOptions

HELLO = b"list-tube-used\r\n"


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow), 2])
def workers(request: pytest.FixtureRequest) -> str:
    return f"--workers={request.param}"


def is_refused(server: Server) -> bool:
    with server.connect() as client, contextlib.suppress(OSError):
        client.send(HELLO)
        with contextlib.suppress(AssertionError):
            client.reply()
            return False
    return True


def wait_for_connections(server: Server, count: int) -> None:
    """Wait, because the connection that checked for readiness is still closing."""
    with connect(f"127.0.0.1:{server.port}") as control:
        assert eventually(
            lambda: (
                sum(1 if "from" in row else row["silent"] for row in control.parts("conns"))
                == count
            )
        )


@pytest.mark.costly
def test_max_connections_admits_exactly_that_many(workers: str) -> None:
    with ours(workers, "--max-connections=4") as server, contextlib.ExitStack() as stack:
        wait_for_connections(server, 0)
        silent = stack.enter_context(server.connect())
        talking = [stack.enter_context(server.connect()) for _ in range(3)]
        for number, client in enumerate(talking):
            client.ask(b"use %b\r\n" % TUBES[number % 2])
        for _ in range(20):
            assert is_refused(server)
        assert silent.ask(HELLO) == b"USING default\r\n"
        with connect(f"127.0.0.1:{server.port}") as control:
            assert len(list(control.parts("workers"))) >= 1  # the control socket has no limit
        talking[0].close()
        assert eventually(lambda: not is_refused(server))
        assert eventually(lambda: "--max-connections" in server.stderr())
        reported = [line for line in server.stderr().splitlines() if "--max-connections" in line]
        assert len(reported) == 1  # not one per refusal
        assert "4 are open" in reported[0]


def test_allow_does_not_apply_to_unix_sockets(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    options = ServeOptions(allow=("192.0.2.0/24",), max_connections=1)
    counters = SimpleNamespace(refused_connections=0)
    open_now = [0]
    admission = Admission(options, lambda: open_now[0], counters)
    assert admission.admits(socket.AF_UNIX, os.fspath(path), 0)
    assert not admission.admits(socket.AF_UNIX, os.fspath(path), 1)
    assert admission.admits(socket.AF_INET, ("192.0.2.9", 1), 0)
    assert not admission.admits(socket.AF_INET, ("192.0.3.9", 1), 0)
    open_now[0] = 1
    assert not admission.admits(socket.AF_INET, ("192.0.2.9", 1), 0)
    assert counters.refused_connections == 3


@pytest.mark.slow
def test_a_reload_of_allow_keeps_open_connections(tmp_path: Path, workers: str) -> None:
    file = tmp_path / "file"
    file.write_text('allow = ["127.0.0.0/8", "::1"]\n')
    with ours(workers, f"--config={file}") as server, server.connect() as client:
        assert client.ask(HELLO) == b"USING default\r\n"
        file.write_text('allow = "192.0.2.0/24"\n')
        with connect(f"127.0.0.1:{server.port}") as control:
            assert control.ask("reload")["applied"] == {"allow": "192.0.2.0/24"}
        assert eventually(lambda: is_refused(server))
        assert client.ask(HELLO) == b"USING default\r\n"
        assert eventually(lambda: "--allow does not include 127.0.0.1" in server.stderr())
        file.write_text("")
        with connect(f"127.0.0.1:{server.port}") as control:
            control.ask("reload")
        assert eventually(lambda: not is_refused(server))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10.0.0.0/33", ["10.0.0.0/33", "give one such as"]),
        ("10.1.2.3/8", ["10.1.2.3/8", "10.0.0.0/8", "10.1.2.3 "]),
        ("localhost", ["localhost"]),
        ("", ["''"]),
        ("10.0.0.1,,10.0.0.2", ["''"]),
        ("2001:db8::1/32", ["2001:db8::/32"]),
    ],
)
def test_the_error_of_an_invalid_network_names_a_valid_one(text: str, words: list[str]) -> None:
    with pytest.raises(errors.UsageError) as raised:
        parse_networks(text)
    for word in words:
        assert word in str(raised.value)


def test_an_invalid_network_is_a_one_line_error() -> None:
    line = refusal(USAGE, "--allow", "10.1.2.3/8")
    assert "option --allow" in line
    assert "give 10.0.0.0/8" in line


@pytest.mark.parametrize(
    ("networks", "inside", "outside"),
    [
        ("10.0.0.0/8", ["10.9.9.9", "::ffff:10.1.1.1"], ["11.0.0.0", "::1", "::ffff:11.0.0.0"]),
        ("::1,192.0.2.7", ["::1", "192.0.2.7"], ["192.0.2.8", "::2"]),
        ("::ffff:10.0.0.0/104", ["10.2.3.4", "::ffff:10.2.3.4"], ["11.0.0.1"]),
        ("fe80::/10", ["fe80::1%lo"], ["fec0::1"]),
        ("0.0.0.0/0", ["1.2.3.4", "::ffff:1.2.3.4"], ["::1"]),
    ],
)
def test_networks(networks: str, inside: list[str], outside: list[str]) -> None:
    allowed = Networks(parse_networks(networks))
    assert all(host in allowed for host in inside)
    assert not any(host in allowed for host in outside)


def test_parsed_networks_are_canonical() -> None:
    for text in ("10.0.0.1, ::1", "::ffff:10.0.0.0/104", "fe80::/10"):
        once = parse_networks(text)
        assert parse_networks(",".join(once)) == once
    with pytest.raises(errors.UsageError):
        parse_networks("nowhere")


def test_rejections_are_logged_once_per_interval(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(LOGGER, "propagate", True)
    now = [0.0]
    refusals = ThrottledLog("connections refused", lambda: now[0])
    for _ in range(25):
        refusals.warn("why")
        now[0] += LOG_INTERVAL_S / 10
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["connections refused: 1; why"] + ["connections refused: 10; why"] * 2


# --- unrouted connections -----------------------------------------------------------------------


@pytest.fixture
def with_timeouts(workers: str) -> Iterator[Server]:
    with ours(workers, "--idle-timeout=0.4", "--send-timeout=0.4") as server:
        yield server


@pytest.mark.costly
def test_idle_connections_are_closed(with_timeouts: Server) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(with_timeouts.connect()) for _ in range(4)]
        clients[1].send(b"list-tu")
        clients[2].ask(HELLO)
        clients[3].send(b"reserve\r\n")
        for client in clients[:3]:
            assert client.read_to_end() == b""
        assert not clients[3].has_ended()
        assert eventually(lambda: _open(with_timeouts) == 1)
        assert eventually(lambda: _stats(with_timeouts, "current-connections") == 2)
        assert _stats(with_timeouts, "total-connections") >= 6


def _open(server: Server) -> int:
    with connect(f"127.0.0.1:{server.port}") as control:
        return sum(1 if "from" in row else row["silent"] for row in control.parts("conns"))


def _stats(server: Server, key: str) -> int:
    with server.connect() as client:
        return int(client.stats()[key])


# --- limits of the whole server -----------------------------------------------------------------


def put(client: Client, tube: bytes) -> bytes:
    client.ask(b"use %b\r\n" % tube)
    return client.ask(b"put 0 0 9 1000\r\n%b\r\n" % (b"x" * 1000))


@pytest.mark.slow
def test_max_memory_is_global_over_restarts_and_reloads(tmp_path: Path, workers: str) -> None:
    file = tmp_path / "file"
    file.write_text('max-memory = "4K"\n')
    (tmp_path / "jobs").mkdir()
    arguments = (workers, f"--config={file}", "-b", tmp_path / "jobs", "-F")
    with ours(*arguments) as server, server.connect() as client:
        for tube in (*TUBES, TUBES[0]):
            assert put(client, tube).startswith(b"INSERTED")
        for tube in TUBES:
            assert put(client, tube) == b"OUT_OF_MEMORY\r\n"
    file.write_text('max-memory = "2K"\n')
    with ours(*arguments) as server, server.connect() as client:
        for tube in TUBES:
            assert put(client, tube) == b"OUT_OF_MEMORY\r\n"
            client.ask(b"watch %b\r\n" % tube)
        for _ in range(3):
            client.ask(b"delete %d\r\n" % client.reserve())
        assert put(client, TUBES[0]).startswith(b"INSERTED")
        assert put(client, TUBES[1]) == b"OUT_OF_MEMORY\r\n"
        file.write_text("")
        with connect(f"127.0.0.1:{server.port}") as control:
            assert control.ask("reload")["applied"] == {"max-memory": None}
        assert eventually(lambda: put(client, TUBES[1]).startswith(b"INSERTED"))


@pytest.mark.costly
def test_max_tubes_is_global(workers: str) -> None:
    with ours(workers, "--max-tubes=3") as server, server.connect() as client:
        for tube in TUBES:
            put(client, tube)
        with server.connect() as other:
            for name in (b"tube-100", b"tube-101", b"tube-102", b"tube-103"):
                assert other.ask(b"use %b\r\n" % name) == b"OUT_OF_MEMORY\r\n"
                assert other.ask(b"watch %b\r\n" % name) == b"OUT_OF_MEMORY\r\n"
            for tube in TUBES:
                assert other.ask(b"use %b\r\n" % tube) == b"USING %b\r\n" % tube


@pytest.mark.costly
def test_limits_count_the_jobs_of_a_restarting_worker(tmp_path: Path) -> None:
    options = ("--max-memory=8K", "--max-tubes=3", "-b", tmp_path)
    with ours("--workers=2", *options) as server, server.connect() as client:
        stored = 0
        while put(client, TUBES[1]).startswith(b"INSERTED"):
            stored += 1
        assert stored > 5
        with server.connect() as other:
            assert other.ask(b"use %b\r\n" % TUBES[0]) == b"USING %b\r\n" % TUBES[0]
            kill_worker(server, worker_pids(server)[1])
            replies = set()
            while not replies or not all_serve(server):
                replies |= {put(other, TUBES[0]) for _ in range(20)}
            assert replies == {b"OUT_OF_MEMORY\r\n"}
        assert eventually(lambda: open_jobs(server) == stored)


def all_serve(server: Server) -> bool:
    with connect(f"127.0.0.1:{server.port}") as control:
        return all(row["state"] == "serving" for row in control.parts("workers"))


def open_jobs(server: Server) -> int:
    with server.connect() as client:
        return int(client.stats()["current-jobs-ready"])
