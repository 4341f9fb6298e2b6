"""Export messages to Parquet files, which appear atomically. This module imports PyArrow."""

from __future__ import annotations

import datetime
import itertools
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beanstalkd_py.history.message import KEYS, TAGS, Stored, host_text
from beanstalkd_py.history.topics import tube_of
from beanstalkd_py.symlinks import sync_folder

GROUP_ROWS = 1 << 16
GROUP_BYTES = 1 << 25
"""Limits of a row group: rows, and bytes of messages kept in memory."""
SUCCESS = "_SUCCESS"
"""Marks a complete folder, as in Spark and Hadoop."""

COUNTS = ("pri", "delay", "ttr", "reserves", "timeouts", "releases", "buries", "kicks")
"""Numeric properties of jobs, named as in `stats-job`; seconds and counts."""

_TIME = pa.timestamp("ms", tz="UTC")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)
_FIRST_MS = (datetime.datetime.min.replace(tzinfo=datetime.UTC) - _EPOCH) // _MS
_LAST_MS = (datetime.datetime.max.replace(tzinfo=datetime.UTC) - _EPOCH) // _MS
_DICTIONARIES = ["tube", "topic", "tags", "born_host", "store_host"]


@dataclass(slots=True)
class Written:
    """Completed files and rows."""

    files: int = 0
    rows: int = 0
    bytes: int = 0


def write_file(messages: Iterable[Stored], path: Path) -> Written:
    """Write all messages to one file, replacing an existing one. OSError leaves it unchanged."""
    # Spark ignores files whose names begin with a dot.
    staged = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    written = Written(files=1)
    try:
        with staged.open("xb") as file:
            with pq.ParquetWriter(
                file, SCHEMA, compression="zstd", use_dictionary=_DICTIONARIES
            ) as writer:
                for _, part in _parts(messages, GROUP_ROWS, GROUP_BYTES):
                    group = list(part)
                    writer.write_batch(batch_of(group), row_group_size=GROUP_ROWS)
                    written.rows += len(group)
            file.flush()
            os.fsync(file.fileno())
            written.bytes = os.fstat(file.fileno()).st_size
        staged.replace(path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return written


def write_folder(
    messages: Iterable[Stored], folder: Path, most_rows: int | None, most_bytes: int | None
) -> Written:
    """Write files of limited rows and bytes of messages to a folder, which is created if needed.

    SUCCESS is written last. A message above the limit gets its own file. After OSError complete
    files remain.
    """
    folder.mkdir(parents=True, exist_ok=True)
    total = Written()
    parts = _parts(messages, most_rows or math.inf, most_bytes or math.inf)
    for number, part in itertools.chain([next(parts, (0, iter(())))], parts):
        written = write_file(part, folder / f"part-{number:05d}.parquet")
        total.files += 1
        total.rows += written.rows
        total.bytes += written.bytes
    (folder / SUCCESS).touch()
    sync_folder(folder)
    return total


def _parts(
    messages: Iterable[Stored], most_rows: float, most_bytes: float
) -> Iterator[tuple[int, Iterator[Stored]]]:
    """Divide messages into numbered parts of limited rows and bytes, at least one row each."""
    number = rows = size = 0

    def part_of(message: Stored) -> int:
        nonlocal number, rows, size
        if rows and (rows >= most_rows or size + message.size > most_bytes):
            number, rows, size = number + 1, 0, 0
        rows += 1
        size += message.size
        return number

    return itertools.groupby(messages, part_of)


def _tube(message: Stored) -> str:
    # A foreign topic may contain bytes that are not UTF-8.
    return tube_of(message).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _time(timestamp: int) -> int | None:
    """Return None for a timestamp outside the calendar, which readers reject."""
    return timestamp if _FIRST_MS <= timestamp <= _LAST_MS else None


_COLUMNS: dict[str, tuple[Any, Callable[[Stored], Any]]] = {
    "tube": (pa.string(), _tube),
    "topic": (pa.string(), lambda message: message.topic),
    "job_id": (pa.int64(), methodcaller("number", KEYS)),
    "tags": (pa.string(), lambda message: message.properties.get(TAGS)),
    "keys": (pa.list_(pa.string()), lambda message: message.key_words),
    "stored_at": (_TIME, lambda message: _time(message.store_timestamp)),
    "born_at": (_TIME, lambda message: _time(message.born_timestamp)),
    **{name: (pa.int64(), methodcaller("number", name)) for name in COUNTS},
    "timeline": (pa.string(), lambda message: message.properties.get("timeline")),
    "queue_id": (pa.int32(), lambda message: message.queue_id),
    "queue_offset": (pa.int64(), lambda message: message.queue_offset),
    "offset": (pa.int64(), lambda message: message.offset),
    "size": (pa.int32(), lambda message: message.size),
    "message_id": (pa.string(), lambda message: message.message_id),
    "born_host": (pa.string(), lambda message: host_text(message.born_host)),
    "store_host": (pa.string(), lambda message: host_text(message.store_host)),
    "reconsume_times": (pa.int32(), lambda message: message.reconsume_times),
    "flag": (pa.int32(), lambda message: message.flag),
    "sys_flag": (pa.int32(), lambda message: message.sys_flag),
    "prepared_offset": (pa.int64(), lambda message: message.prepared_offset),
    "properties": (
        pa.map_(pa.string(), pa.string()),
        lambda message: list(message.properties.items()),
    ),
    "body": (pa.binary(), lambda message: message.body),
}

SCHEMA = pa.schema([(name, kind) for name, (kind, _) in _COLUMNS.items()])


def batch_of(messages: list[Stored]) -> Any:
    """Return a pyarrow.RecordBatch of SCHEMA with a row for each message."""
    arrays = [
        pa.array([value(message) for message in messages], kind)
        for kind, value in _COLUMNS.values()
    ]
    return pa.record_batch(arrays, schema=SCHEMA)
