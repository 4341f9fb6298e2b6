"""A standby's port: connections wait for a primary, are forwarded once, and end with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import selectors
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from beanstalkd_py.replication.lease import Holder
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.replicator import forwarder as module
from beanstalkd_py.server.replicator.forwarder import Forwarder

LIMIT_S = 10.0
IDLE_S = 0.5

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class CountingSelector(selectors.DefaultSelector):
    """Counts how often the event loop wakes up."""

    count = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.count += 1
        return super().select(timeout)


def run(test: Callable[[], Awaitable[None]], selector: CountingSelector | None = None) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), LIMIT_S)

    loop = asyncio.SelectorEventLoop(selector or CountingSelector())
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(bounded())


@contextlib.asynccontextmanager
async def primary(name: str) -> AsyncIterator[Holder]:
    """A primary that replies to each piece of data with its name."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            writer.write(name.encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Holder(name, f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    finally:
        server.close()


@contextlib.asynccontextmanager
async def forwarding(
    **options: Any,
) -> AsyncIterator[tuple[Forwarder, Callable[..., Awaitable[Connection]]]]:
    """Yield a forwarder, and a function that connects to it, with True to its port for TLS."""
    with (
        socket.create_server(("127.0.0.1", 0)) as plain,
        socket.create_server(("127.0.0.1", 0)) as tls,
    ):
        for listener in (plain, tls):
            listener.setblocking(False)
        counters = SimpleNamespace(refused_connections=0)
        forwarder = Forwarder([plain], tls, ServeOptions(**options), counters)
        writers = []

        async def connect(is_tls: bool = False) -> Connection:
            address = (tls if is_tls else plain).getsockname()
            reader, writer = await asyncio.open_connection(*address)
            writers.append(writer)
            return reader, writer

        try:
            yield forwarder, connect
        finally:
            await forwarder.close()
            for writer in writers:
                writer.close()


async def reply(connection: Connection) -> bytes:
    """Return the reply to one byte, nothing if the connection is closed instead."""
    reader, writer = connection
    writer.write(b"x")
    with contextlib.suppress(ConnectionError):
        return await reader.read(100)
    return b""


async def is_closed(connection: Connection) -> bool:
    with contextlib.suppress(ConnectionError):
        return await connection[0].read(1) == b""
    return True


def test_a_connection_waits_for_a_primary_and_ends_with_it() -> None:
    async def test() -> None:
        async with primary("one") as one, primary("other") as other, forwarding() as found:
            forwarder, connect = found
            early = await connect()
            asked = asyncio.create_task(reply(early))
            await asyncio.sleep(0.1)
            assert not asked.done()
            forwarder.primary_changed(one)
            assert await asked == b"one"
            assert await reply(await connect()) == b"one"
            forwarder.primary_changed(other)
            assert await is_closed(early)
            late = await connect()
            assert await reply(late) == b"other"
            forwarder.primary_changed(None)
            assert await is_closed(late)
            waiting = asyncio.create_task(reply(await connect()))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            forwarder.primary_changed(one)
            assert await waiting == b"one"

    run(test)


def test_tls_goes_to_the_tls_address() -> None:
    async def test() -> None:
        async with primary("one") as one, primary("tls") as tls, forwarding() as found:
            forwarder, connect = found
            forwarder.primary_changed(replace(one, tls_address=tls.address))
            assert await reply(await connect()) == b"one"
            assert await reply(await connect(True)) == b"tls"
            forwarder.primary_changed(one)
            assert await is_closed(await connect(True))
            assert await reply(await connect()) == b"one"

    run(test)


@pytest.mark.parametrize("is_tls", [False, True])
def test_clients_that_are_not_allowed_are_not_forwarded(is_tls: bool) -> None:
    """The primary would see the address of the standby."""

    async def reply_with(holder: Holder, **options: Any) -> list[bytes]:
        async with forwarding(**options) as (forwarder, connect):
            forwarder.primary_changed(replace(holder, tls_address=holder.address))
            return [await reply(await connect(is_tls)) for _ in range(2)]

    async def test() -> None:
        async with primary("one") as one:
            assert await reply_with(one, allow=("10.0.0.0/8",)) == [b"", b""]
            assert await reply_with(one, allow=("127.0.0.0/8",)) == [b"one", b"one"]
            assert await reply_with(one, max_connections=1) == [b"one", b""]

    run(test)


def test_a_connection_that_waits_outlasts_the_forwarder() -> None:
    """If the server becomes the primary, its workers get the connection."""

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            forwarder = Forwarder([listener], None, ServeOptions(), SimpleNamespace())
            connection = await asyncio.open_connection(*listener.getsockname())
            asked = asyncio.create_task(reply(connection))
            await asyncio.sleep(0.1)
            await forwarder.close()
            accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
            with accepted:
                accepted.sendall(b"worker")
                assert await asked == b"worker"

    run(test)


def test_accepting_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a free descriptor connections wait."""
    monkeypatch.setattr(module, "FULL_S", 0.05)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        async with primary("one") as one:
            with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
                listener.setblocking(False)
                client.setblocking(False)
                forwarder = Forwarder([listener], None, ServeOptions(), SimpleNamespace())
                free = os.dup(0)
                os.close(free)
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
                try:
                    forwarder.primary_changed(one)
                    await loop.sock_connect(client, listener.getsockname())
                    await loop.sock_sendall(client, b"x")
                    await asyncio.sleep(0.2)
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                assert await loop.sock_recv(client, 100) == b"one"
                await forwarder.close()

    run(test)


def test_a_change_while_it_connects_closes_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with primary("one") as one, forwarding() as (forwarder, connect):
            connects, continues = asyncio.Event(), asyncio.Event()
            connection = await connect()
            open_connection = asyncio.open_connection

            async def slow(*args: Any, **options: Any) -> Connection:
                connects.set()
                await continues.wait()
                return await open_connection(*args, **options)

            monkeypatch.setattr(asyncio, "open_connection", slow)
            forwarder.primary_changed(one)
            await connects.wait()
            forwarder.primary_changed(None)
            continues.set()
            assert await is_closed(connection)

    run(test)


def test_idle_connections_cost_nothing() -> None:
    selector = CountingSelector()

    async def test() -> None:
        async with primary("one") as one, forwarding() as (forwarder, connect):
            waiting = asyncio.create_task(reply(await connect()))
            await asyncio.sleep(0.1)
            before = selector.count
            await asyncio.sleep(IDLE_S)
            assert selector.count - before <= 2
            forwarder.primary_changed(one)
            assert await waiting == b"one"
            before = selector.count
            await asyncio.sleep(IDLE_S)
            assert selector.count - before <= 2

    run(test, selector)
