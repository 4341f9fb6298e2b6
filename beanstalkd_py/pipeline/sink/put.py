"""Putting the rows of one task: many at once, and again what is not answered if the server is lost.

Jobs that are sent and not answered may be there or not. They are put again, so each row is put at
least once, and the numbers say how often it may be more. Must not know Spark, nor who is told.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import Connection, refused
from beanstalkd_py.admin.statistics import parse
from beanstalkd_py.pipeline.sink.rows import Chunk, Terms, chunks_of, is_put
from beanstalkd_py.pipeline.sink.server import TubesServer
from beanstalkd_py.plural import counted

CHUNKS_AHEAD = 2
"""The server has one to work at while the replies to another are read."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0
_INSERTED = b"INSERTED "
_BURIED = b"BURIED "
_GOOD = (_INSERTED, b"USING ")
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Tally:
    """Puts that were sent and not refused, and those that are jobs. `size` is bytes of bodies."""

    sent: int = 0
    put: int = 0
    size: int = 0

    @property
    def unknown(self) -> int:
        """Sent and not answered: each may be a job or not."""
        return self.sent - self.put


Tell = Callable[[Tally], None]


class Putting:
    """The rows of one task on their way. `tally` says how far it came, `tell` is told it, too."""

    def __init__(
        self,
        server: TubesServer,
        terms: Terms,
        retries: int,
        tell: Tell = lambda _tally: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.tally = Tally()
        self._server = server
        self._terms = terms
        self._retries = retries
        self._tell = tell
        self._sleep = sleep
        self._unsent: deque[Chunk] = deque()
        self._sent: deque[Chunk] = deque()
        self._chunks: Iterator[Chunk] = iter(())

    def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Puts all rows.

        Raises PipelineUsageError for a row that cannot be put, RefusedError when the server takes
        one not, NoConnectionError when it is lost `retries` times with nothing put in between.
        """
        try:
            self._run(batches)
        except errors.BeanstalkdError as error:
            if self.tally.sent:
                stay = f"{counted(self.tally.put, 'row')} of this task put before, which stay"
                error.args = (f"{error}; {stay}", *error.args[1:])
            raise

    def _run(self, batches: Iterator[pa.RecordBatch]) -> None:
        losses = 0
        while True:
            before = self.tally.put
            try:
                with self._server.connect() as connection:
                    self._go_on(connection, batches)
                return
            except errors.NoConnectionError as error:
                self._take_back()
                losses = 1 if self.tally.put > before else losses + 1
                if losses > self._retries:
                    raise
                pause_s = min(FIRST_PAUSE_S * 2 ** (losses - 1), LONGEST_PAUSE_S)
                _LOG.warning("%s; trying again in %g s", error, pause_s)
            self._sleep(pause_s)

    def _go_on(self, connection: Connection, batches: Iterator[pa.RecordBatch]) -> None:
        stats = parse(connection.ask_one(b"stats").expect(b"OK").body)
        most_bytes = int(stats["max-job-size"])
        while True:
            self._pump(connection)
            # All is answered before what may take long: what is not would have to be put again.
            batch = _next(batches)
            if batch is None:
                return
            self._chunks = chunks_of(batch, self._terms, most_bytes)

    def _pump(self, connection: Connection) -> None:
        while True:
            while len(self._sent) < CHUNKS_AHEAD and (chunk := self._next_chunk()) is not None:
                self._send(connection, chunk)
            if not self._sent:
                return
            self._receive(connection, self._sent[0])
            self._sent.popleft()

    def _next_chunk(self) -> Chunk | None:
        return self._unsent.popleft() if self._unsent else next(self._chunks, None)

    def _send(self, connection: Connection, chunk: Chunk) -> None:
        self._sent.append(chunk)
        # Told before: of a task that is killed just now it is known what it may have put.
        self.tally.sent += chunk.puts - chunk.puts_done
        self._tell(self.tally)
        connection.send(b"".join(chunk.commands[chunk.done :]))

    def _receive(self, connection: Connection, chunk: Chunk) -> None:
        before = chunk.puts_done
        done = chunk.done
        refusal = b""
        lines = connection.lines(len(chunk.commands) - done)
        try:
            for line in lines:
                if not line.startswith(_GOOD):
                    refusal = line
                    break
                done += 1
        finally:
            chunk.done = done
            self.tally.put += chunk.puts_done - before
        if refusal:
            raise self._refused(connection, refusal, lines)
        self.tally.size += chunk.size
        self._tell(self.tally)

    def _take_back(self) -> None:
        """What the lost connection has not answered goes first on the next one."""
        while self._sent:
            chunk = self._sent.pop()
            chunk.leave_out_done()
            self._unsent.appendleft(chunk)

    def _refused(
        self, connection: Connection, refusal: bytes, lines: Iterator[bytes]
    ) -> errors.RefusedError:
        """The error for a reply that says no, once all other replies are read.

        `lines` has what is behind it in its chunk.

        A job that was put and buried, or put into a tube that was used before because the server
        did not take another, is removed: whoever puts the row again must not find two.
        """
        chunk = self._sent[0]
        command, tube = chunk.commands[chunk.done], chunk.tube_at(chunk.done)
        # If the connection is lost now, the refusal is still what ends the task.
        with contextlib.suppress(OSError):
            self._read_behind(connection, refusal, lines)
        self._tell(self.tally)
        size = len(command.partition(b"\r\n")[2]) - 2
        subject = (
            f"put of {counted(size, 'byte')} into tube {tube}" if is_put(command) else f"use {tube}"
        )
        return refused((refusal.split() or [b""])[0].decode(errors="replace"), subject)

    def _read_behind(self, connection: Connection, refusal: bytes, lines: Iterator[bytes]) -> None:
        chunk = self._sent[0]
        astray = not is_put(chunk.commands[chunk.done])
        strays = _stray(refusal, in_wrong_tube=False)
        self.tally.sent -= not astray and not strays
        chunk.done += 1
        for chunk in self._sent:
            rest = chunk.commands[chunk.done :]
            if chunk is not self._sent[0]:
                lines = connection.lines(len(rest))
            for command, line in zip(rest, lines, strict=True):
                if is_put(command):
                    found = _stray(line, astray)
                    strays += found
                    is_job = line.startswith(_INSERTED)
                    self.tally.put += is_job and not found
                    self.tally.sent -= not is_job and not found
                else:
                    astray = not line.startswith(_GOOD)
        connection.ask([b"delete " + job for job in strays])
        self.tally.sent -= len(strays)


def _stray(line: bytes, in_wrong_tube: bool) -> list[bytes]:
    """The id of a job that a reply to a put tells of and that should not be, in a list."""
    is_one = line.startswith(_BURIED) or (in_wrong_tube and line.startswith(_INSERTED))
    return [line.split()[1]] if is_one else []


def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except (OSError, AssertionError) as error:
        # On a connection these would be taken for its loss, and tried again.
        raise RuntimeError(f"the rows of this task cannot be read: {error}") from error
