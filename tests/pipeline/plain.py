"""Plain Python rows of binlogs and stores, to compare the sources with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from binlog.reader import number_of

from beanstalkd_py.binlog.dump import dump
from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.core.binlog_reader import Selection
from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.topics import unescape
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.stores.plan import StorePlan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


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
        "ended": ended_of(row),
        **{name: row[name] for name in ("reserves", "timeouts", "releases", "buries", "kicks")},
        "checksum": None if row["checksum"] == "none" else row["checksum"],
        "tube": row["tube"],
    }


def ended_of(row: Row) -> str | None:
    if row["state"] != "deleted":
        return None
    return "truncated" if row["truncated"] else "deleted"


def of_dump(row: Row) -> Row:
    """Convert a line of a dump. The tube of a short entry is missing."""
    if "what" in row:
        return {"offset": row["offset"], "what": row["what"]}
    assert row["length_of"] is None, "a length entry has no row"
    left_out = ("file", "length_of", "length")
    text = {name: value for name, value in row.items() if name not in left_out}
    for name in ("created_at", "event_at", "deadline_at", "reserved_at"):
        text[name] = nanoseconds(text[name])
    for name in ("delay_s", "ttr_s"):
        text[name] = int(text[name])  # damage may leave fractions
    return {**text, "tube": text["tube"] if text["kind"] == "full" else None}


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
