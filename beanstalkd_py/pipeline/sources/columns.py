"""Columns of a table, and batches of them that C fills: memory that becomes Arrow's without a copy.

Knows how each kind of column lies in memory. What the columns mean is said where tables are
declared (binlog_table.py, store_tables.py).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from beanstalkd_py.pipeline._columns import ffi, lib

ROWS_AT_ONCE = 1 << 13
"""Few enough that memory is still in the caches when it goes to Spark."""
TEXT_AT_ONCE = 1 << 22
"""Bytes of a column's text in a batch, unless a single value is longer."""
LEAST_TEXT = 1 << 12
WORD = 16
"""Bytes that C copies for a word (csrc/columns/put.h)."""

STRING = pa.string()
BINARY = pa.binary()
LONG = pa.int64()
INT = pa.int32()
FLAG = pa.bool_()
TIME = pa.timestamp("us", tz="UTC")
WORDS = pa.list_(STRING)
PAIRS = pa.map_(STRING, STRING)


class Kind(enum.Enum):
    """How a column lies in memory."""

    FIXED = enum.auto()
    WORD = enum.auto()  # text of few values, at most 16 bytes each
    TEXT = enum.auto()
    LIST = enum.auto()  # of the text in `parts`
    CONSTANT = enum.auto()  # not C's: the same in all rows of a file
    FAULT = enum.auto()  # not C's: why a place could not be read


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. `number` is C's; `parts` are those of what is in a list."""

    name: str
    type: pa.DataType
    kind: Kind
    number: int = -1
    nullable: bool = False
    parts: tuple[int, ...] = ()
    usual: bool = True
    """Whether it is there unless columns are named."""


def text(name: str, number: int, data_type: pa.DataType = STRING, **more: Any) -> Column:
    """A column of strings, or of bytes."""
    return Column(name, data_type, Kind.TEXT, number, **more)


def word(name: str, number: int) -> Column:
    """A column of one of few words."""
    return Column(name, STRING, Kind.WORD, number)


def fixed(name: str, number: int, data_type: pa.DataType, **more: Any) -> Column:
    """A column of numbers."""
    return Column(name, data_type, Kind.FIXED, number, **more)


def constant(name: str, data_type: pa.DataType) -> Column:
    """A column that has one value for each file."""
    return Column(name, data_type, Kind.CONSTANT)


@dataclass(frozen=True, slots=True)
class Table:
    """The columns that there are, and those that are asked for. Every Arrow field is nullable."""

    all: tuple[Column, ...]
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """Of what comes out."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    @property
    def fault(self) -> Column | None:
        """The column that says what is wrong, if it is asked for."""
        return next((each for each in self.columns if each.kind is Kind.FAULT), None)


class Constants:
    """What is the same in all rows of a file, as columns that its batches share."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._arrays: dict[str, pa.Array] = {}

    def array(self, column: Column, rows: int) -> pa.Array:
        """So many times its value."""
        held = self._arrays.get(column.name)
        if held is None or len(held) < rows:
            held = pa.repeat(pa.scalar(self._values[column.name], column.type), rows)
            self._arrays[column.name] = held
        return held.slice(0, rows)


class Batch:
    """Memory for one batch of rows. `cdata` is C's view of it."""

    def __init__(self, table: Table, rows: int, room: int) -> None:
        """`room` is the bytes that are left to read: no text can become longer than that."""
        self._table = table
        self._room = room
        self._buffers: dict[tuple[int, str], pa.Buffer] = {}
        self.cdata = ffi.new("bc_batch *")
        self.cdata.capacity = rows
        for column in table.columns:
            if column.number >= 0:
                self._allocate(column, rows)

    @property
    def rows(self) -> int:
        """How many there are in it."""
        return int(self.cdata.rows)

    def _give(self, number: int, part: str, size: int, zeros: bool = False) -> Any:
        buffer = pa.allocate_buffer(size)
        self._buffers[number, part] = buffer
        address = ffi.cast("char *", buffer.address)
        if zeros:
            _zero(buffer)
        return address

    def _allocate(self, column: Column, rows: int) -> None:
        place = self.cdata.columns[column.number]
        bits = (rows + 7) // 8
        if column.nullable:
            place.valid = ffi.cast("uint8_t *", self._give(column.number, "valid", bits, True))
        if column.kind is Kind.FIXED:
            flag = column.type == FLAG
            size = bits if flag else rows * (column.type.bit_width // 8)
            place.values = self._give(column.number, "values", size, flag)
        elif column.kind is Kind.WORD:
            self._text(column.number, rows, rows * WORD)
        elif column.kind is Kind.TEXT:
            self._text(column.number, rows, max(LEAST_TEXT, min(self._room, TEXT_AT_ONCE)))
        elif column.kind is Kind.LIST:
            self._ends(column.number, rows)
            self._list(column, max(LEAST_TEXT, min(self._room // 4, 4 * ROWS_AT_ONCE)))

    def _list(self, column: Column, count: int) -> None:
        self.cdata.columns[column.number].values = self.cdata.columns[column.number].ends
        self.cdata.columns[column.number].capacity = count
        for part in column.parts:
            self._text(part, count, max(LEAST_TEXT, min(self._room, TEXT_AT_ONCE)))

    def _ends(self, number: int, rows: int) -> None:
        ends = ffi.cast("int32_t *", self._give(number, "ends", 4 * (rows + 1)))
        ends[0] = 0
        self.cdata.columns[number].ends = ends

    def _text(self, number: int, rows: int, size: int) -> None:
        self._ends(number, rows)
        self.cdata.columns[number].values = self._give(number, "values", size)
        self.cdata.columns[number].capacity = size

    def enlarge(self) -> None:
        """Makes room for the one row that did not fit into an empty batch."""
        number, needed = int(self.cdata.full), int(self.cdata.needed)
        for column in self._table.columns:
            if column.number == number and column.kind is Kind.LIST:
                self._list(column, needed)
                return
        place = self.cdata.columns[number]
        place.values = self._give(number, "values", needed)
        place.capacity = needed

    def arrow(self, constants: Constants) -> pa.RecordBatch:
        """What is in it. The memory belongs to Arrow from now on: the batch is of no more use."""
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
            ends = self._buffers[number, "ends"]
            count = int(self.cdata.columns[number].used)
            return _list_array(
                column.type,
                rows,
                valid,
                ends,
                [self._text_array(part, count, STRING, None) for part in column.parts],
            )
        if column.kind is Kind.FIXED:
            buffers = [valid, self._buffers[number, "values"]]
            return pa.Array.from_buffers(column.type, rows, buffers)
        return self._text_array(number, rows, column.type, valid)

    def _text_array(
        self, number: int, rows: int, data_type: pa.DataType, valid: pa.Buffer | None
    ) -> pa.Array:
        ends, values = self._buffers[number, "ends"], self._buffers[number, "values"]
        return pa.Array.from_buffers(data_type, rows, [valid, ends, values])


def _list_array(
    data_type: pa.DataType,
    rows: int,
    valid: pa.Buffer | None,
    ends: pa.Buffer,
    parts: Sequence[pa.Array],
) -> pa.Array:
    if len(parts) == 1:
        return pa.Array.from_buffers(data_type, rows, [valid, ends], children=list(parts))
    fields = [data_type.key_field, data_type.item_field]
    pairs = pa.StructArray.from_arrays(list(parts), fields=fields)
    return pa.Array.from_buffers(data_type, rows, [valid, ends], children=[pairs])


def _zero(buffer: pa.Buffer) -> None:
    """Fills memory with zeros."""
    view = memoryview(buffer).cast("B")
    view[:] = bytes(len(view))


def fault_row(table: Table, values: Mapping[str, Any]) -> pa.RecordBatch:
    """A row that says what is wrong at a place; all that is not given is null."""
    arrays = [pa.array([values.get(each.name)], each.type) for each in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


END, MORE, FAULT, ROOM = lib.BC_END, lib.BC_MORE, lib.BC_FAULT, lib.BC_NO_SPACE
