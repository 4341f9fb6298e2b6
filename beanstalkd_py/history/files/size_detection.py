"""Sizes of a store that says nothing of them itself, from its files.

Log and queues tell theirs by the length of any file. An index file tells only the sum of slots and
entries; a pair is right if the newest entry is what its slot leads to. It must not change anything.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from beanstalkd_py.errors import StoreUsageError
from beanstalkd_py.history._store import ffi, lib
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.options import Sizes

_HEADER = struct.Struct(">qqqqii")
_TRY_ALL_BELOW = 1 << 20
_USUAL_RATIOS = (4, 2, 1, 3, 5, 8, 10, 16, 20)
"""Entries for each slot; 4 is RocketMQ's."""


def infer_sizes(store: Path, wanted: Sizes | None = None, with_index: bool = True) -> Sizes:
    """Sizes of an existing store; where it has no file to tell them, those wanted or RocketMQ's.

    StoreUsageError if no index file tells a pair of slots and entries that can be, unless that is
    wanted. Without `with_index` index files are not looked at.
    """
    usual = wanted or Sizes()
    segment = _length(store / layout.COMMIT_LOG) or usual.segment_bytes
    queue_bytes = 0
    for topic, queue_id in layout.queue_folders(store):
        queue_bytes = _length(store / layout.CONSUME_QUEUE / topic / str(queue_id))
        if queue_bytes:
            break
    of_index = _index_sizes_of_store(store, wanted) if with_index else None
    slots, entries = of_index or (usual.index_slots, usual.index_entries)
    return Sizes(
        segment_bytes=segment,
        queue_file_units=queue_bytes // lib.HS_UNIT or usual.queue_file_units,
        index_slots=slots,
        index_entries=entries,
        property_crc=_has_property_crc(store),
    )


def infer_readable_sizes(store: Path) -> Sizes:
    """As `infer_sizes`, for reading: index files that tell nothing are left unread."""
    try:
        return infer_sizes(store)
    except StoreUsageError:
        return infer_sizes(store, Sizes(), with_index=False)


def _index_sizes_of_store(store: Path, wanted: Sizes | None) -> tuple[int, int] | None:
    """Slots and entries, by the files of the length that most have; None without a file."""
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
    """Lengths of the files, the most frequent first, then the largest. Empty files do not count."""
    counted = Counter(path.stat().st_size for path in paths)
    del counted[0]
    return sorted(counted, key=lambda length: (counted[length], length), reverse=True)


def _length(folder: Path) -> int:
    """Bytes of its files, 0 without one: one that was cut short does not count."""
    paths = (folder / layout.segment_name(start) for start in layout.segment_starts(folder))
    return next(iter(_usual_lengths(paths)), 0)


def _has_property_crc(store: Path) -> bool:
    folder = store / layout.COMMIT_LOG
    for start in layout.segment_starts(folder):
        with (folder / layout.segment_name(start)).open("rb") as log:
            head = log.read(4)
            data = head + log.read(max(int.from_bytes(head, "big", signed=True) - 4, 0))
        record = ffi.new("hs_record *")
        with ffi.from_buffer("char[]", data) as memory:
            found = lib.hs_record_read(memory, len(data), start, 0, record)
        if found == lib.HS_FOUND_RECORD:
            return bool(record.has_crc)
    return False


def index_sizes(path: Path) -> tuple[int, int]:
    """Slots and entries of an index file. StoreUsageError if none fit."""
    with path.open("rb") as index:
        return index_sizes_of(index, path.stat().st_size, str(path))


def index_sizes_of(index: BinaryIO, size: int, name: str) -> tuple[int, int]:
    """The same of an index file that is open. `name` is what errors call it."""
    header = _HEADER.unpack(index.read(_HEADER.size).ljust(_HEADER.size, b"\0"))
    newest = max(header[5] - 1, 0)
    for slots, entries in _candidates(size):
        if 0 <= header[5] <= entries and _leads(index, slots, newest):
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


def _leads(index: BinaryIO, slots: int, newest: int) -> bool:
    """Whether the slot of the newest entry leads to it. True of any pair without an entry."""
    if newest == 0:
        return True

    def number(at: int) -> int:
        index.seek(at)
        data: bytes = index.read(4)
        return int.from_bytes(data, "big", signed=True)

    entry_at = lib.HS_INDEX_HEADER + slots * 4 + newest * lib.HS_INDEX_ENTRY
    code = number(entry_at)
    return code >= 0 and number(lib.HS_INDEX_HEADER + (code % slots) * 4) == newest
