"""Timelines as Arrow rows, from sorted entries or from messages of a history.

C groups entries by job and infers events (csrc/columns/inferred_events.c), and parses the property
`timeline` of messages (csrc/columns/timeline_text.c). This module runs in Spark's tasks and imports
nothing of Spark; timelines.py makes the input columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beanstalkd_py.pipeline._columns import ffi, lib

EVENTS = (
    *("put", "reserve", "touch", "release", "timeout"),
    *("return", "due", "bury", "kick"),
    *("delete", "truncate", "move", "expire", "dead-letter", "discard"),
)
"""Names in the order of C's numbers; so are CERTAINTIES, STATES and ENDS."""
CERTAINTIES = ("exact", "derived", "bounded")
STATES = ("deleted", "ready", "reserved", "buried", "delayed", "ready_or_reserved", "unknown")
ENDS = ("deleted", "truncated", "moved", "expired", "dead-lettered", "discarded")
END_EVENTS = EVENTS[-len(ENDS) :]
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")
TIMED_STATES = ("ready", "reserved", "delayed", "buried", "ready_or_reserved")

ENTRY_NUMBERS = (
    *("id", "created_at", "delay", "ttr", "at", "more", "deadline"),
    *("reserves_timeouts", "releases_buries", "kicks_priority", "flags", "data_end"),
)
"""Input columns as in C; besides these there are host, shard and tube."""
MESSAGE_COLUMNS = (
    *("host", "shard", "id", "tube", "priority", "ttr", "body_size", "state"),
    *COUNTERS,
)
"""Input columns that are copied; besides these there are timeline and ended, an index of ENDS."""
SIZE_AT = 11
"""Bit of `flags` at which the size of the body begins."""
_LOW, _HIGH_AT = 0xFFFFFFFF, 32

STRING, LONG, DOUBLE = pa.string(), pa.int64(), pa.float64()
TIME = pa.timestamp("us", tz="UTC")
_MICROSECONDS = 1e6
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
_SPAN = pa.struct([("at", TIME), ("state", STRING)])
SCHEMA = pa.schema(
    [
        *(("host", STRING), ("shard", STRING), ("id", LONG), ("tube", STRING)),
        *((name, LONG) for name in ("priority", "delay", "ttr")),
        ("body_size", pa.int32()),
        *(("put_at", TIME), ("state", STRING), ("end", STRING), ("end_at", TIME)),
        *(("first_reserve_at", TIME), ("last_at", TIME)),
        *((name, LONG) for name in (*COUNTERS, "touches")),
        *((name, DOUBLE) for name in ("wait_s", "wait_min_s", "wait_max_s")),
        *((name, DOUBLE) for name in ("finish_s", "finish_min_s", "finish_max_s")),
        *((f"{state}_s", DOUBLE) for state in TIMED_STATES),
        *(("time_kind", STRING), ("complete", pa.bool_())),
        *(("events", pa.list_(_EVENT)), ("states", pa.list_(_SPAN))),
    ]
)


def timelines_of_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a row for each job. Entries are sorted by job, the oldest of a job first."""
    histories = _new_histories()
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows == 0:
            continue
        pending.append(batch)
        if _is_one_job(pending):
            continue
        rows = _joined(pending)
        decoded, timelines = _decode_entries(histories, rows, last=False)
        pending = [rows.slice(decoded)]
        yield timelines
    if pending:
        yield _decode_entries(histories, _joined(pending), last=True)[1]


def timelines_of_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    histories = _new_histories()
    for batch in batches:
        if batch.num_rows == 0:
            continue
        # Concatenating and casting removes offsets, which C does not expect.
        text = pa.concat_arrays([batch.column("timeline"), pa.array([], pa.string())])
        ended = batch.column("ended").cast(pa.uint8())
        _, ends, data = text.buffers()
        result = lib.bc_histories_of_timelines(
            histories,
            ffi.cast("const char *", data.address if data is not None else 0),
            ffi.cast("const int32_t *", ends.address + 4 * text.offset),
            ffi.cast("const uint8_t *", _address(ended, 1)),
            batch.num_rows,
        )
        if result < 0:
            raise MemoryError
        yield Histories(histories).batch({name: batch.column(name) for name in MESSAGE_COLUMNS})


def _new_histories() -> Any:
    histories = ffi.gc(lib.bc_histories_new(), lib.bc_histories_free)
    if histories == ffi.NULL:
        raise MemoryError
    return histories


def _is_one_job(batches: list[pa.RecordBatch]) -> bool:
    """Whether all entries are of one job, which may have more."""
    first, last = batches[0], batches[-1]
    return all(
        first.column(name)[0] == last.column(name)[-1] for name in ("id", "created_at", "host")
    )


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _decode_entries(histories: Any, rows: pa.RecordBatch, last: bool) -> tuple[int, pa.RecordBatch]:
    """Return the number of entries of complete jobs, and the timelines of these jobs."""
    hosts = rows.column("host").dictionary_encode().indices
    entries = ffi.new("bc_history_entries *")
    entries.host = ffi.cast("const int32_t *", _address(hosts, 4))
    for name in ENTRY_NUMBERS:
        setattr(entries, name, ffi.cast("const int64_t *", _address(rows.column(name), 8)))
    entries.rows = rows.num_rows
    decoded = lib.bc_histories_of_entries(histories, entries, last)
    if decoded < 0:
        raise MemoryError
    complete = Histories(histories)
    return decoded, complete.batch(_last_values(complete, rows))


def _address(column: pa.Array, width: int) -> int:
    """Return the address of the first value of a column without nulls."""
    offset: int = column.offset * width
    address: int = column.buffers()[1].address
    return address + offset


def _last_values(complete: Histories, rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns that come from the last entry of a job, and the tube of a full one."""
    last_row = complete.of_jobs("last_row")

    def last(name: str) -> pa.Array:
        return rows.column(name).take(last_row)

    flags = last("flags")
    reserves_timeouts = last("reserves_timeouts")
    releases_buries = last("releases_buries")
    kicks_priority = last("kicks_priority")
    return {
        "host": last("host"),
        "shard": last("shard"),
        "id": last("id"),
        "tube": rows.column("tube").take(_not_negative(complete.of_jobs("full_row"))),
        "priority": _lower(kicks_priority),
        "ttr": last("ttr"),
        "body_size": pc.shift_right(flags, SIZE_AT).cast(pa.int32()),
        "state": _names(STATES, complete.of_jobs("state")),
        "reserves": _upper(reserves_timeouts),
        "timeouts": _lower(reserves_timeouts),
        "releases": _upper(releases_buries),
        "buries": _lower(releases_buries),
        "kicks": _upper(kicks_priority),
    }


def _upper(pairs: pa.Array) -> pa.Array:
    return pc.bit_wise_and(pc.shift_right(pairs, _HIGH_AT), _LOW)


def _lower(pairs: pa.Array) -> pa.Array:
    return pc.bit_wise_and(pairs, _LOW)


class Histories:
    """The job histories of the last call of C, copied out of its memory."""

    def __init__(self, histories: Any) -> None:
        self._columns = lib.bc_histories_columns(histories)

    def of_jobs(self, name: str) -> pa.Array:
        return _copied(getattr(self._columns, name), self._columns.count)

    def of_events(self, name: str) -> pa.Array:
        return _copied(getattr(self._columns, name), self._columns.event_count)

    def _of_spans(self, name: str) -> pa.Array:
        return _copied(getattr(self._columns, name), self._columns.span_count)

    def _seconds_in(self, number: int) -> pa.Array:
        in_state = _copied(self._columns.in_state[number], self._columns.count)
        return _seconds(_not_negative(in_state))

    def batch(self, known: dict[str, pa.Array]) -> pa.RecordBatch:
        """Return a row for each job; `known` are the columns that do not depend on events."""
        lists = {"events": self._events(), "states": self._spans()}
        columns = {**known, **self._summary(), **lists}
        arrays = [columns[name] for name in SCHEMA.names]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _summary(self) -> dict[str, pa.Array]:
        puts = self._puts()
        put_at = _not_negative(self.of_events("event_at").take(puts))
        reserve_at, reserve_until = self._bounds("first_reserve")
        end_at, end_until = self._bounds("end")
        ends = pc.subtract(self.of_jobs("end"), EVENTS.index("delete"))
        return {
            "delay": _not_negative(self.of_events("event_delay").take(puts)),
            "put_at": _time(put_at),
            "end": _names(ENDS, _not_negative(ends)),
            "end_at": _time(_if_equal(end_at, end_until)),
            "first_reserve_at": _time(_if_equal(reserve_at, reserve_until)),
            "last_at": _time(_not_negative(self.of_jobs("last_at"))),
            "touches": self.of_jobs("touches"),
            **_durations("wait", put_at, reserve_at, reserve_until),
            **_durations("finish", put_at, end_at, end_until),
            **{f"{state}_s": self._seconds_in(STATES.index(state) - 1) for state in TIMED_STATES},
            "time_kind": _names(CERTAINTIES, self.of_jobs("certainty")),
            "complete": self.of_jobs("complete").cast(pa.bool_()),
        }

    def _puts(self) -> pa.Array:
        """Return the index of each job's put; null for an invalid text without events."""
        begins = self.of_jobs("first_event")
        ends = pa.concat_arrays([begins[1:], pa.array([self._columns.event_count], LONG)])
        return pc.if_else(pc.less(begins, ends[: len(begins)]), begins, pa.scalar(None, LONG))

    def _bounds(self, name: str) -> tuple[pa.Array, pa.Array]:
        earliest, latest = self.of_jobs(f"{name}_at"), self.of_jobs(f"{name}_until")
        return _not_negative(earliest), _not_negative(latest)

    def _events(self) -> pa.ListArray:
        arrays = [
            _names(EVENTS, self.of_events("event")),
            _time(_not_negative(self.of_events("event_at"))),
            _names(CERTAINTIES, self.of_events("event_certainty")),
            _time(_not_negative(self.of_events("event_until"))),
            _not_negative(self.of_events("event_priority")),
            _not_negative(self.of_events("event_delay")),
        ]
        structs = pa.StructArray.from_arrays(arrays, fields=list(_EVENT))
        return self._lists("events", structs, self.of_jobs("first_event"))

    def _spans(self) -> pa.ListArray:
        arrays = [_time(self._of_spans("span_at")), _names(STATES, self._of_spans("span_state"))]
        structs = pa.StructArray.from_arrays(arrays, fields=list(_SPAN))
        return self._lists("states", structs, self.of_jobs("first_span"))

    def _lists(self, name: str, structs: pa.StructArray, begins: pa.Array) -> pa.ListArray:
        ends = pa.concat_arrays([begins.cast(pa.int32()), pa.array([len(structs)], pa.int32())])
        return pa.ListArray.from_arrays(ends, structs, type=SCHEMA.field(name).type)


def _durations(name: str, begin: pa.Array, earliest: pa.Array, latest: pa.Array) -> dict[str, Any]:
    least, most = pc.subtract(earliest, begin), pc.subtract(latest, begin)
    return {
        f"{name}_s": _seconds(_if_equal(least, most)),
        f"{name}_min_s": _seconds(least),
        f"{name}_max_s": _seconds(most),
    }


def _if_equal(least: pa.Array, most: pa.Array) -> pa.Array:
    """Replace values with different or unknown bounds by nulls."""
    return pc.if_else(pc.equal(least, most), least, pa.scalar(None, LONG))


def _copied(values: Any, count: int) -> pa.Array:
    data = bytes(ffi.buffer(values, 8 * count)) if count else b""
    return pa.Array.from_buffers(LONG, count, [None, pa.py_buffer(data)])


def _not_negative(values: pa.Array) -> pa.Array:
    """Replace negative numbers, which are nulls of C, by nulls."""
    return pc.if_else(pc.greater_equal(values, 0), values, pa.scalar(None, LONG))


def _names(known: tuple[str, ...], numbers: pa.Array) -> pa.Array:
    return pa.array(known, STRING).take(numbers)


def _time(microseconds: pa.Array) -> pa.Array:
    return microseconds.cast(pa.timestamp("us")).cast(TIME)


def _seconds(microseconds: pa.Array) -> pa.Array:
    return pc.divide(microseconds.cast(DOUBLE), _MICROSECONDS)
