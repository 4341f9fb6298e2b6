"""Turns rows into put commands; a batch is checked before any of it is sent.

Imports nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beanstalkd_py.admin.job_record import DEFAULT_DELAY_S, DEFAULT_PRI, DEFAULT_TTR_S, put_command
from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sink.server import check_tube
from beanstalkd_py.pipeline.sources.options import Options
from beanstalkd_py.quantities import UINT32_MAX

BODY = "body"
TUBE = "tube"
NUMBERS = ("priority", "delay", "ttr")
COLUMNS = (BODY, TUBE, *NUMBERS)
OPTIONS = (TUBE, *NUMBERS)

MOST_REPLY_BYTES = 1 << 14
"""The replies to one chunk fit into the socket buffers, so that neither side blocks in a write."""
MOST_BYTES = 1 << 20
"""A chunk ends once it has this size."""
ROWS_AT_ONCE = 1024
_PUT_REPLY_BYTES = len(b"INSERTED 18446744073709551615\r\n")
_PUT = b"put "
_USE = b"use "


@dataclass(frozen=True, slots=True)
class PutDefaults:
    """Values for missing columns and nulls. `delay` and `ttr` are seconds."""

    tube: str = "default"
    priority: int = DEFAULT_PRI
    delay: int = DEFAULT_DELAY_S
    ttr: int = DEFAULT_TTR_S

    @classmethod
    def of(cls, options: Options) -> PutDefaults:
        own = cls()
        numbers = {name: options.whole(name, getattr(own, name), UINT32_MAX) for name in NUMBERS}
        tube = options.text(TUBE)
        return cls(tube=own.tube if tube is None else check_tube(tube, TUBE), **numbers)


@dataclass(slots=True)
class Chunk:
    """Commands of one write; the first is a `use`, and `done` of them have a reply.

    `puts` is the number of puts, `size` the bytes of their bodies.
    """

    commands: list[bytes] = field(default_factory=list)
    puts: int = 0
    size: int = 0
    done: int = 0

    def use(self, tube: bytes) -> None:
        self.commands.append(_USE + tube + b"\r\n")

    def put(self, command: bytes, size: int) -> None:
        self.commands.append(command)
        self.puts += 1
        self.size += size

    @property
    def puts_done(self) -> int:
        if self.done == len(self.commands):
            return self.puts
        return sum(map(is_put, self.commands[: self.done]))

    def drop_done(self) -> None:
        """Keep only commands without a reply, after the `use` of their tube."""
        if self.done:
            use = _USE + self.tube_at(self.done - 1).encode() + b"\r\n"
            self.commands = [use, *self.commands[self.done :]]
            self.puts = sum(map(is_put, self.commands))
            self.done = 0

    def tube_at(self, number: int) -> str:
        before = self.commands[number::-1]
        return next(command for command in before if not is_put(command))[len(_USE) : -2].decode()


def is_put(command: bytes) -> bool:
    return command.startswith(_PUT)


def chunks_of(batch: pa.RecordBatch, defaults: PutDefaults, most_bytes: int) -> Iterator[Chunk]:
    """Return the chunks of a batch by tube, in order within a tube.

    `most_bytes` is the server's limit for bodies. Raises PipelineUsageError for an invalid row
    before the first chunk.
    """
    return _chunks(_checked(batch, defaults, most_bytes))


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


def _checked(batch: pa.RecordBatch, defaults: PutDefaults, most_bytes: int) -> pa.RecordBatch:
    body = _column(batch, BODY).cast(pa.large_binary())
    if body.null_count:
        raise PipelineUsageError("column body is null in a row; leave such rows out")
    tube = _filled(batch, TUBE, defaults.tube, pa.large_string())
    for name in pc.unique(tube).to_pylist():
        check_tube(name, f"column {TUBE}")
    sizes = pc.binary_length(body)
    if batch.num_rows and (largest := pc.max(sizes).as_py()) > most_bytes:
        at = pc.index(sizes, largest).as_py()
        raise PipelineUsageError(
            f"a row for tube {tube[at]} has a body of {largest} bytes, and the server takes"
            f" {most_bytes}; leave it out, or raise the server's max-job-size (-z)"
        )
    numbers = [_number(batch, name, getattr(defaults, name)) for name in NUMBERS]
    return pa.RecordBatch.from_arrays(
        [body, tube.cast(pa.large_binary()), *numbers], names=list(COLUMNS)
    )


def _number(batch: pa.RecordBatch, name: str, default: int) -> pa.Array:
    column = _filled(batch, name, default, pa.int64())
    if len(column):
        lowest, highest = pc.min_max(column).as_py().values()
        if lowest < 0 or highest > UINT32_MAX:
            wrong = lowest if lowest < 0 else highest
            raise PipelineUsageError(
                f"column {name}: {wrong} is not a whole number from 0 to {UINT32_MAX}"
            )
    return column


def _filled(batch: pa.RecordBatch, name: str, default: Any, data_type: pa.DataType) -> pa.Array:
    if name not in batch.schema.names:
        return pa.repeat(pa.scalar(default, data_type), batch.num_rows)
    return _column(batch, name).cast(data_type).fill_null(default)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(batch.schema.get_field_index(name))
