"""A standby's port: forwards each connection to the primary.

A connection is forwarded once. Without a primary it waits, because clients should not need to
retry; it is closed when the primary changes, because its jobs and commands end with that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence

from beanstalkd_py.server.replicator.cancellation import cancel_all

WAIT_S = 30.0
"""How long a connection waits for a primary."""
CHECK_S = 0.1
CONNECT_S = 5.0
PIECE_BYTES = 1 << 16

BACKLOG = 4096

PrimaryOf = Callable[[], tuple[str, str]]
"""Returns the address of the primary, HOST:PORT, and its name; empty ones without a primary."""


class Forwarder:
    """Forwards the connections of these listeners, which the caller owns."""

    def __init__(self, listeners: Sequence[socket.socket], primary: PrimaryOf) -> None:
        self._listeners = listeners
        self._primary = primary
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Accept connections. Raises OSError."""
        for listener in self._listeners:
            # A duplicate, because closing a server closes its socket.
            self._servers.append(
                await asyncio.start_server(
                    self._accepted, sock=listener.dup(), limit=PIECE_BYTES, backlog=BACKLOG
                )
            )

    async def close(self) -> None:
        """Stop accepting, and close all connections."""
        for server in self._servers:
            server.close()
        await cancel_all(set(self._tasks))

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._forward(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(WAIT_S):
            address, name = await self._wait_for_primary()
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(CONNECT_S):
            far_reader, far_writer = await asyncio.open_connection(
                host.strip("[]"), int(port), limit=PIECE_BYTES
            )
        pumps = [
            asyncio.create_task(_pump(reader, far_writer)),
            asyncio.create_task(_pump(far_reader, writer)),
            asyncio.create_task(self._until_change(name)),
        ]
        try:
            # A half-closed connection continues in the other direction.
            await asyncio.wait(pumps[1:], return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.transport.abort()
            await cancel_all(pumps)

    async def _wait_for_primary(self) -> tuple[str, str]:
        while not (found := self._primary())[0]:
            await asyncio.sleep(CHECK_S)
        return found

    async def _until_change(self, name: str) -> None:
        while self._primary()[1] == name:
            await asyncio.sleep(CHECK_S)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
        await writer.drain()
