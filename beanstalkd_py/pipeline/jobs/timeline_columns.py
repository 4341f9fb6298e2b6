"""The columns that a job's life has, as Arrow: what C has told of lives becomes rows.

Knows neither Spark nor what lives are told from (lives_of_entries.py, lives_of_messages.py).
"""

from __future__ import annotations

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
ENDS = ("deleted", "truncated")
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")
TIMED = ("ready", "reserved", "delayed", "buried")
"""States that a job spends its time in."""

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
_SCHEMA = pa.schema(
    [
        *(("host", STRING), ("shard", STRING), ("id", LONG), ("tube", STRING)),
        *((name, LONG) for name in ("priority", "delay", "ttr")),
        ("body_size", pa.int32()),
        *(("put_at", TIME), ("state", STRING), ("end", STRING), ("end_at", TIME)),
        *(("first_reserve_at", TIME), ("last_at", TIME)),
        *((name, LONG) for name in (*COUNTERS, "touches")),
        *((name, DOUBLE) for name in ("wait_s", "finish_s")),
        *((f"{state}_s", DOUBLE) for state in TIMED),
        *(("time_kind", STRING), ("complete", pa.bool_())),
        ("events", pa.list_(_EVENT)),
    ]
)
SCHEMA = (
    "host string, shard string, id long, tube string, priority long, delay long, ttr long,"
    " body_size int, put_at timestamp, state string, end string, end_at timestamp,"
    " first_reserve_at timestamp, last_at timestamp, reserves long, timeouts long, releases long,"
    " buries long, kicks long, touches long, wait_s double, finish_s double, ready_s double,"
    " reserved_s double, delayed_s double, buried_s double, time_kind string, complete boolean,"
    " events array<struct<event: string, at: timestamp, kind: string, until: timestamp,"
    " priority: bigint, delay: bigint>>"
)
"""The same as Spark says it."""


def new_lives() -> Any:
    """What C tells lives into."""
    lives = ffi.gc(lib.bc_histories_new(), lib.bc_histories_free)
    if lives == ffi.NULL:
        raise MemoryError
    return lives


class Told:
    """What C has told, copied out of its memory."""

    def __init__(self, lives: Any) -> None:
        self._told = lib.bc_histories_columns(lives)
        self.count = int(self._told.count)

    def of_lives(self, name: str) -> pa.Array:
        """A column with a value for each life."""
        return self._array(name, self.count)

    def of_events(self, name: str) -> pa.Array:
        """A column with a value for each event."""
        return self._array(name, int(self._told.event_count))

    def _array(self, name: str, count: int) -> pa.Array:
        data = bytes(ffi.buffer(getattr(self._told, name), 8 * count)) if count else b""
        return pa.Array.from_buffers(LONG, count, [None, pa.py_buffer(data)])

    def batch(self, known: dict[str, pa.Array]) -> pa.RecordBatch:
        """A row for each life; `known` are the columns that events do not tell."""
        made = {**known, **self._summary(), "events": self._events()}
        return pa.RecordBatch.from_arrays([made[name] for name in _SCHEMA.names], schema=_SCHEMA)

    def _summary(self) -> dict[str, pa.Array]:
        puts = self.of_lives("first_event")
        put_at = some(self.of_events("event_at").take(puts))
        reserve_at = some(self.of_lives("first_reserve_at"))
        end_at = some(self.of_lives("end_at"))
        ends = pc.subtract(self.of_lives("end"), EVENTS.index("delete"))
        return {
            "delay": some(self.of_events("event_delay").take(puts)),
            "put_at": _time(put_at),
            "end": words(ENDS, some(ends)),
            "end_at": _time(end_at),
            "first_reserve_at": _time(reserve_at),
            "last_at": _time(some(self.of_lives("last_at"))),
            "touches": self.of_lives("touches"),
            "wait_s": _seconds(pc.subtract(self._known(reserve_at), put_at)),
            "finish_s": _seconds(pc.subtract(end_at, put_at)),
            **{f"{state}_s": _seconds(self.of_lives(f"in_{state}")) for state in TIMED},
            "time_kind": words(CERTAINTIES, self.of_lives("certainty")),
            "complete": self.of_lives("complete").cast(pa.bool_()),
        }

    def _known(self, reserve_at: pa.Array) -> pa.Array:
        """Without those of which only bounds are known: the time between says nothing."""
        sure = self.of_lives("first_reserve_sure")
        bounded = pc.equal(sure, CERTAINTIES.index("bounded"))
        return pc.if_else(bounded, pa.scalar(None, LONG), reserve_at)

    def _events(self) -> pa.Array:
        arrays = [
            words(EVENTS, self.of_events("event")),
            _time(some(self.of_events("event_at"))),
            words(CERTAINTIES, self.of_events("event_certainty")),
            _time(some(self.of_events("event_until"))),
            some(self.of_events("event_priority")),
            some(self.of_events("event_delay")),
        ]
        structs = pa.StructArray.from_arrays(arrays, fields=list(_EVENT))
        begins = self.of_lives("first_event").cast(pa.int32())
        ends = pa.concat_arrays([begins, pa.array([len(structs)], pa.int32())])
        return pa.ListArray.from_arrays(ends, structs, type=_SCHEMA.field("events").type)


def some(values: pa.Array) -> pa.Array:
    """Numbers below 0 are nulls."""
    return pc.if_else(pc.greater_equal(values, 0), values, pa.scalar(None, LONG))


def words(known: tuple[str, ...], numbers: pa.Array) -> pa.Array:
    """Words by their numbers."""
    return pa.array(known, STRING).take(numbers)


def _time(microseconds: pa.Array) -> pa.Array:
    return microseconds.cast(pa.timestamp("us")).cast(TIME)


def _seconds(microseconds: pa.Array) -> pa.Array:
    return pc.divide(microseconds.cast(DOUBLE), _MICROSECONDS)
