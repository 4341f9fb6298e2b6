"""A standby's ports: forwards each connection to the primary, TLS without decrypting it.

A connection is forwarded once. Without a primary it waits, because clients should not need to
retry; it is closed when the primary changes, because its jobs and commands end with that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any

from beanstalkd_py.replication.lease import Holder
from beanstalkd_py.server.accept.admission import Admission
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.replicator.cancellation import cancel_all

WAIT_S = 30.0
"""How long a connection waits for a primary."""
CONNECT_S = 5.0
PIECE_BYTES = 1 << 16
BACKLOG = 4096


class Forwarder:
    """Forwards the connections of these listeners, which the caller owns.

    Applies --allow and --max-connections, because the primary only sees this server's address.
    `counters` is the parent's bs_counters.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        tls_listener: socket.socket | None,
        options: ServeOptions,
        counters: Any,
    ) -> None:
        self._listeners = [(listener, False) for listener in listeners]
        if tls_listener is not None:
            self._listeners.append((tls_listener, True))
        self._primary: Holder | None = None
        self._change = asyncio.Event()
        """Set when another one is the primary, or none; then replaced."""
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._admission = Admission(options, lambda: len(self._tasks), counters)

    async def start(self) -> None:
        """Accept connections. Raises OSError."""
        for listener, is_tls in self._listeners:
            # A duplicate, because closing a server closes its socket.
            self._servers.append(
                await asyncio.start_server(
                    partial(self._accepted, is_tls),
                    sock=listener.dup(),
                    limit=PIECE_BYTES,
                    backlog=BACKLOG,
                )
            )

    def primary_changed(self, primary: Holder | None) -> None:
        """Forward the connections that wait to this primary, and close those to another one."""
        self._primary = primary
        self._change.set()
        self._change = asyncio.Event()

    async def close(self) -> None:
        """Stop accepting, and close all connections."""
        for server in self._servers:
            server.close()
        await cancel_all(set(self._tasks))

    async def _accepted(
        self, is_tls: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not self._admits(writer):
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._forward(is_tls, reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    def _admits(self, writer: asyncio.StreamWriter) -> bool:
        address = writer.get_extra_info("peername")  # None if the client is gone
        family = writer.get_extra_info("socket").family
        return address is not None and self._admission.admits(family, address, 0)

    async def _forward(
        self, is_tls: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(WAIT_S):
            while (primary := self._primary) is None:
                await self._change.wait()
        change = self._change
        address = primary.tls_address if is_tls else primary.address
        if not address:
            return
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(CONNECT_S):
            far_reader, far_writer = await asyncio.open_connection(
                host.strip("[]"), int(port), limit=PIECE_BYTES
            )
        pumps = [
            asyncio.create_task(_pump(reader, far_writer)),
            asyncio.create_task(_pump(far_reader, writer)),
            asyncio.create_task(change.wait()),
        ]
        try:
            # A half-closed connection continues in the other direction.
            await asyncio.wait(pumps[1:], return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.transport.abort()
            await cancel_all(pumps)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
        await writer.drain()
