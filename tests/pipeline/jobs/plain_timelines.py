"""Timelines by calling the decoder in this process (test_timeline_rows.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pipeline.plain import EPOCH, Row, rows

from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.jobs.timeline_rows import (
    CERTAINTIES,
    ENDS,
    ENTRY_NUMBERS,
    STATES,
    timelines_of_entries,
)

COLUMNS = ("host", "shard", "tube", *ENTRY_NUMBERS)
NEEDED = (
    *("host", "shard", "file_number", "offset", "kind", "id", "tube", "priority", "delay", "ttr"),
    *("body_size", "state", "ended", "checksum", "is_copy"),
    *("reserves", "timeouts", "releases", "buries", "kicks"),
    *("created_at_ns", "event_time_ns", "event_time_kind", "event_time_until"),
    *("deadline_at_ns", "old_deadline_at_ns", "reserved_at_ns"),
)


def entries_of(*paths: Path, **options: str) -> list[Row]:
    found: list[Row] = []
    for path in paths:
        found += rows(BinlogPlan.of({"path": str(path), **options}, NEEDED))
    return found


def nanoseconds(moment: datetime | None) -> int:
    """Return nanoseconds since 1970, -1 for None."""
    if moment is None:
        return -1
    past = moment.replace(tzinfo=UTC) - EPOCH
    return ((past.days * 86_400 + past.seconds) * 10**6 + past.microseconds) * 1000


@dataclass(frozen=True)
class Ends:
    """The newest known time of a host, in nanoseconds, and whether its server records reserves."""

    data_end: int
    has_reserves: bool


def ends_of(entries: Iterable[Row]) -> dict[str, Ends]:
    found: dict[str, Ends] = {}
    for row in entries:
        is_full = row["kind"] == "full"
        time = row["created_at_ns"] if is_full else row["event_time_ns"]
        has = row["state"] == "reserved" or row["reserved_at_ns"] is not None
        has = has and not is_full and row["checksum"] == "right"
        known = found.get(row["host"], Ends(0, False))
        found[row["host"]] = Ends(max(known.data_end, time), known.has_reserves or has)
    return found


def packed(row: Row, ends: Ends) -> Row:
    """Return the input of the decoder."""
    bounded = row["event_time_kind"] == "bounded"
    reserved = -1 if row["reserved_at_ns"] is None else row["reserved_at_ns"]
    deadlines = (row["deadline_at_ns"], row["old_deadline_at_ns"], -1)
    flags = row["body_size"] << 11 | STATES.index(row["state"])
    flags |= CERTAINTIES.index(row["event_time_kind"]) << 3
    flags |= (row["checksum"] == "right") << 5 | (row["kind"] == "full") << 6
    flags |= ends.has_reserves << 7 | (ENDS.index(row["ended"]) << 8 if row["ended"] else 0)
    return {
        **{name: row[name] for name in ("host", "shard", "tube", "id", "delay", "ttr")},
        "created_at": row["created_at_ns"],
        "at": row["event_time_ns"],
        "more": nanoseconds(row["event_time_until"]) if bounded else reserved,
        "deadline": next(each for each in deadlines if each is not None),
        "reserves_timeouts": row["reserves"] << 32 | row["timeouts"],
        "releases_buries": row["releases"] << 32 | row["buries"],
        "kicks_priority": row["kicks"] << 32 | row["priority"],
        "flags": flags,
        "data_end": ends.data_end,
    }


def in_order(entries: Iterable[Row]) -> list[Row]:
    """Sort entries by job."""
    place = ("host", "id", "created_at_ns", "file_number", "offset")
    return sorted(entries, key=lambda row: tuple(row[name] for name in place))


def batches(entries: Sequence[Row], sizes: Iterable[int]) -> list[pa.RecordBatch]:
    """Cut rows at random places."""
    types = {"host": pa.string(), "shard": pa.string(), "tube": pa.string()}
    schema = pa.schema([(name, types.get(name, pa.int64())) for name in COLUMNS])
    made, at, ends = [], 0, ends_of(entries)
    for size in sizes:
        part = [packed(row, ends[row["host"]]) for row in entries[at : at + size]]
        made.append(pa.RecordBatch.from_pylist(part, schema=schema))
        at += size
    return made


def plain_timelines(entries: Iterable[Row], at_once: int = 1 << 20) -> list[dict[str, Any]]:
    ordered = in_order(entries)
    sizes = [at_once] * -(-len(ordered) // at_once)
    made: list[dict[str, Any]] = []
    for batch in timelines_of_entries(batches(ordered, sizes)):
        batch.validate(full=True)
        made += batch.to_pylist()
    return made
