"""Messages to the service manager, in the order of a server's life."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import children, eventually
from servers import Server, ours
from wire import inserted_id

from beanstalkd_py.control.client import connect
from beanstalkd_py.plural import counted

pytestmark = pytest.mark.costly

WATCHDOG_S = 0.4


class Manager:
    """The service manager's socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(10)
        self.received: list[dict[str, str]] = []

    def receive(self) -> dict[str, str]:
        """Return the next message; fails after a long time without one."""
        lines = self._socket.recv(4096).decode().splitlines()
        message = dict(line.split("=", 1) for line in lines)
        self.received.append(message)
        return message

    def until(self, key: str, value: str) -> dict[str, str]:
        """Return the first message with this value."""
        while True:
            message = self.receive()
            if value in message.get(key, ""):
                return message

    def silence(self, seconds: float) -> bool:
        """Return whether no message comes in this time."""
        self._socket.settimeout(seconds)
        try:
            self.receive()
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(10)
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    yield made
    made.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_from_start_to_stop(manager: Manager, tmp_path: Path, workers: int) -> None:
    (tmp_path / "jobs").mkdir()
    with ours("--workers", str(workers), "-b", tmp_path / "jobs") as server:
        ready = manager.until("READY", "1")
        assert ready["STATUS"] == f"serving with {workers} of {counted(workers, 'worker')}"
        stored, *progress = manager.received[:-1]
        assert stored == {"FDSTORE": "1", "FDNAME": "kept-listener"}
        assert all("EXTEND_TIMEOUT_USEC" in one for one in progress)
        server.signal(signal.SIGUSR1)
        manager.until("STATUS", "draining with")
        with connect(f"127.0.0.1:{server.port}") as control:
            control.ask("drain", on=False)
        manager.until("STATUS", "serving with")
        assert server.stop() == 0
        manager.until("STOPPING", "1")


def test_the_file_of_a_unix_socket_is_not_kept(manager: Manager, tmp_path: Path) -> None:
    """So systemd must not keep its socket, either."""
    path = tmp_path / "socket"
    command = [sys.executable, "-m", "beanstalkd_py", "serve", "-l", f"unix:{path}"]
    with subprocess.Popen([*command, "--workers", "1"]) as server:
        manager.until("READY", "1")
        server.terminate()
    assert not path.exists()
    assert not any("FDSTORE" in message for message in manager.received)


def test_ready_comes_when_clients_are_served(manager: Manager) -> None:
    with ours() as server:
        manager.until("READY", "1")
        with server.connect() as client:
            inserted_id(client.ask(b"put 0 0 1 1\r\nx\r\n"))


def test_resharding_extends_the_start_timeout(manager: Manager, tmp_path: Path) -> None:
    with ours("-b", tmp_path):
        manager.until("READY", "1")
    with ours("-b", tmp_path, "--workers", "2"):
        message = manager.until("STATUS", "resharding the binlog for 2 workers")
        assert int(message["EXTEND_TIMEOUT_USEC"]) >= 30_000_000
        manager.until("READY", "1")


def test_the_status_while_a_worker_restarts(manager: Manager) -> None:
    with ours("--workers", "2") as server:
        manager.until("READY", "1")
        os.kill(children(server.pid)[0], signal.SIGKILL)
        manager.until("STATUS", "serving with 1 of 2 workers; 1 restarting")
        assert manager.until("STATUS", "with 2 of 2")["STATUS"] == "serving with 2 of 2 workers"


@pytest.mark.parametrize("workers", [1, 2])
def test_the_watchdog_gets_keepalives(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", str(round(WATCHDOG_S * 1e6)))
    with ours("--workers", str(workers)):
        manager.until("READY", "1")
        began = time.monotonic()
        for _ in range(8):
            manager.until("WATCHDOG", "1")
        assert time.monotonic() - began < 8 * WATCHDOG_S


@pytest.mark.slow
def test_a_hung_single_worker_stops_the_keepalives(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", str(round(WATCHDOG_S * 1e6)))
    with ours() as server:
        manager.until("WATCHDOG", "1")
        (worker,) = children(server.pid)
        os.kill(worker, signal.SIGSTOP)
        assert eventually(lambda: manager.silence(3 * WATCHDOG_S), 10)
        os.kill(worker, signal.SIGCONT)
        manager.until("WATCHDOG", "1")


@pytest.mark.slow
def test_no_keepalives_for_the_watchdog_of_another_process(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", str(round(WATCHDOG_S * 1e6)))
    monkeypatch.setenv("WATCHDOG_PID", "1")
    with ours():
        manager.until("READY", "1")
        assert manager.silence(3 * WATCHDOG_S)
        assert not any("WATCHDOG" in message for message in manager.received)


def test_workers_do_not_notify(manager: Manager) -> None:
    with ours() as server:
        manager.until("READY", "1")
        for pid in children(server.pid):
            assert b"NOTIFY_SOCKET" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_closed_or_full_socket_of_the_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    with ours() as server:
        assert isinstance(server, Server)
    deaf = Manager(tmp_path / "deaf")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "deaf"))
    monkeypatch.setenv("WATCHDOG_USEC", "4000")
    with ours() as server, server.connect() as client:
        time.sleep(0.5)  # hundreds of messages, more than fit into the socket
        inserted_id(client.ask(b"put 0 0 1 1\r\nx\r\n"))
    deaf.close()
