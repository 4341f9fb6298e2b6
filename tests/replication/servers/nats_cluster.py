"""nats-servers on loopback, and servers that replicate to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nats.aio.client import Client
from nats.errors import Error
from replication.servers.relay import Relays
from servers import READY_LINE, Server, free_port, free_ports, our_command
from wire import NoReplyError

READY_S = 30.0
LEASE_S = 4
COUNT = 3


def nats_program() -> str:
    """Return the path of nats-server: NATS_SERVER, or that of the environment of the tests."""
    path = os.environ.get("NATS_SERVER") or str(Path(sys.executable).parent / "nats-server")
    if shutil.which(path) is None:
        raise AssertionError(f"nats-server is missing at {path}: run tools/test, which installs it")
    return path


@dataclass
class NatsServer:
    """One nats-server, which can be killed and started again."""

    config: Path
    store: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.config.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", nats_program(), "-c", str(self.config)],
                stdout=log,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        return self.config.with_suffix(".log").read_text(errors="replace")


@dataclass
class NatsCluster:
    """All nats-servers. `url` is a value of --replicate without the name."""

    servers: list[NatsServer] = field(default_factory=list)
    scheme: str = "nats"

    @property
    def ports(self) -> list[int]:
        return [one.port for one in self.servers]

    @property
    def url(self) -> str:
        return url_of(self.ports, self.scheme)


def url_of(ports: Sequence[int], scheme: str = "nats") -> str:
    return f"{scheme}://" + ",".join(f"127.0.0.1:{port}" for port in ports)


@contextlib.contextmanager
def nats_cluster(folder: Path) -> Iterator[NatsCluster]:
    """Start the servers, which sync each write, and wait until JetStream has a leader."""
    ports = free_ports(2 * COUNT)
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports[COUNT:])
    cluster = NatsCluster()
    for number in range(COUNT):
        settings = (
            f"cluster {{ name: test, listen: 127.0.0.1:{ports[COUNT + number]},"
            f" routes: [{routes}], no_advertise: true }}\n"  # clients use their relays only
        )
        cluster.servers.append(_nats_server(folder, number, ports[number], settings))
    with _running(cluster, "new metadata leader"):
        asyncio.run(asyncio.wait_for(_all_can_have_streams(cluster), READY_S))
        yield cluster


async def _all_can_have_streams(cluster: NatsCluster) -> None:
    """Wait until the leader knows all servers; before, it has no suitable peers for a stream."""
    client = Client()
    await client.connect([url_of([port]) for port in cluster.ports])
    stream = client.jetstream()
    while True:
        try:
            await stream.add_stream(name="ready", subjects=["ready"], num_replicas=COUNT)
        except Error:
            await asyncio.sleep(0.05)
        else:
            break
    await stream.delete_stream("ready")
    await client.close()


@contextlib.contextmanager
def single_nats(folder: Path, settings: str = "", scheme: str = "nats") -> Iterator[NatsCluster]:
    """Start one server, for streams with a single copy. `settings` are of its configuration."""
    server = _nats_server(folder, 0, free_port(), settings)
    cluster = NatsCluster([server], scheme)
    with _running(cluster, "Server is ready"):
        yield cluster


def _nats_server(folder: Path, number: int, port: int, settings: str) -> NatsServer:
    config, store = folder / f"nats-{number}.conf", folder / f"js-{number}"
    config.write_text(
        f"server_name: n{number}\n"
        f"listen: 127.0.0.1:{port}\n"
        f'jetstream {{ store_dir: "{store}", sync_interval: always }}\n' + settings
    )
    return NatsServer(config, store, port)


@contextlib.contextmanager
def _running(cluster: NatsCluster, ready: str) -> Iterator[None]:
    """Run the servers; continue when one of them has logged `ready`."""
    try:
        for server in cluster.servers:
            server.start()
        end = time.monotonic() + READY_S
        while not any(ready in one.log() for one in cluster.servers):
            assert time.monotonic() < end, cluster.servers[0].log()
            time.sleep(0.05)
        yield
    finally:
        for server in cluster.servers:
            if server.process is not None:
                server.kill()


class ReplicatedServer:
    """One of our servers, which starts again on its folder and port."""

    def __init__(
        self,
        relays: Relays,
        name: str,
        folder: Path,
        *options: str,
        scheme: str = "nats",
        prefix: Sequence[str] = (),
    ) -> None:
        """`prefix` is before the command."""
        folder.mkdir(exist_ok=True)
        self.relays = relays
        self.target = f"{url_of(relays.ports, scheme)}/{name}"
        self.folder = folder
        self.port = free_port()
        self.process: Server | None = None
        self.logs: list[str] = []
        self.guard = threading.Lock()
        self.is_wanted = False
        """Whether it should run."""
        address = f"127.0.0.1:{self.port}"
        self._command = [
            *prefix,
            *our_command(),
            *("-l", "127.0.0.1", "-p", str(self.port), "-b", str(folder)),
            *("--replicate", self.target, "--replicate-address", address),
            *("--replicate-lease", f"{LEASE_S}s", *options),
        ]

    def start(self) -> None:
        with self.guard:
            self.is_wanted = True
            self.process = Server(self._command, self.port, {})

    def restart_if_ended(self) -> None:
        """Do what a service manager does."""
        with self.guard:
            if self.is_wanted and self.process is not None and self.process.exit_status:
                self.process.kill()
                self.logs.append(self.process.stderr())
                self.process = Server(self._command, self.port, {})

    @property
    def running(self) -> Server:
        assert self.process is not None
        return self.process

    def stderr(self) -> str:
        return "".join(self.logs) + (self.process.stderr() if self.process is not None else "")

    def is_primary(self) -> bool:
        return READY_LINE in self.running.stderr() and self.running.exit_status is None

    def wait_until(self, text: str) -> None:
        """Wait until the present process has logged this."""
        end = time.monotonic() + READY_S
        while text not in self.running.stderr():
            assert self.running.exit_status is None, self.stderr()
            assert time.monotonic() < end, self.stderr()
            time.sleep(0.02)

    def kill(self) -> None:
        with self.guard:
            self.is_wanted = False
            self.running.kill()
            self.logs.append(self.running.stderr())

    def stop(self) -> int:
        with self.guard:
            self.is_wanted = False
            status = self.running.stop()
            self.logs.append(self.running.stderr())
            return status


class Restartable(Protocol):
    def restart_if_ended(self) -> None: ...


@contextlib.contextmanager
def restarting(servers: Sequence[Restartable]) -> Iterator[None]:
    """Restart servers that end on their own."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.1):
            for server in servers:
                server.restart_if_ended()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def replicated_servers(
    cluster: NatsCluster,
    name: str,
    folder: Path,
    count: int = 2,
    *options: str,
    each: Callable[[int], Sequence[str]] = lambda number: (),
    prefix: Callable[[int], Sequence[str]] = lambda number: (),
) -> Iterator[list[ReplicatedServer]]:
    """Start servers; the first one begins the queue. Yields them when all follow.

    `each` returns further options of a server, by its number, `prefix` what is before its command.
    """
    stack = contextlib.ExitStack()
    servers = []
    for number in range(count):
        relays = Relays(cluster.ports)
        stack.enter_context(relays.open())
        path = folder / f"{name}-{number}"
        every = *options, *each(number)
        one = ReplicatedServer(
            relays, name, path, *every, scheme=cluster.scheme, prefix=prefix(number)
        )
        servers.append(one)
    try:
        servers[0].start()
        servers[0].wait_until(READY_LINE)
        for server in servers[1:]:
            server.start()
            server.wait_until("standing by")
        yield servers
    finally:
        for server in servers:
            if server.process is not None:
                server.process.kill()
        stack.close()


def cluster_status(target: str, count: int = 2, expected: int = 0) -> dict[str, Any]:
    """Return the status when all servers have reported, which they do soon after their start."""
    command = [sys.executable, "-m", "beanstalkd_py", "cluster", "status", "--json", target]
    end = time.monotonic() + READY_S
    while True:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        if done.returncode == expected:
            found: dict[str, Any] = json.loads(done.stdout)
            if len(found["servers"]) == count:
                return found
        assert done.returncode in (0, 1) and time.monotonic() < end, done.stdout + done.stderr


def wait_for_primary(servers: list[ReplicatedServer]) -> ReplicatedServer:
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        for server in servers:
            if server.process is not None and server.is_primary():
                return server
        time.sleep(0.02)
    raise AssertionError("\n".join(one.stderr() for one in servers))


def answers(port: int, command: bytes, timeout_s: float = READY_S) -> bytes:
    """Return the reply to a command as soon as there is one."""
    from wire import Client

    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        with contextlib.suppress(OSError, NoReplyError):
            client = Client(port, timeout_s)
            with contextlib.closing(client):
                return client.ask(command, timeout_s)
        time.sleep(0.02)
    raise AssertionError(f"no reply from port {port}")


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder where a sync costs nothing."""
    with tempfile.TemporaryDirectory(prefix="replicated-", dir="/dev/shm") as folder:
        yield Path(folder)
