"""Lives out of entries that stand in order: those of one life together, the oldest first.

C has the rules (csrc/columns/inferred_events.c). Knows nothing of Spark; timelines.py makes the
columns that go in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beanstalkd_py.pipeline._columns import ffi, lib
from beanstalkd_py.pipeline.jobs.timeline_columns import Told, new_lives, some, words

STATES = ("deleted", "ready", "reserved", "buried", "delayed")
"""The words, by C's numbers."""
NUMBERS = (
    *("id", "created_at", "delay", "ttr", "at", "more", "deadline"),
    *("reserves_timeouts", "releases_buries", "kicks_priority", "flags"),
)
"""Columns that go in, as C has them. Besides there are host, shard and tube."""
SIZE_AT = 8
"""`flags` has the size of the body above its flags."""
_STATE = 7
_LOW, _HIGH_AT = 0xFFFFFFFF, 32


def lives_of_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row for each life."""
    lives = new_lives()
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        if _is_one_life(waiting):
            continue
        rows = _joined(waiting)
        done, told = _tell(lives, rows, last=False)
        waiting = [rows.slice(done)]
        yield told
    if waiting:
        yield _tell(lives, _joined(waiting), last=True)[1]


def _is_one_life(waiting: list[pa.RecordBatch]) -> bool:
    """Whether no life that has begun is whole yet."""
    first, last = waiting[0], waiting[-1]
    return all(
        first.column(name)[0] == last.column(name)[-1] for name in ("id", "created_at", "host")
    )


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _tell(lives: Any, rows: pa.RecordBatch, last: bool) -> tuple[int, pa.RecordBatch]:
    """How many rows those lives have that are whole, and these lives."""
    hosts = rows.column("host").dictionary_encode().indices
    given = ffi.new("bc_history_entries *")
    given.host = ffi.cast("const int32_t *", _address(hosts, 4))
    for name in NUMBERS:
        setattr(given, name, ffi.cast("const int64_t *", _address(rows.column(name), 8)))
    given.rows = rows.num_rows
    done = lib.bc_histories_of_entries(lives, given, last)
    if done < 0:
        raise MemoryError
    told = Told(lives)
    return done, told.batch(_known(told, rows))


def _address(column: pa.Array, width: int) -> int:
    """Of its first value. None of them is null."""
    offset: int = column.offset * width
    address: int = column.buffers()[1].address
    return address + offset


def _known(told: Told, rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """What the last entry says, and the full one."""
    last = told.of_lives("last_row")

    def lasting(name: str) -> pa.Array:
        return rows.column(name).take(last)

    flags = lasting("flags")
    reserves_timeouts = lasting("reserves_timeouts")
    releases_buries = lasting("releases_buries")
    kicks_priority = lasting("kicks_priority")
    return {
        "host": lasting("host"),
        "shard": lasting("shard"),
        "id": lasting("id"),
        "tube": rows.column("tube").take(some(told.of_lives("full_row"))),
        "priority": _lower(kicks_priority),
        "ttr": lasting("ttr"),
        "body_size": pc.shift_right(flags, SIZE_AT).cast(pa.int32()),
        "state": words(STATES, pc.bit_wise_and(flags, _STATE)),
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
