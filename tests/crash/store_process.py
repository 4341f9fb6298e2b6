"""Change a history store, for test_store_power_cut.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from crash.steps_of_work import record_ranges
from history.stores import BY_HAND, SMALL, opened

from beanstalkd_py.history.store import Message, Retention, Store

TOPIC = "t"
SAVED = 20
MORE = 40
SIZES = replace(SMALL, property_crc=True)
OPTIONS = replace(BY_HAND, sizes=SIZES, retention=Retention(most_bytes=1, files_at_once=10))
"""Log files of 4096 bytes, all of which but the last expire."""


def append(store: Store, first: int, count: int) -> None:
    for number in range(first, first + count):
        body = b"x" * 300
        store.append([Message(topic=TOPIC, body=body, properties={"KEYS": f"k{number}"})])


def save(store: Store, count: int) -> None:
    append(store, 0, count)
    store.dispatch()
    store._save()


def expire(folder: Path) -> Iterator[None]:
    with opened(folder, OPTIONS) as store:
        save(store, SAVED + MORE)
        yield
        assert store.expire().log_files > 3
        yield


def begin_files(folder: Path) -> Iterator[None]:
    """Begin several files of the log without a sync."""
    with opened(folder, OPTIONS) as store:
        save(store, SAVED)
        yield
        append(store, SAVED, MORE)
        yield


def recover(folder: Path) -> Iterator[None]:
    """Open a store whose log has lost a sector of the first record after the last sync."""
    with opened(folder, OPTIONS) as store:
        save(store, SAVED)
        end = store.log.end
        append(store, SAVED, MORE)
        segments, at = store.log.segments, end % SIZES.segment_bytes
        path = segments.path(end - at)
        segments.sync()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(min(512, SIZES.segment_bytes - at)))
        os.fsync(file.fileno())
    yield
    with opened(folder, OPTIONS):
        pass
    yield


if __name__ == "__main__":
    record_ranges({"expire": expire, "begin files": begin_files, "recover": recover})
