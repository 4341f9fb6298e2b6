"""The consoles of two servers: only that of the primary accepts connections."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from console.test_serve import Console
from replication.servers.nats_cluster import NatsCluster, replicated_servers, wait_for_primary
from servers import free_port


def test_only_the_primary_serves_its_console(nats: NatsCluster, memory: Path) -> None:
    consoles = [Console(free_port()), Console(free_port())]

    def options(number: int) -> list[str]:
        return consoles[number].options

    with replicated_servers(nats, "console", memory, each=options) as (first, second):
        assert consoles[0].servers() == [{"index": 0, "name": f"127.0.0.1:{first.port}"}]
        assert consoles[0].events("hello", "survey")
        address = ("127.0.0.1", consoles[1].port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        assert first.stop() == 0
        assert wait_for_primary([second]) is second
        assert consoles[1].servers() == [{"index": 0, "name": f"127.0.0.1:{second.port}"}]
        assert consoles[1].events("hello", "survey")


def test_a_primary_serves_without_a_console_whose_address_was_taken(
    nats: NatsCluster, memory: Path
) -> None:
    ports = [free_port(), free_port()]

    def options(number: int) -> list[str]:
        return Console(ports[number]).options

    with replicated_servers(nats, "taken", memory, each=options) as (first, second):
        # A socket that reuses addresses can be bound beside one that does not listen.
        with socket.create_server(("127.0.0.1", ports[1])):
            assert first.stop() == 0
            assert wait_for_primary([second]) is second
        assert "no console: cannot listen on " in second.stderr()
