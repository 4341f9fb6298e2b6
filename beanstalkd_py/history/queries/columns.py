"""Messages as Arrow columns. This module imports PyArrow."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from beanstalkd_py.history.message import TAGS, Host, Stored
from beanstalkd_py.history.topics import tube_of

COUNTS = ("pri", "delay", "ttr", "reserves", "timeouts", "releases", "buries", "kicks")
"""Numeric properties of jobs, named as in `stats-job`; seconds and counts."""

_INT64_MAX = 2**63 - 1
_TIME = pa.timestamp("ms", tz="UTC")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FIRST_MS = (datetime.datetime.min.replace(tzinfo=datetime.UTC) - _EPOCH) // datetime.timedelta(
    milliseconds=1
)
_LAST_MS = (datetime.datetime.max.replace(tzinfo=datetime.UTC) - _EPOCH) // datetime.timedelta(
    milliseconds=1
)


def job_id_of(message: Stored) -> int | None:
    """Return the job's id: the only word of KEYS, if it is a number."""
    return _whole(message.properties.get("KEYS", ""))


def _whole(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    number = int(text)
    return number if number <= _INT64_MAX else None


def _keys(message: Stored) -> list[str]:
    return [word for word in message.properties.get("KEYS", "").split(" ") if word]


def _tube(message: Stored) -> str:
    # A foreign topic may contain bytes that are not UTF-8.
    return tube_of(message).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _time(timestamp: int) -> int | None:
    """Return None for a timestamp outside the calendar, which readers reject."""
    return timestamp if _FIRST_MS <= timestamp <= _LAST_MS else None


def _host(host: Host | None) -> str | None:
    if host is None:
        return None
    address, port = host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _count(name: str) -> Callable[[Stored], int | None]:
    return lambda message: _whole(message.properties.get(name, ""))


_COLUMNS: dict[str, tuple[Any, Callable[[Stored], Any]]] = {
    "tube": (pa.string(), _tube),
    "topic": (pa.string(), lambda message: message.topic),
    "job_id": (pa.int64(), job_id_of),
    "tags": (pa.string(), lambda message: message.properties.get(TAGS)),
    "keys": (pa.list_(pa.string()), _keys),
    "stored_at": (_TIME, lambda message: _time(message.store_timestamp)),
    "born_at": (_TIME, lambda message: _time(message.born_timestamp)),
    **{name: (pa.int64(), _count(name)) for name in COUNTS},
    "timeline": (pa.string(), lambda message: message.properties.get("timeline")),
    "queue_id": (pa.int32(), lambda message: message.queue_id),
    "queue_offset": (pa.int64(), lambda message: message.queue_offset),
    "offset": (pa.int64(), lambda message: message.offset),
    "size": (pa.int32(), lambda message: message.size),
    "message_id": (pa.string(), lambda message: message.message_id),
    "born_host": (pa.string(), lambda message: _host(message.born_host)),
    "store_host": (pa.string(), lambda message: _host(message.store_host)),
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
