"""Puts the rows of one task, pipelined; puts without a reply are repeated on a new connection.

A put without a reply may have made a job or not, so each row is put at least once. Imports nothing
of Spark.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator

import pyarrow as pa

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import Connection, refusal_error
from beanstalkd_py.admin.statistics import parse
from beanstalkd_py.pipeline.sink.rows import Chunk, PutDefaults, chunks_of, is_put
from beanstalkd_py.pipeline.sink.server import TubeServer
from beanstalkd_py.plural import counted

CHUNKS_AHEAD = 2
"""The server works at one chunk while the replies to another are read."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0
_INSERTED = b"INSERTED "
_BURIED = b"BURIED "
_GOOD = (_INSERTED, b"USING ")
_LOG = logging.getLogger(__name__)


class TaskPutter:
    """Puts the rows of one task. `rows` were acknowledged, with `size` bytes of bodies."""

    def __init__(
        self,
        server: TubeServer,
        defaults: PutDefaults,
        retries: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rows = 0
        self.size = 0
        self._server = server
        self._defaults = defaults
        self._retries = retries
        self._sleep = sleep
        self._unsent: deque[Chunk] = deque()
        self._sent: deque[Chunk] = deque()
        self._chunks: Iterator[Chunk] = iter(())

    def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Put all rows.

        Raises PipelineUsageError for an invalid row, RefusedError for a row that the server
        rejects, NoConnectionError after more than `retries` lost connections without a put.
        """
        try:
            self._run(batches)
        except errors.BeanstalkdError as error:
            if self.rows:
                put_before = f"{counted(self.rows, 'row')} of this task put before, which stay"
                error.args = (f"{error}; {put_before}", *error.args[1:])
            raise

    def _run(self, batches: Iterator[pa.RecordBatch]) -> None:
        losses = 0
        while True:
            before = self.rows
            try:
                with self._server.connect() as connection:
                    self._put_batches(connection, batches)
                return
            except errors.NoConnectionError as error:
                self._requeue()
                losses = 1 if self.rows > before else losses + 1
                if losses > self._retries:
                    raise
                pause_s = min(FIRST_PAUSE_S * 2 ** (losses - 1), LONGEST_PAUSE_S)
                _LOG.warning("%s; trying again in %g s", error, pause_s)
            self._sleep(pause_s)

    def _put_batches(self, connection: Connection, batches: Iterator[pa.RecordBatch]) -> None:
        stats = parse(connection.execute(b"stats").expect(b"OK").body)
        most_bytes = int(stats["max-job-size"])
        while True:
            self._pump(connection)
            # All replies are read first, because the next batch may take long.
            batch = _next(batches)
            if batch is None:
                return
            self._chunks = chunks_of(batch, self._defaults, most_bytes)

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
        connection.send(b"".join(chunk.commands[chunk.done :]))

    def _receive(self, connection: Connection, chunk: Chunk) -> None:
        puts_before, done, refusal = chunk.puts_done, chunk.done, b""
        lines = connection.read_replies(len(chunk.commands) - done)
        try:
            for line in lines:
                if not line.startswith(_GOOD):
                    refusal = line
                    break
                done += 1
        finally:
            chunk.done = done
            self.rows += chunk.puts_done - puts_before
        if refusal:
            raise self._refused(connection, refusal, lines)
        self.size += chunk.size

    def _requeue(self) -> None:
        while self._sent:
            chunk = self._sent.pop()
            chunk.drop_done()
            self._unsent.appendleft(chunk)

    def _refused(
        self, connection: Connection, refusal: bytes, lines: Iterator[bytes]
    ) -> errors.RefusedError:
        """Read the other replies, `lines` first, and return the error for a rejection.

        Deletes a job that was buried because the server is out of memory, or put into the previous
        tube because the server rejected `use`: the row will be put again.
        """
        chunk = self._sent[0]
        command, tube = chunk.commands[chunk.done], chunk.tube_at(chunk.done)
        # The rejection ends the task even if the connection is lost now.
        with contextlib.suppress(OSError):
            self._read_behind(connection, refusal, lines)
        size = len(command.partition(b"\r\n")[2]) - 2
        subject = (
            f"put of {counted(size, 'byte')} into tube {tube}" if is_put(command) else f"use {tube}"
        )
        return refusal_error((refusal.split() or [b""])[0].decode(errors="replace"), subject)

    def _read_behind(self, connection: Connection, refusal: bytes, lines: Iterator[bytes]) -> None:
        chunk = self._sent[0]
        in_wrong_tube = not is_put(chunk.commands[chunk.done])
        misplaced = _misplaced(refusal, in_wrong_tube=False)
        chunk.done += 1
        for chunk in self._sent:
            rest = chunk.commands[chunk.done :]
            if chunk is not self._sent[0]:
                lines = connection.read_replies(len(rest))
            for command, line in zip(rest, lines, strict=True):
                if is_put(command):
                    ids = _misplaced(line, in_wrong_tube)
                    misplaced += ids
                    self.rows += line.startswith(_INSERTED) and not ids
                else:
                    in_wrong_tube = not line.startswith(_GOOD)
        connection.execute_all([b"delete " + job for job in misplaced])


def _misplaced(line: bytes, in_wrong_tube: bool) -> list[bytes]:
    """Return a list with the id of the misplaced job that a reply to a put names, or nothing."""
    is_one = line.startswith(_BURIED) or (in_wrong_tube and line.startswith(_INSERTED))
    return [line.split()[1]] if is_one else []


def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except (OSError, AssertionError) as error:
        # Otherwise these errors look like a lost connection, which is retried.
        raise RuntimeError(f"cannot read the rows of this task: {error}") from error
