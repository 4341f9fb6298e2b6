"""Lives of jobs as Arrow: entries that stand in order go in, a row for each life comes out.

C has the rules (csrc/columns/told.c). Knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beanstalkd_py.pipeline._columns import ffi, lib

EVENTS = (
    *("put", "reserve", "touch", "release", "timeout"),
    *("return", "due", "bury", "kick", "delete", "truncate"),
)
"""The words, by C's numbers."""
CERTAINTIES = ("exact", "derived", "bounded")
STATES = ("deleted", "ready", "reserved", "buried", "delayed")
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")

NUMBERS = (
    *("id", "created_at", "delay", "ttr", "at", "more", "deadline"),
    *("reserves_timeouts", "releases_buries", "kicks_priority", "said"),
)
"""Columns of what goes in, as C has them. Besides there are host, shard and tube."""

MICROSECONDS = 1_000_000
LOW = 0xFFFFFFFF
STATE = 7
SIZE_AT = 8
"""`said` has the size of the body above its flags."""

STRING, LONG, TIME = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")
_EVENT = pa.struct(
    [
        ("event", STRING),
        ("at", TIME),
        ("kind", STRING),
        ("until", TIME),
        ("priority", LONG),
        ("delay", LONG),
    ]
)
SCHEMA = pa.schema(
    [
        *(("host", STRING), ("shard", STRING), ("id", LONG), ("tube", STRING)),
        *((name, LONG) for name in ("priority", "delay", "ttr")),
        ("body_size", pa.int32()),
        *(("put_at", TIME), ("state", STRING), ("end", STRING), ("end_at", TIME)),
        *(("first_reserve_at", TIME), ("last_at", TIME)),
        *((name, LONG) for name in (*COUNTERS, "touches")),
        *((name, pa.float64()) for name in ("wait_s", "finish_s")),
        *((name, pa.float64()) for name in ("ready_s", "reserved_s", "delayed_s", "buried_s")),
        *(("time_kind", STRING), ("complete", pa.bool_())),
        ("events", pa.list_(_EVENT)),
    ]
)


def lives_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of SCHEMA. What comes in is ordered by life, and by age within each."""
    lives = ffi.gc(lib.bc_lives_new(), lib.bc_lives_free)
    if lives == ffi.NULL:
        raise MemoryError
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        if _is_one_life(waiting):
            continue
        rows = _joined(waiting)
        done, told = _told(lives, rows, last=False)
        waiting = [rows.slice(done)]
        if told is not None:
            yield told
    if waiting:
        _, told = _told(lives, _joined(waiting), last=True)
        if told is not None:
            yield told


def _is_one_life(waiting: list[pa.RecordBatch]) -> bool:
    """Whether the end of a life that has begun is not yet in sight."""
    first, last = waiting[0], waiting[-1]
    return all(
        first.column(name)[0].as_py() == last.column(name)[-1].as_py()
        for name in ("id", "created_at", "host")
    )


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0]


def _told(lives: Any, rows: pa.RecordBatch, last: bool) -> tuple[int, pa.RecordBatch | None]:
    """How many rows the lives have that are whole, and these lives."""
    hosts = rows.column("host").dictionary_encode().indices
    given = ffi.new("bc_life_entries *")
    given.host = ffi.cast("const int32_t *", _address(hosts, 4))
    for name in NUMBERS:
        setattr(given, name, ffi.cast("const int64_t *", _address(rows.column(name), 8)))
    given.rows = rows.num_rows
    done = lib.bc_lives_of_entries(lives, given, last)
    if done < 0:
        raise MemoryError
    told = lib.bc_lives_told(lives)
    return done, _batch(told, rows) if told.count else None


def _address(column: pa.Array, width: int) -> int:
    """Of its first value. None of them is null."""
    return int(column.buffers()[1].address) + column.offset * width


class _Told:
    """Columns that C has made, copied out of its memory."""

    def __init__(self, told: Any) -> None:
        self._told = told

    def of_lives(self, name: str) -> pa.Array:
        return self._array(name, int(self._told.count))

    def of_events(self, name: str) -> pa.Array:
        return self._array(name, int(self._told.event_count))

    def _array(self, name: str, count: int) -> pa.Array:
        data = bytes(ffi.buffer(getattr(self._told, name), 8 * count)) if count else b""
        return pa.Array.from_buffers(LONG, count, [None, pa.py_buffer(data)])


def _some(values: pa.Array) -> pa.Array:
    """-1 is null."""
    return pc.if_else(pc.greater_equal(values, 0), values, pa.scalar(None, LONG))


def _times(values: pa.Array) -> pa.Array:
    return _some(values).cast(pa.timestamp("us")).cast(TIME)


def _words(words: tuple[str, ...], numbers: pa.Array) -> pa.Array:
    return pa.array(words, STRING).take(numbers)


def _seconds(microseconds: pa.Array) -> pa.Array:
    return pc.divide(microseconds.cast(pa.float64()), float(MICROSECONDS))


def _batch(told: Any, rows: pa.RecordBatch) -> pa.RecordBatch:
    """A row for each life."""
    columns = _Told(told)
    last = columns.of_lives("last_row")
    first = columns.of_lives("first_row")

    def lasting(name: str) -> pa.Array:
        return rows.column(name).take(last)

    said = lasting("said")
    kicks_priority = lasting("kicks_priority")
    put_us = pc.divide(rows.column("created_at").take(first), 1000)
    reserve_us = _some(columns.of_lives("first_reserve_at"))
    end_us = _some(columns.of_lives("end_at"))
    counters = {
        "reserves": _upper(lasting("reserves_timeouts")),
        "timeouts": _lower(lasting("reserves_timeouts")),
        "releases": _upper(lasting("releases_buries")),
        "buries": _lower(lasting("releases_buries")),
        "kicks": _upper(kicks_priority),
    }
    made: dict[str, pa.Array] = {
        "host": rows.column("host").take(first),
        "shard": lasting("shard"),
        "id": lasting("id"),
        "tube": rows.column("tube").take(_some(columns.of_lives("full_row"))),
        "priority": _lower(kicks_priority),
        "delay": rows.column("delay").take(_some(columns.of_lives("put_row"))),
        "ttr": lasting("ttr"),
        "body_size": pc.shift_right(said, SIZE_AT).cast(pa.int32()),
        "put_at": _times(put_us),
        "state": _words(STATES, pc.bit_wise_and(said, STATE)),
        "end": _words(("deleted", "truncated"), _some(_ends(columns.of_lives("end")))),
        "end_at": _times(end_us),
        "first_reserve_at": _times(reserve_us),
        "last_at": _times(columns.of_lives("last_at")),
        **counters,
        "touches": columns.of_lives("touches"),
        "wait_s": _seconds(pc.subtract(reserve_us, put_us)),
        "finish_s": _seconds(pc.subtract(end_us, put_us)),
        **{
            f"{state}_s": _seconds(columns.of_lives(f"in_{state}"))
            for state in ("ready", "reserved", "delayed", "buried")
        },
        "time_kind": _words(CERTAINTIES, columns.of_lives("certainty")),
        "complete": columns.of_lives("complete").cast(pa.bool_()),
        "events": _events(columns),
    }
    return pa.RecordBatch.from_arrays([made[name] for name in SCHEMA.names], schema=SCHEMA)


def _upper(pairs: pa.Array) -> pa.Array:
    return pc.bit_wise_and(pc.shift_right(pairs, 32), LOW)


def _lower(pairs: pa.Array) -> pa.Array:
    return pc.bit_wise_and(pairs, LOW)


def _ends(numbers: pa.Array) -> pa.Array:
    """0 for a delete, 1 for a truncate, less if there is no end."""
    return pc.subtract(numbers, EVENTS.index("delete"))


def _events(columns: _Told) -> pa.Array:
    arrays = {
        "event": _words(EVENTS, columns.of_events("event")),
        "at": _times(columns.of_events("event_at")),
        "kind": _words(CERTAINTIES, columns.of_events("event_certainty")),
        "until": _times(columns.of_events("event_until")),
        "priority": _some(columns.of_events("event_priority")),
        "delay": _some(columns.of_events("event_delay")),
    }
    structs = pa.StructArray.from_arrays(list(arrays.values()), fields=list(_EVENT))
    begins = columns.of_lives("first_event").cast(pa.int32())
    ends = pa.concat_arrays([begins, pa.array([len(structs)], pa.int32())])
    return pa.ListArray.from_arrays(ends, structs, type=SCHEMA.field("events").type)
