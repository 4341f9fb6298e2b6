"""Columns of a table, and batches of rows that C fills in memory that Arrow takes over.

This module knows the memory layout of each kind of column. binlogs/table.py and stores/tables.py
declare the tables.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from beanstalkd_py.pipeline._columns import ffi, lib

ALL = 2**63 - 1
"""An offset after every entry."""
ROWS_AT_ONCE = 1 << 13
"""Few enough that a batch is still in the CPU caches when it goes to Spark."""
TEXT_AT_ONCE = 1 << 22
"""Bytes of a column's text in a batch, unless a single value is longer."""
LEAST_TEXT = 1 << 12
WORD = 16
"""Bytes that C copies for a word (csrc/columns/put.h)."""
END, MORE, FAULT, NO_SPACE = lib.BC_END, lib.BC_MORE, lib.BC_FAULT, lib.BC_NO_SPACE
"""Results of a C function that fills a batch; NO_SPACE: the next row does not fit."""

STRING = pa.string()
BINARY = pa.binary()
LONG = pa.int64()
INT = pa.int32()
FLAG = pa.bool_()
TIME = pa.timestamp("us", tz="UTC")
WORDS = pa.list_(STRING)
PAIRS = pa.map_(STRING, STRING)


class Kind(enum.Enum):
    """Memory layout of a column. C does not fill CONSTANT and FAULT columns."""

    FIXED = enum.auto()
    WORD = enum.auto()  # text of few values, at most 16 bytes each
    TEXT = enum.auto()
    LIST = enum.auto()  # of the text in `parts`
    CONSTANT = enum.auto()  # one value for each file
    FAULT = enum.auto()  # the reason why an entry is unreadable


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `number` is that of C, `parts` are the numbers of the values of a list.

    A read without named columns returns those that are `is_default`.
    """

    name: str
    type: pa.DataType
    kind: Kind
    number: int = -1
    nullable: bool = False
    parts: tuple[int, ...] = ()
    is_default: bool = True


def text(name: str, number: int, data_type: pa.DataType = STRING, **more: Any) -> Column:
    return Column(name, data_type, Kind.TEXT, number, **more)


def word(name: str, number: int, **more: Any) -> Column:
    return Column(name, STRING, Kind.WORD, number, **more)


def fixed(name: str, number: int, data_type: pa.DataType, **more: Any) -> Column:
    return Column(name, data_type, Kind.FIXED, number, **more)


def constant(name: str, data_type: pa.DataType) -> Column:
    return Column(name, data_type, Kind.CONSTANT)


@dataclass(frozen=True, slots=True)
class Table:
    """All columns of a table, and those that a read returns. Every Arrow field is nullable."""

    all: tuple[Column, ...]
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    @property
    def fault(self) -> Column | None:
        return next((each for each in self.columns if each.kind is Kind.FAULT), None)


class Constants:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._arrays: dict[str, pa.Array] = {}

    def array(self, column: Column, rows: int) -> pa.Array:
        array = self._arrays.get(column.name)
        if array is None or len(array) < rows:
            array = pa.repeat(pa.scalar(self._values[column.name], column.type), rows)
            self._arrays[column.name] = array
        return array.slice(0, rows)


class Batch:
    """Memory for one batch of rows; `cdata` is its C structure."""

    def __init__(self, table: Table, rows: int, longest_text: int) -> None:
        """Allocate memory; no text is longer than `longest_text`, the bytes left to read."""
        self._table = table
        self._longest_text = longest_text
        self._buffers: dict[tuple[int, str], pa.Buffer] = {}
        self.cdata = ffi.new("bc_batch *")
        self.cdata.capacity = rows
        for column in table.columns:
            if column.number >= 0:
                self._allocate(column, rows)

    @property
    def rows(self) -> int:
        return int(self.cdata.rows)

    def _buffer(self, number: int, part: str, size: int, zeros: bool = False) -> Any:
        buffer = pa.allocate_buffer(size)
        self._buffers[number, part] = buffer
        if zeros:
            memoryview(buffer).cast("B")[:] = bytes(size)
        return ffi.cast("char *", buffer.address)

    def _allocate(self, column: Column, rows: int) -> None:
        place = self.cdata.columns[column.number]
        bits = (rows + 7) // 8
        if column.nullable:
            place.valid = ffi.cast("uint8_t *", self._buffer(column.number, "valid", bits, True))
        if column.kind is Kind.FIXED:
            flag = column.type == FLAG
            size = bits if flag else rows * (column.type.bit_width // 8)
            place.values = self._buffer(column.number, "values", size, flag)
        elif column.kind is Kind.WORD:
            self._text(column.number, rows, rows * WORD)
        elif column.kind is Kind.TEXT:
            self._text(column.number, rows, max(LEAST_TEXT, min(self._longest_text, TEXT_AT_ONCE)))
        elif column.kind is Kind.LIST:
            self._ends(column.number, rows)
            self._list(column, max(LEAST_TEXT, min(self._longest_text // 4, 4 * ROWS_AT_ONCE)))

    def _list(self, column: Column, count: int) -> None:
        self.cdata.columns[column.number].values = self.cdata.columns[column.number].ends
        self.cdata.columns[column.number].capacity = count
        for part in column.parts:
            self._text(part, count, max(LEAST_TEXT, min(self._longest_text, TEXT_AT_ONCE)))

    def _ends(self, number: int, rows: int) -> None:
        ends = ffi.cast("int32_t *", self._buffer(number, "ends", 4 * (rows + 1)))
        ends[0] = 0
        self.cdata.columns[number].ends = ends

    def _text(self, number: int, rows: int, size: int) -> None:
        self._ends(number, rows)
        self.cdata.columns[number].values = self._buffer(number, "values", size)
        self.cdata.columns[number].capacity = size

    def enlarge(self) -> None:
        """Enlarge the full column for the one row that did not fit into an empty batch."""
        number, needed = int(self.cdata.full), int(self.cdata.needed)
        for column in self._table.columns:
            if column.number == number and column.kind is Kind.LIST:
                self._list(column, needed)
                return
        place = self.cdata.columns[number]
        place.values = self._buffer(number, "values", needed)
        place.capacity = needed

    def arrow(self, constants: Constants) -> pa.RecordBatch:
        """Return the rows. Arrow owns the memory then: the batch cannot be used again."""
        arrays = [self._array(column, constants) for column in self._table.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._table.schema)

    def _array(self, column: Column, constants: Constants) -> pa.Array:
        rows = self.rows
        if column.kind is Kind.FAULT:
            return pa.nulls(rows, column.type)
        if column.kind is Kind.CONSTANT:
            return constants.array(column, rows)
        number = column.number
        valid = self._buffers.get((number, "valid"))
        if column.kind is Kind.LIST:
            count = int(self.cdata.columns[number].used)
            parts = [self._text_array(part, count, STRING, None) for part in column.parts]
            if len(parts) > 1:
                fields = [column.type.key_field, column.type.item_field]
                parts = [pa.StructArray.from_arrays(parts, fields=fields)]
            buffers = [valid, self._buffers[number, "ends"]]
            return pa.Array.from_buffers(column.type, rows, buffers, children=parts)
        if column.kind is Kind.FIXED:
            buffers = [valid, self._buffers[number, "values"]]
            return pa.Array.from_buffers(column.type, rows, buffers)
        return self._text_array(number, rows, column.type, valid)

    def _text_array(
        self, number: int, rows: int, data_type: pa.DataType, valid: pa.Buffer | None
    ) -> pa.Array:
        ends, values = self._buffers[number, "ends"], self._buffers[number, "values"]
        return pa.Array.from_buffers(data_type, rows, [valid, ends, values])


def batches(
    table: Table,
    constants: Mapping[str, Any],
    least_row: int,
    left: Callable[[], int],
    read: Callable[[Any], int],
    skip_fault: Callable[[], Iterator[pa.RecordBatch]] = lambda: iter(()),
) -> Iterator[pa.RecordBatch]:
    """Yield batches that the C function `read` fills, until it returns END.

    `left` returns the bytes left to read, `skip_fault` the rows about a fault; `least_row` is the
    bytes of the smallest row.
    """
    shared = Constants(constants)
    while True:
        unread = max(left(), 1)
        batch = Batch(table, min(ROWS_AT_ONCE, unread // least_row + 1), unread)
        while (result := read(batch.cdata)) == NO_SPACE:
            batch.enlarge()
        if result < 0:
            raise MemoryError
        if batch.rows:
            yield batch.arrow(shared)
        if result == FAULT:
            yield from skip_fault()
        elif result != MORE:
            return
