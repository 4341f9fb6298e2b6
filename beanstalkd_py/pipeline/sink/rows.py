"""Rows as commands that put them, checked before any of their batch is sent.

Must not know connections, nor Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beanstalkd_py.admin.job_record import (
    DEFAULT_DELAY_S,
    DEFAULT_PRI,
    DEFAULT_TTR_S,
    UINT32_MAX,
    put_command,
)
from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sink.server import check_tube
from beanstalkd_py.pipeline.sources.options import Options

BODY = "body"
TUBE = "tube"
NUMBERS = ("priority", "delay", "ttr")
COLUMNS = (BODY, TUBE, *NUMBERS)
OPTIONS = (TUBE, *NUMBERS)

MOST_REPLY_BYTES = 1 << 14
"""Replies to one chunk fit into the buffers of any connection, so that the server never waits for
us to read, and goes on reading itself: writing comes to its end whatever the server says."""
MOST_BYTES = 1 << 20
"""A chunk ends when it has so many."""
ROWS_AT_ONCE = 1024
_PUT_REPLY_BYTES = len(b"INSERTED 18446744073709551615\r\n")
_PUT = b"put "
_USE = b"use "


@dataclass(frozen=True, slots=True)
class Terms:
    """What rows get that have no such column, or null in it. `delay` and `ttr` are seconds."""

    tube: str = "default"
    priority: int = DEFAULT_PRI
    delay: int = DEFAULT_DELAY_S
    ttr: int = DEFAULT_TTR_S

    @classmethod
    def of(cls, options: Options) -> Terms:
        """As the options have it. Raises PipelineUsageError."""
        usual = cls()
        numbers = {name: options.whole(name, getattr(usual, name), UINT32_MAX) for name in NUMBERS}
        tube = options.text(TUBE)
        return cls(tube=usual.tube if tube is None else check_tube(tube, TUBE), **numbers)


@dataclass(slots=True)
class Chunk:
    """Commands for one write, the first of which uses a tube. `done` of them are answered.

    `puts` and `size`, bytes of bodies, are of all of them.
    """

    commands: list[bytes] = field(default_factory=list)
    puts: int = 0
    size: int = 0
    done: int = 0

    def use(self, tube: bytes) -> None:
        """What is added from now on goes into this tube."""
        self.commands.append(_USE + tube + b"\r\n")

    def put(self, command: bytes, size: int) -> None:
        """Adds a put."""
        self.commands.append(command)
        self.puts += 1
        self.size += size

    @property
    def puts_done(self) -> int:
        """How many of the answered commands are puts."""
        if self.done == len(self.commands):
            return self.puts
        return sum(map(is_put, self.commands[: self.done]))

    def leave_out_done(self) -> None:
        """For another connection: only what is not answered, with the tube to use before it."""
        if self.done:
            use = _USE + self.tube_at(self.done - 1).encode() + b"\r\n"
            self.commands = [use, *self.commands[self.done :]]
            self.puts = sum(map(is_put, self.commands))
            self.done = 0

    def tube_at(self, number: int) -> str:
        """The tube of a command."""
        before = self.commands[number::-1]
        return next(one for one in before if not is_put(one))[len(_USE) : -2].decode()


def is_put(command: bytes) -> bool:
    """Whether it is one; else it uses a tube."""
    return command.startswith(_PUT)


def chunks_of(batch: pa.RecordBatch, terms: Terms, most_bytes: int) -> Iterator[Chunk]:
    """The rows by tube, those of a tube in their order.

    `most_bytes` is the largest body that the server takes. Raises PipelineUsageError for a row that
    cannot be put, before the first chunk comes.
    """
    return _chunks(_checked(batch, terms, most_bytes))


def _chunks(rows: pa.RecordBatch) -> Iterator[Chunk]:
    chunk, reply_bytes, size = Chunk(), 0, 0
    used: bytes | None = None
    for tube, body, priority, delay_s, ttr_s in _values(rows):
        if reply_bytes > MOST_REPLY_BYTES or size > MOST_BYTES:
            yield chunk
            chunk, reply_bytes, size, used = Chunk(), 0, 0, None
        if tube != used:
            chunk.use(tube)
            used = tube
            reply_bytes += len(b"USING \r\n") + len(tube)
        chunk.put(put_command(body, priority, delay_s, ttr_s) + b"\r\n", len(body))
        reply_bytes += _PUT_REPLY_BYTES
        size += len(body)
    if chunk.commands:
        yield chunk


def _values(rows: pa.RecordBatch) -> Iterator[tuple[bytes, bytes, int, int, int]]:
    tubes = rows.column(TUBE)
    order = pc.sort_indices(tubes) if len(pc.unique(tubes)) > 1 else None
    for start in range(0, rows.num_rows, ROWS_AT_ONCE):
        if order is None:
            part = rows.slice(start, ROWS_AT_ONCE)
        else:
            part = rows.take(order.slice(start, ROWS_AT_ONCE))
        names = (TUBE, BODY, *NUMBERS)
        yield from zip(*(part.column(name).to_pylist() for name in names), strict=True)


def _checked(batch: pa.RecordBatch, terms: Terms, most_bytes: int) -> pa.RecordBatch:
    body = _column(batch, BODY).cast(pa.large_binary())
    if body.null_count:
        raise PipelineUsageError("column body: a row has null; leave such rows out")
    tube = _filled(batch, TUBE, terms.tube, pa.large_string())
    for name in pc.unique(tube).to_pylist():
        check_tube(name, f"column {TUBE}")
    sizes = pc.binary_length(body)
    if batch.num_rows and (largest := pc.max(sizes).as_py()) > most_bytes:
        at = pc.index(sizes, largest).as_py()
        raise PipelineUsageError(
            f"a row for tube {tube[at]} has a body of {largest} bytes, and the server takes"
            f" {most_bytes}; leave it out, or raise the server's max-job-size (-z)"
        )
    numbers = [_number(batch, name, getattr(terms, name)) for name in NUMBERS]
    return pa.RecordBatch.from_arrays(
        [body, tube.cast(pa.large_binary()), *numbers], names=list(COLUMNS)
    )


def _number(batch: pa.RecordBatch, name: str, usual: int) -> pa.Array:
    column = _filled(batch, name, usual, pa.int64())
    if len(column):
        lowest, highest = pc.min_max(column).as_py().values()
        if lowest < 0 or highest > UINT32_MAX:
            wrong = lowest if lowest < 0 else highest
            raise PipelineUsageError(
                f"column {name}: {wrong} is no whole number from 0 to {UINT32_MAX}"
            )
    return column


def _filled(batch: pa.RecordBatch, name: str, usual: Any, data_type: pa.DataType) -> pa.Array:
    if name not in batch.schema.names:
        return pa.repeat(pa.scalar(usual, data_type), batch.num_rows)
    return _column(batch, name).cast(data_type).fill_null(usual)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(batch.schema.get_field_index(name))
