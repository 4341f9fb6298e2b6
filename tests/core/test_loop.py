"""The loop around the core: when run() returns, and that every client is served."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.shared_memory import new_shared

MICROSECOND = 1_000
MILLISECOND = 1_000_000
PUT = b"put 0 0 100 1\r\nx\r\n"


@pytest.fixture(params=["without a binlog", "synced before the reply"])
def core(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Core]:
    folder = None if request.param == "without a binlog" else str(tmp_path)
    made = Core(CoreConfig(binlog_dir=folder), new_shared())
    made.recover()
    yield made
    made.close()


def adopt(core: Core) -> socket.socket:
    ours, theirs = socket.socketpair()
    core.adopt(theirs.detach())
    ours.settimeout(5)
    return ours


@pytest.mark.slow
def test_lingering_never_lasts_longer_than_the_budget(core: Core) -> None:
    """Also after a run whose budget ended inside a round, before its timer was seen."""
    client = adopt(core)
    for step in range(3000):
        client.sendall(PUT)
        core.run(step % 100 * 50, linger=True)
        started = time.monotonic()
        core.run(100 * MICROSECOND, linger=True)
        core.run(100 * MICROSECOND, linger=True)
        assert time.monotonic() - started < 1


@pytest.mark.slow
def test_a_delayed_job_makes_the_descriptor_readable(core: Core) -> None:
    client = adopt(core)
    client.sendall(b"put 0 1 100 1\r\nx\r\nreserve\r\n")
    while not select.select([client], [], [], 0)[0]:
        core.run(MILLISECOND, linger=True)
    assert client.recv(100).startswith(b"INSERTED")
    while core.run(MILLISECOND, linger=True):
        pass
    while not select.select([client], [], [], 0)[0]:
        assert select.select([core.fd], [], [], 5)[0], "the core's descriptor stays silent"
        core.run(MILLISECOND, linger=False)
    assert client.recv(100).startswith(b"RESERVED")


def put_and_wait(client: socket.socket, times: int) -> None:
    for _ in range(times):
        client.sendall(PUT)
        assert client.recv(100).startswith(b"INSERTED")


@pytest.mark.slow
@pytest.mark.parametrize("crowd", [2, 5])
def test_clients_that_wait_for_their_reply_all_get_it(core: Core, crowd: int) -> None:
    """No epoll edge and no wake-up of a sync is lost."""
    clients = [adopt(core) for _ in range(crowd)]
    with ThreadPoolExecutor(crowd) as threads:
        tasks = [threads.submit(put_and_wait, client, 3000) for client in clients]
        while not all(task.done() for task in tasks):
            if select.select([core.fd], [], [], 0.1)[0]:
                core.run(5 * MILLISECOND, linger=True)
    for task in tasks:
        task.result()  # raises TimeoutError for a client that was forgotten


def test_no_command_is_executed_after_the_end_of_commands(core: Core) -> None:
    """Unread replies count as unsent, and a stop discards input that it has not executed."""
    client = adopt(core)
    client.sendall(PUT)
    while core.unsent() == 0:
        core.run(MILLISECOND, linger=True)
    assert client.recv(100) == b"INSERTED 1\r\n"
    assert core.unsent() == 0
    client.sendall(PUT[:-3])
    core.run(MILLISECOND, linger=True)
    core.end_commands()
    client.sendall(PUT[-3:] + PUT)
    for _ in range(5):
        core.run(MILLISECOND, linger=True)
    assert core.unsent() == 0
    core.stop()
    core.close()
    assert client.recv(100) == b"", "a close with unread input is a reset"
