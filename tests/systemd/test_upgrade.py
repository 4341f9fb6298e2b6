"""Restarts of the service while clients connect: none is refused, and no job is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import trustme
from processes import eventually
from systemd.machine import Machine
from wire import Client, NoReplyError, inserted_id

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SERVICE = "beanstalkd-py.service"
RESTARTS = 3
BUSY = 3
"""The limits of waits are those of a quiet machine; others take longer to start Python."""
WAIT_S = 20.0
BODY = 2000
MANY = 1_000_000
PIPELINED = 1000


@pytest.fixture
def system(machine: Machine) -> Iterator[Machine]:
    """The machine without the services and jobs of other tests."""
    yield machine
    machine.systemctl("stop", "beanstalkd-py*.service", "beanstalkd-py.socket", check=False)
    machine.systemctl("reset-failed")
    machine.run("sh", "-c", "rm -rf /etc/default/beanstalkd-py* /var/lib/private/beanstalkd-py*")


def set_options(machine: Machine, text: str, name: str = "beanstalkd-py") -> None:
    machine.path(f"/etc/default/{name}").write_text(f'OPTIONS="{text}"\n')


def attempt(machine: Machine, port: int = 11300) -> str:
    """Return what a new connection gets: `served`, or the name of an error."""
    try:
        with machine.connect(port) as client:
            client.put()
    except (OSError, NoReplyError) as error:
        return type(error).__name__
    return "served"


@dataclass
class Log:
    """What clients know. An operation has its reply, or an unknown outcome if the server closed."""

    put: Counter[bytes] = field(default_factory=Counter)
    deleted: Counter[bytes] = field(default_factory=Counter)
    unknown: set[bytes] = field(default_factory=set)
    """The bodies whose put or delete has no reply."""
    failures: list[str] = field(default_factory=list)
    longest_wait_s: float = 0.0
    """From the start of a connect to its first reply."""
    closed: int = 0


class Clients:
    """Two producers and two consumers, each of which connects again when the server closes."""

    def __init__(self, machine: Machine, port: int = 11300) -> None:
        self.log = Log()
        self._machine, self._port = machine, port
        self._stopping = threading.Event()
        tasks: list[Callable[[Client, int], None]] = [self._produce, self._consume] * 2
        self._threads = [
            threading.Thread(target=self._run, args=(task, number))
            for number, task in enumerate(tasks)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def progress(self) -> None:
        """Wait until the clients work."""
        before = sum(self.log.deleted.values())
        assert eventually(lambda: sum(self.log.deleted.values()) > before + 20, WAIT_S), self.log

    def _run(self, task: Callable[[Client, int], None], number: int) -> None:
        self._machine.enter_network()
        while not self._stopping.is_set():
            try:
                self._serve(task, number)
            except Exception as error:  # shown by the test
                self.log.failures.append(repr(error))
                time.sleep(0.05)

    def _serve(self, task: Callable[[Client, int], None], number: int) -> None:
        began = time.monotonic()
        with Client(self._port, WAIT_S) as client:
            try:
                client.ask(b"watch default\r\n")
                self.log.longest_wait_s = max(self.log.longest_wait_s, time.monotonic() - began)
                while not self._stopping.is_set():
                    task(client, number)
            except (NoReplyError, BrokenPipeError, ConnectionResetError):
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    client.has_ended()
                assert client.read_to_end() == b"", "a reply is cut"
                self.log.closed += 1

    def _produce(self, client: Client, number: int) -> None:
        text = b"%d-%d " % (number, time.monotonic_ns())
        body = text + b"x" * (BODY - len(text))
        self.log.unknown.add(body)
        inserted_id(client.ask(b"put 0 0 100 %d\r\n%b\r\n" % (len(body), body)))
        self.log.unknown.discard(body)
        self.log.put[body] += 1

    def _consume(self, client: Client, _number: int) -> None:
        reply = client.ask(b"reserve-with-timeout 1\r\n")
        if reply == b"TIMED_OUT\r\n":
            return
        head, body = reply.removesuffix(b"\r\n").split(b"\r\n", 1)
        assert len(body) == BODY, head
        self.log.unknown.add(body)
        assert client.ask(b"delete %d\r\n" % int(head.split()[1])) == b"DELETED\r\n"
        self.log.unknown.discard(body)
        self.log.deleted[body] += 1


def check(log: Log, client: Client) -> None:
    """Compare the log with the jobs that are left, which this deletes."""
    left: Counter[bytes] = Counter()
    while (reply := client.ask(b"reserve-with-timeout 0\r\n")) != b"TIMED_OUT\r\n":
        head, body = reply.removesuffix(b"\r\n").split(b"\r\n", 1)
        left[body] += 1
        assert client.ask(b"delete %d\r\n" % int(head.split()[1])) == b"DELETED\r\n"
    seen = log.deleted + left
    assert not log.failures, log.failures[:3]
    assert max(seen.values()) == 1, "a job is doubled"
    lost = [body for body in log.put if not seen[body] and body not in log.unknown]
    assert not lost, f"{len(lost)} of {len(log.put)} jobs are lost"


def shortest_wait(machine: Machine, clients: Clients) -> float:
    """Restart the service a few times; return the longest wait of a client in the best one.

    Not in the worst one, because other processes may take the processors.
    """
    waits = []
    for _ in range(RESTARTS):
        clients.progress()
        clients.log.longest_wait_s = 0.0
        machine.systemctl("restart", SERVICE)
        clients.progress()
        waits.append(clients.log.longest_wait_s)
    return min(waits)


@pytest.mark.parametrize("workers", [1, 2])
def test_clients_wait_during_restarts(system: Machine, workers: int) -> None:
    set_options(system, f"--workers {workers}")
    system.systemctl("start", SERVICE)
    with Clients(system) as clients:
        wait_s = shortest_wait(system, clients)
    with system.connect() as client:
        check(clients.log, client)
    assert clients.log.closed >= RESTARTS
    assert wait_s < BUSY * 1


def test_a_restart_with_a_million_jobs(system: Machine) -> None:
    set_options(system, "--workers 1")
    system.systemctl("start", SERVICE)
    with system.connect() as client:
        assert client.ask(b"use full\r\n") == b"USING full\r\n"
        for _ in range(MANY // PIPELINED):
            client.send(b"put 0 0 100 1\r\nx\r\n" * PIPELINED)
            client.replies(PIPELINED)
    with Clients(system) as clients:
        wait_s = shortest_wait(system, clients)
    with system.connect() as client:
        check(clients.log, client)
        assert client.stats(b"stats-tube full")["current-jobs-ready"] == str(MANY)
    assert wait_s < BUSY * 2


def test_a_stop_refuses_connections(system: Machine) -> None:
    system.systemctl("start", SERVICE)
    system.systemctl("restart", SERVICE)
    assert attempt(system) == "served"
    assert system.show(SERVICE, "NFileDescriptorStore") == "1"
    system.systemctl("stop", SERVICE)
    assert attempt(system) == "ConnectionRefusedError"
    system.systemctl("start", SERVICE)
    assert attempt(system) == "served"


def test_connections_wait_after_a_crash(system: Machine) -> None:
    system.systemctl("start", SERVICE)
    with Clients(system) as clients:
        clients.progress()
        os.kill(system.main_pid(SERVICE), signal.SIGKILL)
        assert eventually(lambda: system.show(SERVICE, "NRestarts") == "1", WAIT_S)
        clients.progress()
    with system.connect() as client:
        check(clients.log, client)


def test_a_failed_restart_refuses_connections(system: Machine) -> None:
    system.systemctl("start", SERVICE)
    set_options(system, "--no-such-option")
    system.systemctl("restart", SERVICE, check=False)
    assert system.show(SERVICE, "ActiveState") == "failed"
    assert attempt(system) == "ConnectionRefusedError"


def test_a_restart_with_another_address(system: Machine) -> None:
    """Also with one that overlaps with the old address."""
    set_options(system, "-l 127.0.0.1 -p 11300")
    system.systemctl("start", SERVICE)
    set_options(system, "-l 127.0.0.1 -p 11400")
    system.systemctl("restart", SERVICE)
    assert attempt(system, 11400) == "served"
    assert attempt(system, 11300) == "ConnectionRefusedError"
    set_options(system, "-p 11400")
    system.systemctl("restart", SERVICE)
    assert "0.0.0.0:11400" in system.run("ss", "-Hltn", "sport = 11400").stdout
    assert attempt(system, 11400) == "served"
    assert eventually(lambda: system.show(SERVICE, "NFileDescriptorStore") == "1", WAIT_S)


def test_the_sockets_of_a_socket_unit_are_not_stored(system: Machine) -> None:
    set_options(system, "-p 11400")
    system.systemctl("start", SERVICE)
    system.systemctl("stop", SERVICE)
    system.systemctl("start", "beanstalkd-py.socket")
    assert attempt(system) == "served"
    assert system.show(SERVICE, "NFileDescriptorStore") == "0"
    system.systemctl("restart", SERVICE)
    assert attempt(system) == "served"
    assert attempt(system, 11400) == "ConnectionRefusedError"


def test_instances_keep_their_own_sockets(system: Machine) -> None:
    instance = "beanstalkd-py@mail.service"
    set_options(system, "-p 11400", "beanstalkd-py-mail")
    system.systemctl("start", SERVICE, instance)
    with Clients(system, 11400) as clients:
        clients.progress()
        system.systemctl("restart", instance)
        clients.progress()
        system.systemctl("stop", SERVICE)
        assert attempt(system) == "ConnectionRefusedError"
    with system.connect(11400) as client:
        check(clients.log, client)


def test_tls_clients_wait_during_a_restart(system: Machine) -> None:
    authority = trustme.CA()
    key = system.path("/var/lib/beanstalkd-py-tls.pem")
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(key))
    key.chmod(0o644)
    file = "/var/lib/beanstalkd-py-tls.pem"
    set_options(system, f"--tls-listen 127.0.0.1:11301 --tls-cert {file} --tls-key {file}")
    system.systemctl("start", SERVICE)
    assert system.show(SERVICE, "NFileDescriptorStore") == "2"
    refused: list[str] = []
    stopping = threading.Event()

    def connect() -> None:
        system.enter_network()
        while not stopping.is_set():
            try:
                socket.create_connection(("127.0.0.1", 11301), WAIT_S).close()
            except OSError as error:
                refused.append(str(error))
            time.sleep(0.005)

    thread = threading.Thread(target=connect)
    thread.start()
    system.systemctl("restart", SERVICE)
    stopping.set()
    thread.join()
    assert not refused
