"""--replicate-timeout with several workers, in an outage that is shorter than the lease."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from pathlib import Path

from processes import eventually
from replication.servers.client_log import TUBES
from replication.servers.nats_cluster import READY_S, NatsCluster, replicated_servers
from wire import Client

TIMEOUT_S = 1.0
PUT = b"put 0 0 100 4\r\nbody\r\n"


def put_in(client: Client, tube: bytes) -> bytes:
    client.ask(b"use %b\r\n" % tube)
    return client.ask(PUT, READY_S)


def is_put(connect: Callable[[], Client], tube: bytes) -> bool:
    with connect() as client:
        return put_in(client, tube).startswith(b"INSERTED")


def test_an_outage_shorter_than_the_lease(nats: NatsCluster, memory: Path) -> None:
    options = "--workers", "2", "--replicate-timeout", f"{TIMEOUT_S:g}s", "--replicate-lease", "60s"
    with (
        replicated_servers(nats, "overdue", memory, 1, *options) as (server,),
        contextlib.ExitStack() as stack,
    ):
        connect = server.running.connect
        waiting = []
        # A client with a reserved job stays at that worker, and uses all tubes from there.
        for near, far in itertools.product(TUBES, TUBES):
            client = stack.enter_context(connect())
            client.ask(b"use %b\r\n" % near)
            client.ask(b"reserve-job %d\r\n" % client.put())
            assert put_in(client, far).startswith(b"INSERTED")
            waiting.append(client)
        server.relays.cut()
        begun = time.monotonic()
        for client in waiting:
            client.send(PUT)
        for client in waiting:
            assert client.read_to_end() == b""
        assert TIMEOUT_S / 2 < time.monotonic() - begun < TIMEOUT_S + 5
        client = stack.enter_context(connect())
        for tube in TUBES:
            assert put_in(client, tube) == b"OUT_OF_MEMORY\r\n"
        server.relays.mend()
        assert all(eventually(lambda tube=tube: is_put(connect, tube), READY_S) for tube in TUBES)
        for tube in TUBES:
            # What was sent before the timeout is in the queue, because it was appended.
            ready = b"\ncurrent-jobs-ready: %d\n" % (3 * len(TUBES) + 1)
            assert ready in client.ask(b"stats-tube %b\r\n" % tube, READY_S)
