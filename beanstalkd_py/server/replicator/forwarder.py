"""A standby's ports: forwards each connection to the primary, TLS without decrypting it.

A connection is forwarded once. Without a primary it stays in the queue of its listener, because
clients should not need to retry; if this server becomes the primary, its workers get it. It is
closed when the primary changes, because its jobs and commands end with that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from typing import Any

from beanstalkd_py.replication.lease import Holder
from beanstalkd_py.server.accept.admission import Admission
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.replicator.cancellation import cancel_all

CONNECT_S = 5.0
PIECE_BYTES = 1 << 16
FULL_S = 0.5
"""The pause after a failed accept, as without a free descriptor."""


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
        self._accepting = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._admission = Admission(options, lambda: len(self._tasks), counters)

    def primary_changed(self, primary: Holder | None) -> None:
        """Forward connections to this primary from now on, and close those to another one."""
        self._primary = primary
        self._change.set()
        self._change = asyncio.Event()
        self._accept_while(primary is not None)

    async def close(self) -> None:
        """Stop accepting, and close all connections."""
        self.primary_changed(None)
        await cancel_all(set(self._tasks))

    def _accept_while(self, accepting: bool) -> None:
        loop = asyncio.get_running_loop()
        for listener, is_tls in self._listeners:
            if accepting and not self._accepting:
                loop.add_reader(listener.fileno(), self._accept, listener, is_tls)
            elif self._accepting and not accepting:
                loop.remove_reader(listener.fileno())
        self._accepting = accepting

    def _accept(self, listener: socket.socket, is_tls: bool) -> None:
        try:
            connection, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            self._accept_while(False)
            asyncio.get_running_loop().call_later(FULL_S, self._accept_again)
            return
        connection.setblocking(False)
        if not self._admission.admits(connection.family, address, 0):
            connection.close()
            return
        task = asyncio.create_task(self._forward(is_tls, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept_again(self) -> None:
        self._accept_while(self._primary is not None)

    async def _forward(self, is_tls: bool, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=PIECE_BYTES)
        try:
            await self._exchange(is_tls, reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _exchange(
        self, is_tls: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        primary, change = self._primary, self._change
        address = "" if primary is None else primary.tls_address if is_tls else primary.address
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
