"""The asyncio client: the names and types of the synchronous one."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Generic, Self, overload

import greenstalk
from greenstalk import DEFAULT_DELAY, DEFAULT_PRIORITY, DEFAULT_TTR, DEFAULT_TUBE, TBody

from beanstalkd_py.client import commands
from beanstalkd_py.client.async_connection import AsyncConnection
from beanstalkd_py.client.commands import Command
from beanstalkd_py.client.records import BatchJob, JobEnd, ListedJob, ListedState
from beanstalkd_py.client.replies import DecodeBody, Result, body_decoder


class AsyncClient(Generic[TBody]):
    """The client for asyncio, with the methods of `Client` as coroutines.

    `address` is a host and port or the path of a Unix socket, `tls` a context for a TLS listener;
    the other arguments are those of `Client`. `async with` connects and closes.

    Several tasks may share a client. The client sends their commands at once, and the server
    executes them in this order, so that a reserve that waits delays the commands after it.

    Calls may be cancelled. A cancelled `reserve` or `wait` sends `reserve-abort` if the server has
    this extension and no other task has sent a command meanwhile. Any other cancelled call closes
    the connection if its reply has not arrived, and the server makes the reserved jobs ready.
    """

    @overload
    def __init__(
        self: AsyncClient[bytes],
        address: greenstalk.Address,
        encoding: None,
        use: str = DEFAULT_TUBE,
        watch: str | Iterable[str] = DEFAULT_TUBE,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncClient[str],
        address: greenstalk.Address,
        encoding: str = "utf-8",
        use: str = DEFAULT_TUBE,
        watch: str | Iterable[str] = DEFAULT_TUBE,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None: ...

    def __init__(
        self,
        address: greenstalk.Address,
        encoding: str | None = "utf-8",
        use: str = DEFAULT_TUBE,
        watch: str | Iterable[str] = DEFAULT_TUBE,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.encoding = encoding
        self._address = address
        self._tls = tls
        self._initial_use = use
        self._initial_watch = [watch] if isinstance(watch, str) else list(watch)
        self._decode_body: DecodeBody[TBody] = body_decoder(encoding)
        self._connection: AsyncConnection | None = None
        self._connecting = asyncio.Lock()

    async def connect(self) -> None:
        """Connect, or connect again; use and watch the initial tubes. Raises OSError.

        Raises RuntimeError if the client is connected. While another task connects the client,
        waits for that and does nothing.
        """
        if self._is_connected():
            raise RuntimeError("the client is connected")
        async with self._connecting:
            if self._is_connected():
                return
            connection = await AsyncConnection.open(self._address, self._tls)
            try:
                await self._choose_tubes(connection)
            except BaseException:
                connection.abort()
                raise
            self._connection = connection

    def _is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    async def close(self) -> None:
        """Close the connection, which makes its reserved jobs ready. A second call does nothing."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def features(self) -> frozenset[str]:
        """Return the names of the server's extensions; C beanstalkd has none.

        Queries the server once per connection.
        """
        return await self._connected().features()

    async def truncate(self, tube: str) -> int:
        """Delete the ready, delayed and buried jobs of a tube, and return their number."""
        return await self._execute(commands.truncate(tube))

    async def move(
        self,
        job: greenstalk.JobOrID[TBody],
        tube: str,
        priority: int = DEFAULT_PRIORITY,
        delay: int = DEFAULT_DELAY,
    ) -> int:
        """Move a job to a tube as another job, and return its id; `delay` in seconds.

        The job is ready, delayed, buried, or reserved by this client. It keeps its body, TTR, age
        and counters. Raises greenstalk.NotFoundError for other jobs.
        """
        return await self._execute(commands.move(commands.id_of(job), tube, priority, delay))

    async def list_jobs(self, tube: str, state: ListedState = "any") -> AsyncIterator[ListedJob]:
        """Yield the jobs of a tube in the order of their ids, page by page as they are needed."""
        after = 0
        while True:
            page = await self._execute(commands.list_jobs(tube, state, after))
            for job in page.jobs:
                yield job
            after = page.next_after
            if after == 0:
                return

    async def wait(self, seconds: int, job: greenstalk.JobOrID[TBody]) -> JobEnd:
        """Wait at most `seconds` until a job has ended or is buried.

        Raises greenstalk.NotFoundError if the job does not exist, for example because it has ended.
        Raises greenstalk.TimedOutError, and greenstalk.DeadlineSoonError like a reserve.
        """
        return await self._execute(commands.wait(seconds, commands.id_of(job)))

    async def reserve_batch(self, max: int, timeout: int) -> list[BatchJob[TBody]]:
        """Reserve up to `max` jobs of the watched tubes, at most 1,000.

        Waits at most `timeout` seconds for the first, and takes what is ready then. The server may
        return fewer. Raises greenstalk.TimedOutError and greenstalk.DeadlineSoonError.
        """
        return await self._execute(commands.reserve_batch(max, timeout, self._decode_body))

    async def put(
        self,
        body: TBody,
        priority: int = DEFAULT_PRIORITY,
        delay: int = DEFAULT_DELAY,
        ttr: int = DEFAULT_TTR,
        *,
        unique: str | None = None,
        window: int | None = None,
        expires: int | None = None,
        delay_ms: int | None = None,
    ) -> int:
        """Put a job into the used tube and return its id; times in seconds.

        `unique` is a key: if a job of the tube has it, nothing is inserted, and the result is the
        id of that job. The key is kept for `window` seconds after the end of the job. A job that is
        not reserved `expires` seconds after its put is deleted. `delay_ms` replaces `delay`. These
        options need the extension `with`.

        Raises ValueError if a number is outside 0 to 2^32 - 1.
        """
        data = commands.encoded(body, self.encoding)
        options = commands.PutOptions(
            unique=unique, window=window, expires=expires, delay_ms=delay_ms
        )
        return await self._execute(commands.put(data, priority, delay, ttr, options))

    async def use(self, tube: str) -> None:
        """Use a tube for puts, peeks and kicks."""
        await self._execute(commands.use(tube))

    async def using(self) -> str:
        """Return the used tube."""
        return await self._execute(commands.using())

    async def watch(self, tube: str) -> int:
        """Watch a tube and return the number of watched tubes."""
        return await self._execute(commands.watch(tube))

    async def ignore(self, tube: str) -> int:
        """Stop watching a tube and return the number of watched tubes."""
        return await self._execute(commands.ignore(tube))

    async def watching(self) -> list[str]:
        """Return the watched tubes."""
        return await self._execute(commands.watching())

    async def tubes(self) -> list[str]:
        """Return all tubes of the server."""
        return await self._execute(commands.tubes())

    async def reserve(self, timeout: int | None = None) -> greenstalk.Job[TBody]:
        """Reserve a job of the watched tubes, waiting at most `timeout` seconds.

        Raises greenstalk.TimedOutError and greenstalk.DeadlineSoonError.
        """
        return await self._execute(commands.reserve(timeout, self._decode_body))

    async def reserve_job(self, id: int) -> greenstalk.Job[TBody]:
        """Reserve a job by its id."""
        return await self._execute(commands.reserve_job(id, self._decode_body))

    async def delete(self, job: greenstalk.JobOrID[TBody]) -> None:
        """Delete a job."""
        await self._execute(commands.delete(commands.id_of(job)))

    async def release(
        self,
        job: greenstalk.Job[TBody],
        priority: int = DEFAULT_PRIORITY,
        delay: int = DEFAULT_DELAY,
    ) -> None:
        """Make a reserved job ready, or delay it for some seconds."""
        await self._execute(commands.release(job.id, priority, delay))

    async def bury(self, job: greenstalk.Job[TBody], priority: int = DEFAULT_PRIORITY) -> None:
        """Bury a reserved job."""
        await self._execute(commands.bury(job.id, priority))

    async def touch(self, job: greenstalk.Job[TBody]) -> None:
        """Restart the TTR of a reserved job."""
        await self._execute(commands.touch(job.id))

    async def peek(self, id: int) -> greenstalk.Job[TBody]:
        """Return a job by its id."""
        return await self._execute(commands.peek(id, self._decode_body))

    async def peek_ready(self) -> greenstalk.Job[TBody]:
        """Return the next ready job of the used tube."""
        return await self._execute(commands.peek_state("ready", self._decode_body))

    async def peek_delayed(self) -> greenstalk.Job[TBody]:
        """Return the next delayed job of the used tube."""
        return await self._execute(commands.peek_state("delayed", self._decode_body))

    async def peek_buried(self) -> greenstalk.Job[TBody]:
        """Return the first buried job of the used tube."""
        return await self._execute(commands.peek_state("buried", self._decode_body))

    async def kick(self, bound: int) -> int:
        """Kick at most `bound` jobs of the used tube and return their number."""
        return await self._execute(commands.kick(bound))

    async def kick_job(self, job: greenstalk.JobOrID[TBody]) -> None:
        """Make a delayed or buried job ready."""
        await self._execute(commands.kick_job(commands.id_of(job)))

    async def stats(self) -> greenstalk.Stats:
        """Return the statistics of the server."""
        return await self._execute(commands.stats())

    async def stats_job(self, job: greenstalk.JobOrID[TBody]) -> greenstalk.StatsJob:
        """Return the statistics of a job."""
        return await self._execute(commands.stats_job(commands.id_of(job)))

    async def stats_tube(self, tube: str) -> greenstalk.StatsTube:
        """Return the statistics of a tube."""
        return await self._execute(commands.stats_tube(tube))

    async def pause_tube(self, tube: str, delay: int) -> None:
        """Prevent reserves from a tube for some seconds."""
        await self._execute(commands.pause_tube(tube, delay))

    async def _choose_tubes(self, connection: AsyncConnection) -> None:
        if self._initial_use != DEFAULT_TUBE:
            await connection.execute(commands.use(self._initial_use))
        for tube in self._initial_watch:
            if tube != DEFAULT_TUBE:
                await connection.execute(commands.watch(tube))
        if DEFAULT_TUBE not in self._initial_watch:
            await connection.execute(commands.ignore(DEFAULT_TUBE))

    async def _execute(self, command: Command[Result]) -> Result:
        return await self._connected().execute(command)

    def _connected(self) -> AsyncConnection:
        if self._connection is None:
            raise ConnectionError("the client is not connected")
        return self._connection
