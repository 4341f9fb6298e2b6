"""Detect the file sizes of a store without `store.json`.

Log and queue files have the configured length. The length of an index file is only the sum of slots
and entries; a candidate pair is right if the slot of the newest entry refers to that entry.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from beanstalkd_py.errors import StoreUsageError
from beanstalkd_py.history._store import ffi, lib
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.files.commit_log import record_size
from beanstalkd_py.history.files.open_files import open_existing
from beanstalkd_py.history.options import Sizes

_NEXT_ENTRY_AT = 36
"""Where the header has the number of the next entry."""
_TRY_ALL_BELOW = 1 << 20
_USUAL_RATIOS = (4, 2, 1, 3, 5, 8, 10, 16, 20)
"""Entries for each slot; RocketMQ uses 4."""


def infer_sizes(store: Path, wanted: Sizes | None = None, reads_index: bool = True) -> Sizes:
    """Return the sizes of an existing store; `wanted` or RocketMQ's where no file shows them.

    Raises StoreUsageError if no pair of slots and entries fits an index file that does not have the
    wanted size, unless `reads_index` is False.
    """
    defaults = wanted or Sizes()
    queues = (
        store / layout.CONSUME_QUEUE / topic / str(queue_id)
        for topic, queue_id in layout.queue_folders(store)
    )
    queue_bytes = next(filter(None, map(_length, queues)), 0)
    slots, entries = defaults.index_slots, defaults.index_entries
    try:
        slots, entries = _index_sizes_of_store(store, wanted) or (slots, entries)
    except StoreUsageError:
        if reads_index:
            raise
    return Sizes(
        segment_bytes=_length(store / layout.COMMIT_LOG) or defaults.segment_bytes,
        queue_file_units=queue_bytes // lib.HS_UNIT or defaults.queue_file_units,
        index_slots=slots,
        index_entries=entries,
        property_crc=_has_property_crc(store),
    )


def _index_sizes_of_store(store: Path, wanted: Sizes | None) -> tuple[int, int] | None:
    """Return slots and entries of the most frequent file length; None without files."""
    paths = [store / layout.INDEX / name for name in layout.index_names(store / layout.INDEX)]
    failure: StoreUsageError | None = None
    for length in _usual_lengths(paths):
        if wanted is not None:
            slots, entries = wanted.index_slots, wanted.index_entries
            if length == lib.hs_index_bytes(slots, entries):
                return slots, entries
        try:
            return index_sizes(next(path for path in paths if path.stat().st_size == length))
        except StoreUsageError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return None


def _usual_lengths(paths: Iterable[Path]) -> list[int]:
    """Return the lengths of non-empty files, most frequent first, then largest."""
    counted = Counter(path.stat().st_size for path in paths)
    del counted[0]
    return sorted(counted, key=lambda length: (counted[length], length), reverse=True)


def _length(folder: Path) -> int:
    """Return the usual length of the files of a folder; 0 without files."""
    paths = (folder / layout.segment_name(start) for start in layout.segment_starts(folder))
    return next(iter(_usual_lengths(paths)), 0)


def _has_property_crc(store: Path) -> bool:
    folder = store / layout.COMMIT_LOG
    for start in layout.segment_starts(folder):
        with _opened(folder / layout.segment_name(start)) as log:
            head = log.read(4)
            data = head + log.read(max(record_size(head) - 4, 0))
        record = ffi.new("hs_record *")
        with ffi.from_buffer("char[]", data) as memory:
            result = lib.hs_record_read(memory, len(data), start, 0, record)
        if result == lib.HS_FOUND_RECORD:
            return bool(record.has_crc)
    return False


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(open_existing(path, writable=False), "rb")


def index_sizes(path: Path) -> tuple[int, int]:
    """Return slots and entries of an index file. Raises StoreUsageError if none fit."""
    with _opened(path) as index:
        return index_sizes_of(index, path.stat().st_size, str(path))


def index_sizes_of(index: BinaryIO, size: int, name: str) -> tuple[int, int]:
    """Like `index_sizes` for an open file; errors call it `name`."""
    next_entry = _read_number(index, _NEXT_ENTRY_AT)
    for slots, entries in _candidates(size):
        if 0 <= next_entry <= entries and _slot_refers_to(
            index, slots, newest=max(next_entry - 1, 0)
        ):
            return slots, entries
    raise StoreUsageError(
        f"{name}: {size} bytes fit no number of slots and entries; give the sizes"
    )


def _candidates(size: int) -> Iterator[tuple[int, int]]:
    body = size - lib.HS_INDEX_HEADER
    for ratio in _USUAL_RATIOS:
        slots, left = divmod(body, 4 + lib.HS_INDEX_ENTRY * ratio)
        if left == 0 and slots > 0:
            yield slots, slots * ratio
    if size < _TRY_ALL_BELOW:
        for entries in range(2, body // lib.HS_INDEX_ENTRY + 1):
            slots, left = divmod(body - entries * lib.HS_INDEX_ENTRY, 4)
            if left == 0 and slots > 0:
                yield slots, entries


def _slot_refers_to(index: BinaryIO, slots: int, newest: int) -> bool:
    """Return whether the slot of the newest entry refers to it; true without entries."""
    if newest == 0:
        return True
    entry_at = lib.HS_INDEX_HEADER + slots * 4 + newest * lib.HS_INDEX_ENTRY
    code = _read_number(index, entry_at)
    return code >= 0 and _read_number(index, lib.HS_INDEX_HEADER + (code % slots) * 4) == newest


def _read_number(index: BinaryIO, at: int) -> int:
    index.seek(at)
    return int.from_bytes(index.read(4), "big", signed=True)
