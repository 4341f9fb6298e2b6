"""A relay between a server and a nats-server, which can hold back all bytes like a partition.

Connections stay open meanwhile, and what is held back arrives later.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence

from beanstalkd_py.server.replicator.cancellation import cancel_all

PIECE_BYTES = 1 << 16


class Relay:
    """Relays one port to another. `port` is its own, once it is open."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._passes = asyncio.Event()
        self._passes.set()

    async def open(self) -> asyncio.Server:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def cut(self) -> None:
        self._passes.clear()

    def mend(self) -> None:
        self._passes.set()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passes.wait()
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            pumps = [self._pump(reader, far_writer), self._pump(far_reader, writer)]
            tasks = [asyncio.create_task(pump) for pump in pumps]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            far_writer.transport.abort()
        writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE_BYTES):
                await self._passes.wait()
                writer.write(data)
                await writer.drain()


class Relays:
    """The relays of one server, to all nats-servers, in a thread with an event loop."""

    def __init__(self, targets: Sequence[int]) -> None:
        self._relays = [Relay(target) for target in targets]
        self._loop = asyncio.new_event_loop()
        self._opened = threading.Event()

    @property
    def ports(self) -> list[int]:
        return [relay.port for relay in self._relays]

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        assert self._opened.wait(10)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        for relay in self._relays:
            self._loop.run_until_complete(relay.open())
        self._opened.set()
        self._loop.run_forever()
        if tasks := asyncio.all_tasks(self._loop):
            self._loop.run_until_complete(cancel_all(tasks))

    def cut(self) -> None:
        for relay in self._relays:
            self._loop.call_soon_threadsafe(relay.cut)

    def mend(self) -> None:
        for relay in self._relays:
            self._loop.call_soon_threadsafe(relay.mend)
