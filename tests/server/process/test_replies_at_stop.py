"""A stop closes connections between commands: no reply is cut, each executed command has one."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path

import pytest
from processes import eventually
from servers import Server, ours
from wire import Client, NoReplyError

pytestmark = pytest.mark.costly

CLIENTS = 4
LARGE = 60_000
PIPELINED = 50
LIMIT_S = 10.0


def end(server: Server) -> None:
    """Wait for the end of a server that has got SIGTERM."""
    assert eventually(lambda: server.exit_status is not None, LIMIT_S)
    assert (server.exit_status, server.complaints()) == (0, "")


def replies_until_end(client: Client, pause_s: float = 0.0) -> list[bytes]:
    """Return all replies, with a pause after each. The last one must be complete."""
    replies = []
    try:
        while True:
            replies.append(client.reply(LIMIT_S))
            time.sleep(pause_s)
    except NoReplyError:
        assert client.read_to_end() == b"", "a reply is cut"
    return replies


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_large_reply_is_cut(tmp_path: Path, workers: str) -> None:
    """Clients that read slowly, and have sent more commands than the server executes."""
    with ours("--workers", workers, "-b", tmp_path) as server, ThreadPoolExecutor() as threads:
        with server.connect() as client:
            jobs = [client.put(bytes(LARGE)) for _ in range(10)]
        clients = [server.connect() for _ in range(CLIENTS)]
        for client in clients:
            client.send(b"".join(b"peek %d\r\n" % job for job in jobs) * 100)
        readers = [threads.submit(replies_until_end, client, 0.001) for client in clients]
        time.sleep(0.1)
        server.signal(signal.SIGTERM)
        counts = [len(reader.result()) for reader in readers]
        end(server)
    assert all(0 < number < 100 * len(jobs) for number in counts), counts


def send_all(commands: Iterable[bytes], client: Client) -> list[bytes]:
    """Send a few commands at a time until the server closes; return all replies."""
    commands, replies = iter(commands), []
    with contextlib.suppress(OSError, NoReplyError):
        while piece := b"".join(islice(commands, PIPELINED)):
            client.send(piece)
            for _ in range(piece.count(b"\r\n") - piece.count(b"\r\nx\r\n")):
                replies.append(client.reply(LIMIT_S))
    return replies + replies_until_end(client)


def stop_under_load(server: Server, commands: Callable[[int], Iterable[bytes]]) -> list[bytes]:
    """Stop the server while clients send these commands; return all replies."""
    with ThreadPoolExecutor() as threads:
        clients = [server.connect() for _ in range(CLIENTS)]
        loads = [
            threads.submit(send_all, commands(number), client)
            for number, client in enumerate(clients)
        ]
        time.sleep(0.05)
        server.signal(signal.SIGTERM)
        replies = [reply for load in loads for reply in load.result()]
    end(server)
    return replies


def puts(_number: int) -> Iterator[bytes]:
    """Return puts without end into tubes of all workers."""
    return (b"use t%d\r\nput 0 0 100 1\r\nx\r\n" % (n % 7) for n in count())


@pytest.mark.parametrize("workers", ["1", "2"])
def test_each_executed_command_is_answered(tmp_path: Path, workers: str) -> None:
    """Also if another worker has executed it."""
    args = ("--workers", workers, "-b", tmp_path)
    with ours(*args) as server:
        replies = stop_under_load(server, puts)
    jobs = [int(reply.split()[1]) for reply in replies if reply.startswith(b"INSERTED ")]
    assert jobs

    def deletes(number: int) -> list[bytes]:
        return [b"delete %d\r\n" % job for job in jobs[number::CLIENTS]]

    with ours(*args) as server:
        with server.connect() as client:
            assert client.stats()["current-jobs-ready"] == str(len(jobs))
        replies = stop_under_load(server, deletes)
    assert set(replies) == {b"DELETED\r\n"}
    with ours(*args) as server, server.connect() as client:
        assert client.stats()["current-jobs-ready"] == str(len(jobs) - len(replies))


def test_a_client_that_does_not_read_delays_a_stop_briefly(tmp_path: Path) -> None:
    with ours("-b", tmp_path) as server, server.connect() as client:
        job = client.put(bytes(LARGE))
        client.send(b"peek %d\r\n" % job * 1000)
        time.sleep(0.2)
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        assert eventually(lambda: server.exit_status is not None, LIMIT_S)
        assert time.monotonic() - began < 4
        assert server.exit_status == 0
