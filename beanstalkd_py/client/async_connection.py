"""The connection of an asyncio client. Several tasks share it, and calls can be cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Generic

import greenstalk

from beanstalkd_py import errors
from beanstalkd_py.client import commands, replies
from beanstalkd_py.client.commands import Command
from beanstalkd_py.client.replies import LINE, Decoder, Result

ABORT_LIMIT_S = 5.0
"""The time for the replies to `reserve-abort` and to the wait that it ends."""

_ABORT = "reserve-abort"


class AsyncConnection:
    """Executes commands.

    The reply to a cancelled call must not become that of the next one. If possible, a cancelled
    call ends its wait by `reserve-abort`; otherwise it closes the connection.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._reading = asyncio.Lock()
        self.is_open = True
        self._sent = 0
        self._features: frozenset[str] | None = None
        self._asking: asyncio.Future[frozenset[str]] | None = None

    @classmethod
    async def open(cls, address: greenstalk.Address, tls: ssl.SSLContext | None) -> AsyncConnection:
        if isinstance(address, str):
            return cls(*await asyncio.open_unix_connection(address, ssl=tls))
        host, port = address
        return cls(*await asyncio.open_connection(host, port, ssl=tls))

    def abort(self) -> None:
        """Close the connection at once; pending and later calls raise ConnectionError."""
        self.is_open = False
        self._writer.transport.abort()

    async def close(self) -> None:
        self.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def features(self) -> frozenset[str]:
        """Return the server's extensions; asks the server once."""
        if self._features is None:
            if self._asking is None:
                self._asking = asyncio.ensure_future(self._exchange(commands.features()))
                self._asking.add_done_callback(_retrieve)
            # A task of its own, so that a call that is cancelled now leaves the connection open.
            self._features = await asyncio.shield(self._asking)
        return self._features

    async def execute(self, command: Command[Result]) -> Result:
        """Send a command and return its decoded reply."""
        # Query the features before a wait, because its cancellation uses them.
        if command.feature is not None or command.waits:
            features = await self.features()
            if command.feature is not None and command.feature not in features:
                raise errors.MissingFeatureError(command.feature)
        return await self._exchange(command)

    async def _exchange(self, command: Command[Result]) -> Result:
        self._check_open()
        # Tasks read replies in the order of their commands, because asyncio's lock is fair and no
        # task switch occurs between here and the lock. Each task has one command in flight, which
        # bounds the buffer.
        self._send(command.data)
        number = self._sent
        reply = _Reply(command.decoder())
        try:
            async with self._reading:
                self._check_open()
                return await reply.read(self._reader)
        except greenstalk.BeanstalkdError as error:
            if command.has_body and isinstance(error, greenstalk.BadFormatError):
                self.abort()
            raise
        except asyncio.CancelledError:
            is_last = self.is_open and number == self._sent
            if command.waits and is_last and _ABORT in (self._features or ()):
                await self._end_wait(reply)
            else:
                self.abort()
            raise
        except BaseException:
            self.abort()
            raise

    async def _end_wait(self, reply: _Reply[Result]) -> None:
        """Send `reserve-abort` for the last command, and read the replies to both.

        Closes the connection if that fails or takes too long, for example because the server has
        stopped, or because it ignores the abort behind another command that waits.
        """
        self._send(_ABORT.encode() + b"\r\n")
        aborted = _Reply(replies.read_nothing(b"ABORTED"))
        result: Result | None = None
        try:
            async with asyncio.timeout(ABORT_LIMIT_S), self._reading:
                self._check_open()
                with contextlib.suppress(greenstalk.BeanstalkdError):
                    result = await reply.read(self._reader)
                await aborted.read(self._reader)
        except (Exception, asyncio.CancelledError):
            # The caller raises the CancelledError of the wait.
            self.abort()
        except BaseException:
            self.abort()
            raise
        if isinstance(result, (greenstalk.Job, list)):
            # The server replied with jobs before it read the abort. Closing makes them ready.
            self.abort()

    def _send(self, data: bytes) -> None:
        self._writer.write(data)
        self._sent += 1

    def _check_open(self) -> None:
        if not self.is_open:
            raise ConnectionError("the connection is closed")


def _retrieve(asked: asyncio.Future[frozenset[str]]) -> None:
    """Take the error that nobody waits for, which asyncio would log."""
    if not asked.cancelled():
        asked.exception()


class _Reply(Generic[Result]):
    """A reply in progress: after a cancelled `read`, another `read` continues."""

    def __init__(self, decoder: Decoder[Result]) -> None:
        self._decoder = decoder
        self._request = next(decoder)

    async def read(self, reader: asyncio.StreamReader) -> Result:
        try:
            while True:
                # A cancelled readline or readexactly leaves all bytes in the buffer.
                if self._request == LINE:
                    data = await reader.readline()
                else:
                    data = await _read_exactly(reader, self._request)
                self._request = self._decoder.send(data)
        except StopIteration as end:
            result: Result = end.value
            return result


async def _read_exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        return error.partial
