"""Connections beyond the limit of open files wait until descriptors are free."""

from __future__ import annotations

import contextlib
import resource
import time

import pytest
from processes import eventually
from servers import ours
from wire import Client, NoReplyError

# Of these a worker keeps 64 for itself.
FEW_DESCRIPTORS = 84
CAPACITY = FEW_DESCRIPTORS - 64


def answered(clients: list[Client]) -> int:
    """Return how many connections have received a reply."""
    count = 0
    for client in clients:
        with contextlib.suppress(NoReplyError):
            client.reply(0.01)
            count += 1
    return count


@pytest.mark.slow
def test_out_of_descriptors() -> None:
    limits = {resource.RLIMIT_NOFILE: FEW_DESCRIPTORS}
    with ours(limits=limits) as server, contextlib.ExitStack() as stack:
        # The connection that found the server up may still be closing.
        time.sleep(0.2)
        clients = [stack.enter_context(server.connect()) for _ in range(CAPACITY + 10)]
        for client in clients:
            client.send(b"list-tube-used\r\n")
        time.sleep(0.5)
        first, rest = clients[:CAPACITY], clients[CAPACITY:]
        assert answered(first) == CAPACITY
        assert answered(rest) == 0
        before_s = server.cpu_s()
        time.sleep(1.0)
        assert server.cpu_s() - before_s < 0.1
        for client in first[:10]:
            client.close()
        assert eventually(lambda: answered(rest[:1]) == 1)
        assert answered(rest[1:]) == 9
        lines = server.complaints().splitlines()
    assert len(lines) == 1, lines
    assert "have to wait" in lines[0]


def test_many_short_connections() -> None:
    limits = {resource.RLIMIT_NOFILE: FEW_DESCRIPTORS}
    with ours(limits=limits) as server:
        for _ in range(CAPACITY * 10):
            with server.connect() as client:
                assert client.ask(b"list-tube-used\r\n") == b"USING default\r\n"
        with server.connect() as client:
            stats = client.stats()
    assert int(stats["total-connections"]) >= CAPACITY * 10
    assert int(stats["current-connections"]) <= 2
