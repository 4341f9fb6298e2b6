"""The synchronous client: greenstalk's, and the extensions of the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self, cast, overload

import greenstalk
from greenstalk import DEFAULT_DELAY, DEFAULT_PRIORITY, DEFAULT_TTR, DEFAULT_TUBE, TBody

from beanstalkd_py import errors
from beanstalkd_py.client import commands
from beanstalkd_py.client.commands import Command
from beanstalkd_py.client.records import BatchJob, JobEnd, ListedJob, ListedState
from beanstalkd_py.client.replies import LINE, DecodeBody, Decoder, Result, body_decoder


class Client(greenstalk.Client[TBody]):
    """A greenstalk client with the extensions of beanstalkd_py.

    Takes greenstalk's arguments: an address (host and port, the path of a Unix socket, or a
    connected socket), the encoding of bodies or None for bytes, the tube to use and the tubes to
    watch. Negative replies raise greenstalk's exceptions. A lost connection raises OSError, of
    which ConnectionError is one. An extension that the server lacks raises MissingFeatureError and
    sends nothing.
    """

    @overload
    def __init__(
        self: Client[bytes],
        address: greenstalk.ConnectionTarget,
        encoding: None,
        use: str = DEFAULT_TUBE,
        watch: str | Iterable[str] = DEFAULT_TUBE,
    ) -> None: ...

    @overload
    def __init__(
        self: Client[str],
        address: greenstalk.ConnectionTarget,
        encoding: str = "utf-8",
        use: str = DEFAULT_TUBE,
        watch: str | Iterable[str] = DEFAULT_TUBE,
    ) -> None: ...

    def __init__(
        self,
        address: greenstalk.ConnectionTarget,
        encoding: str | None = "utf-8",
        use: str = DEFAULT_TUBE,
        watch: str | Iterable[str] = DEFAULT_TUBE,
    ) -> None:
        self._known_features: frozenset[str] | None = None
        self._decode_body: DecodeBody[TBody] = body_decoder(encoding)
        # greenstalk's overloads accept no union, and infer no type for a subclass.
        super().__init__(address, cast(str, encoding), use, watch)  # type: ignore[misc]

    def __enter__(self) -> Self:
        return self

    def features(self) -> frozenset[str]:
        """Return the names of the server's extensions; C beanstalkd has none.

        Queries the server once per connection.
        """
        if self._known_features is None:
            self._known_features = self._execute(commands.features())
        return self._known_features

    def truncate(self, tube: str) -> int:
        """Delete the ready, delayed and buried jobs of a tube, and return their number."""
        return self._execute(commands.truncate(tube))

    def move(
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
        return self._execute(commands.move(commands.id_of(job), tube, priority, delay))

    def list_jobs(self, tube: str, state: ListedState = "any") -> Iterator[ListedJob]:
        """Yield the jobs of a tube in the order of their ids, page by page as they are needed."""
        after = 0
        while True:
            page = self._execute(commands.list_jobs(tube, state, after))
            yield from page.jobs
            after = page.next_after
            if after == 0:
                return

    def wait(self, seconds: int, job: greenstalk.JobOrID[TBody]) -> JobEnd:
        """Wait at most `seconds` until a job has ended or is buried.

        Raises greenstalk.NotFoundError if the job does not exist, for example because it has ended.
        Raises greenstalk.TimedOutError, and greenstalk.DeadlineSoonError like a reserve.
        """
        return self._execute(commands.wait(seconds, commands.id_of(job)))

    def reserve_batch(self, max: int, timeout: int) -> list[BatchJob[TBody]]:
        """Reserve up to `max` jobs of the watched tubes, at most 1,000.

        Waits at most `timeout` seconds for the first, and takes what is ready then. The server may
        return fewer. Raises greenstalk.TimedOutError and greenstalk.DeadlineSoonError.
        """
        return self._execute(commands.reserve_batch(max, timeout, self._decode_body))

    def put(
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

        Unlike greenstalk, raises ValueError if a number is outside 0 to 2^32 - 1.
        """
        data = commands.encoded(body, self.encoding)
        options = commands.PutOptions(
            unique=unique, window=window, expires=expires, delay_ms=delay_ms
        )
        return self._execute(commands.put(data, priority, delay, ttr, options))

    def stats_job(self, job: greenstalk.JobOrID[TBody]) -> greenstalk.StatsJob:
        """Return the statistics of a job; its tube is always a string, unlike in greenstalk."""
        return self._execute(commands.stats_job(commands.id_of(job)))

    def stats_tube(self, tube: str) -> greenstalk.StatsTube:
        """Return the statistics of a tube; its name is always a string, unlike in greenstalk."""
        return self._execute(commands.stats_tube(tube))

    def _execute(self, command: Command[Result]) -> Result:
        if command.feature is not None and command.feature not in self.features():
            raise errors.MissingFeatureError(command.feature)
        try:
            self._sock.sendall(command.data)
            return self._decode(command.decoder())
        except greenstalk.BeanstalkdError as error:
            if command.has_body and isinstance(error, greenstalk.BadFormatError):
                self.close()
            raise
        except BaseException:
            # Otherwise the next command would read the rest of this reply.
            self.close()
            raise

    def _decode(self, decoder: Decoder[Result]) -> Result:
        try:
            request = next(decoder)
            while True:
                is_line = request == LINE
                data = self._reader.readline() if is_line else self._reader.read(request)
                request = decoder.send(data)
        except StopIteration as end:
            result: Result = end.value
            return result
