"""Plain Python rows of binlogs and stores, to compare the sources with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from binlog.reader import MARK, Entry, number_of

from beanstalkd_py.binlog.dump import dump
from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.core.binlog_reader import Selection
from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.topics import unescape
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.stores.plan import StorePlan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 10**9
Row = dict[str, Any]
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")


def rows(plan: BinlogPlan | StorePlan, tasks: int = 1) -> list[Row]:
    """Read all rows of a plan."""
    found: list[Row] = []
    for files in plan.tasks(tasks):
        for batch in plan.read(files):
            batch.validate(full=True)
            assert batch.schema == plan.table.schema
            found += batch.to_pylist()
    return found


def binlog_plan(path: Path, **options: str) -> BinlogPlan:
    plan = BinlogPlan.of({"path": str(path), **options})
    if "columns" in options:
        return plan
    return BinlogPlan.of({"path": str(path), **options}, [column.name for column in plan.table.all])


def dumped(path: Path, scratch: Path, without_ids: bool = True) -> list[Row]:
    """Return 'binlog dump --json' of a file; `without_ids` leaves out entries of the highest id."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    shutil.copy(path, scratch / f"binlog.{number_of(path)}")
    lines: list[bytes] = []
    dump(inspect_folder(scratch), Selection(as_json=True), lambda text: lines.append(bytes(text)))
    entries = [json.loads(line) for line in b"".join(lines).splitlines()]
    return [each for each in entries if not (without_ids and is_highest_id(each))]


def is_highest_id(entry: Row) -> bool:
    """Return whether an entry only keeps the highest id: it has no CR LF in its body, or no TTR."""
    return entry.get("state") == "deleted" and not entry["body_bytes"] and not entry["ttr_s"]


def nanoseconds(text: str | None) -> int | None:
    if text is None:
        return None
    seconds, _, rest = text.removesuffix("Z").partition(".")
    moment = datetime.fromisoformat(seconds).replace(tzinfo=UTC)
    return int((moment - EPOCH).total_seconds()) * 10**9 + int(rest)


def as_dumped(row: Row) -> Row:
    """Convert a row to the keys of a dump."""
    if row["_corrupt_record"] is not None:
        return {"offset": row["offset"], "what": row["_corrupt_record"]}
    exact = row["event_time_kind"] == "exact" or row["state"] in ("delayed", "reserved")
    return {
        "offset": row["offset"],
        "bytes": row["size"],
        "kind": row["kind"],
        "id": row["id"],
        "state": row["state"],
        "pri": row["priority"],
        "delay_s": row["delay"],
        "ttr_s": row["ttr"],
        "body_bytes": row["body_size"],
        "created_at": row["created_at_ns"],
        "event_at": row["event_time_ns"] if exact else None,
        "deadline_at": row["deadline_at_ns"],
        "reserved_at": row["reserved_at_ns"],
        "ended": row["ended"],
        **{name: row[name] for name in COUNTERS},
        "checksum": None if row["checksum"] == "none" else row["checksum"],
        "tube": row["tube"],
    }


def of_dump(row: Row) -> Row:
    """Convert a line of a dump. The tube of a short entry is missing."""
    if "what" in row:
        return {"offset": row["offset"], "what": row["what"]}
    assert row["length_of"] is None, "a length entry has no row"
    left_out = ("file", "length_of", "length", "attributes_of", "expires_s")
    left_out += ("unique_key", "window_s", "key_until")
    text = {name: value for name, value in row.items() if name not in left_out}
    for name in ("created_at", "event_at", "deadline_at", "reserved_at"):
        text[name] = nanoseconds(text[name])
    for name in ("delay_s", "ttr_s"):
        text[name] = int(text[name])  # damage may leave fractions
    return {**text, "tube": text["tube"] if text["kind"] == "full" else None}


def of_entries(entries: Sequence[Entry]) -> list[Row]:
    """Convert all entries of a file that the independent reader has read; no code of the package.

    Without the columns of the place, and `is_copy`, which test_entries.py has.
    """
    found: list[Row] = []
    newest, written = 0, 0 if entries and entries[0].file == 1 else -1
    open_ended: list[Row] = []
    for entry in entries:
        time, certainty = _event_time(entry)
        row = _of_entry(entry, time if certainty != "bounded" else max(time, newest), certainty)
        newest = max(newest, time)
        at = _written_at(entry, time, written)
        if at is not None:
            written = max(written, at)
            for earlier in open_ended:
                until = max(at, earlier["event_time_ns"])
                earlier["event_time_until"] = EPOCH + timedelta(microseconds=until // 1000)
            open_ended.clear()
        if certainty == "bounded":
            open_ended.append(row)
        if entry.full or entry.state != "invalid" or entry.body_size:  # else it is of no job
            found.append(row)
    return found


def _event_time(entry: Entry) -> tuple[int, str]:
    """Return the time of the event; "bounded" if only that of the put is known."""
    is_ours = _checksum(entry) == "right"
    before = {"delayed": entry.delay, "reserved": entry.ttr}.get(entry.state)
    if before is not None or is_ours:
        time = entry.deadline_at - (before or 0)
        # A delay in milliseconds is rounded up to a second.
        is_put = entry.state == "delayed" and not _has_counted(entry)
        if is_put and entry.created_at - 10**9 < time < entry.created_at:
            time = entry.created_at
        return time, "exact" if is_ours else "derived"
    is_new = entry.full and entry.state == "ready" and not _has_counted(entry)
    return entry.created_at, "derived" if is_new else "bounded"


def _written_at(entry: Entry, time: int, written: int) -> int | None:
    """Return when the entry was written, if that is certain after an entry written at `written`.

    A full entry may be a copy, unless its job is newer than an entry before it in the file.
    """
    if not entry.full:
        return time if _checksum(entry) == "right" or entry.state == "delayed" else None
    is_new = entry.state in ("ready", "delayed") and not _has_counted(entry)
    return entry.created_at if is_new and 0 <= written < entry.created_at else None


def _has_counted(entry: Entry) -> bool:
    return any(getattr(entry, name) for name in COUNTERS)


def _checksum(entry: Entry) -> str:
    if entry.mark[:1] != bytes([MARK]):
        return "none"
    if int.from_bytes(entry.mark[1:], "little") != entry.file & 0xFFFF:
        return "foreign"
    return "right" if entry.checksum_is_right else "wrong"


def _of_entry(entry: Entry, time: int, certainty: str) -> Row:
    has_deadline = entry.state in ("delayed", "reserved")
    is_old = not has_deadline and certainty != "exact" and entry.deadline_at > 0
    age = entry.reserve_age
    return {
        "file_number": entry.file,
        "offset": entry.offset,
        "size": entry.size,
        "kind": "full" if entry.full else "short",
        "id": entry.id,
        "tube": None if entry.tube is None else entry.tube.decode(),
        "priority": entry.pri,
        "delay": entry.delay // SECOND,
        "ttr": entry.ttr // SECOND,
        "body_size": entry.body_size - 2,
        "body": entry.body,
        "state": "deleted" if entry.ended else entry.state,
        "ended": entry.ended,
        **{name: getattr(entry, name) for name in COUNTERS},
        "checksum": _checksum(entry),
        "created_at_ns": entry.created_at,
        "event_time_ns": time,
        "event_time_kind": certainty,
        "event_time_until": None,
        "deadline_at_ns": entry.deadline_at if has_deadline else None,
        "old_deadline_at_ns": entry.deadline_at if is_old else None,
        "reserved_at_ns": time - (age - 1) if age else None,
    }


def of_message(message: Stored) -> Row:
    """Convert a message of a store to a row."""

    def host(pair: tuple[str, int]) -> str:
        return f"[{pair[0]}]:{pair[1]}" if ":" in pair[0] else f"{pair[0]}:{pair[1]}"

    assert message.store_host is not None
    return {
        "topic": message.topic,
        "tube": message.properties.get("TUBE") or unescape(message.topic),
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.offset,
        "tags": message.properties.get("TAGS"),
        "keys": message.keys,
        "properties": dict(message.properties),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "bornTimestamp": EPOCH + timedelta(milliseconds=message.born_timestamp),
        "storeTimestamp": EPOCH + timedelta(milliseconds=message.store_timestamp),
        "bornHost": host(message.born_host),
        "storeHost": host(message.store_host),
        "bodyCrc": message.body_crc,
        "bodySize": len(message.body),
        "body": message.body,
        "size": message.size,
        "preparedTransactionOffset": message.prepared_offset,
        "_corrupt_record": None,
    }


def without_place(found: list[Row]) -> Iterator[Row]:
    """Convert rows of messages as `of_message` does."""
    for row in found:
        same = {name: value for name, value in row.items() if name not in ("host", "path")}
        if same["_corrupt_record"] is None:
            same["properties"] = dict(same["properties"])
        yield same
