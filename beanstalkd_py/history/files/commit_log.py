"""The commit log: every message, in the order of the appends.

csrc/store/encode.c encodes a batch as records; this module writes and reads the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from beanstalkd_py.errors import MessageRefusedError, StoreDamagedError
from beanstalkd_py.history._store import ffi, lib
from beanstalkd_py.history.files.segments import Segments
from beanstalkd_py.history.message import Stored, unpack_record
from beanstalkd_py.history.options import Sizes

PIECE = 512 * 1024
"""Bytes of records that are encoded or read at once."""
RECORDS_AT_ONCE = 4096
_RECORD_OVERHEAD = 128 * 1024

FAULTS = {
    lib.HS_FOUND_CUT: "the record does not end within its file",
    lib.HS_FOUND_BAD_MAGIC: "no record begins here",
    lib.HS_FOUND_BAD_SIZE: "sizes in the record contradict each other",
    lib.HS_FOUND_BAD_OFFSET: "the record has the offset of another place",
    lib.HS_FOUND_BAD_BODY: "the body does not have its checksum",
    lib.HS_FOUND_BAD_CRC: "the record does not have its checksum",
    lib.HS_FOUND_BAD_TEXT: "topic or properties have zeros in them",
    lib.HS_FOUND_NOTHING: "there is nothing where a record should be",
    lib.HS_FOUND_BLANK: "there is a blank where a record should be",
}
"""Descriptions of faults, by HS_FOUND_ value."""

_REFUSED = {
    lib.HS_ERR_LAYOUT: "its sizes contradict each other",
    lib.HS_ERR_TOPIC: "its topic is empty, longer than 255 bytes, no UTF-8 or no name of a folder",
    lib.HS_ERR_PROPERTIES: "its properties are no UTF-8, have zeros, or exceed 32,767 bytes",
    lib.HS_ERR_BODY: "its body is longer than max_body_bytes",
    lib.HS_ERR_SEGMENT: "it does not fit into a file of the commit log",
    lib.HS_ERR_QUEUE: "its queue id is negative",
    lib.HS_ERR_FLAG: "it is an inner batch",
}


@dataclass(frozen=True, slots=True)
class Appended:
    """The position of a batch in the log: `begin` to `end`; `last` is its last message."""

    begin: int
    end: int
    last: int
    count: int
    positions: Any
    """cffi's `int64_t[2 * count]`: offset and queue offset of each message."""

    @property
    def offsets(self) -> list[int]:
        return list(ffi.unpack(self.positions, 2 * self.count))[0::2]

    @property
    def queue_offsets(self) -> list[int]:
        """The queue offset of each message; 0 for prepared and rolled-back ones."""
        return list(ffi.unpack(self.positions, 2 * self.count))[1::2]


class CommitLog:
    """The log of a store. `end` is the offset of the next message, `last_offset` of the last one.

    The caller serializes appends; reads need no lock. Methods raise OSError.
    """

    def __init__(self, segments: Segments, sizes: Sizes, max_body: int) -> None:
        self.segments = segments
        self.end = segments.begin
        self.flushed = segments.begin
        self.last_offset: int | None = None
        self.last_timestamp = 0
        self.queues = ffi.gc(lib.hs_queues_new(), lib.hs_queues_free)
        self._limits = ffi.new("hs_limits *")
        self._limits.max_body = max_body
        self._limits.segment_bytes = sizes.segment_bytes
        self._limits.property_crc = sizes.property_crc
        self._encoding = ffi.new("hs_encoding *")
        self._out = bytearray(PIECE)
        self._largest = max(PIECE, min(max_body, sizes.segment_bytes) + _RECORD_OVERHEAD)
        self.has_property_crc = sizes.property_crc
        self.checks = lib.HS_CHECK_BODY
        """The HS_CHECK_ flags that decide whether a record is sound."""
        if sizes.property_crc:
            self.checks |= lib.HS_CHECK_PROPERTY_CRC

    @property
    def begin(self) -> int:
        return self.segments.begin

    def check(self, items: Any, length: int) -> int:
        """Return the number of messages. Raises MessageRefusedError if one cannot be stored."""
        fault_at = ffi.new("int64_t *")
        count = lib.hs_items_check(items, length, self._limits, fault_at)
        if count < 0:
            number = fault_at[0]
            raise MessageRefusedError(f"message {number} is refused: {_REFUSED[count]}", number)
        return count

    def append(self, items: Any, length: int, count: int, now: int) -> Appended:
        """Write a checked batch at the time `now` (milliseconds).

        After OSError nothing was stored; after StoreDamagedError a part of the batch may remain.
        """
        positions = ffi.new("int64_t[]", 2 * max(count, 1))
        encoding = self._encoding
        encoding.offset, encoding.now, encoding.store_timestamp = self.end, now, self.last_timestamp
        lib.hs_queues_mark(self.queues)
        last, encoded, consumed = -1, 0, 0
        try:
            while consumed < length:
                self._encode(items + consumed, length - consumed, positions + 2 * encoded)
                consumed += encoding.consumed
                encoded += encoding.count
                last = encoding.last_offset if encoding.count else last
        except BaseException:
            lib.hs_queues_undo(self.queues)
            try:
                self._undo_append(encoding.offset)
            except OSError as worse:
                raise StoreDamagedError(f"half a batch cannot be taken back: {worse}") from worse
            raise
        appended = Appended(self.end, encoding.offset, last, encoded, positions)
        if encoded:
            self.last_offset, self.last_timestamp = last, encoding.store_timestamp
        self.end = encoding.offset
        return appended

    def _encode(self, items: Any, length: int, positions: Any) -> None:
        """Encode and write some records, and move the encoding's offset behind them."""
        encoding = self._encoding
        start = self.segments.start_of(encoding.offset)
        if start not in self.segments.starts:
            self.segments.create(start)
        encoding.segment_end = start + self.segments.size
        for space in (PIECE, self._largest):  # a single record may be larger than a piece
            if len(self._out) < space:
                self._out = bytearray(space)
            with ffi.from_buffer("char[]", self._out) as out:
                result = lib.hs_encode(
                    self.queues, self._limits, items, length, out, space, positions, encoding
                )
            if result < 0:
                raise MemoryError
            if encoding.produced:
                break
        assert encoding.produced, "no record is larger than the buffer"
        with memoryview(self._out) as view:
            self.segments.write(encoding.offset, view[: encoding.produced])
        is_full = encoding.why == lib.HS_ENCODED_SEGMENT_FULL
        encoding.offset = encoding.segment_end if is_full else encoding.offset + encoding.produced

    def _undo_append(self, reached: int) -> None:
        """Zero everything behind the end, because recovery would read leftover records."""
        self.segments.remove_from(self.end + 1)
        first = self.segments.start_of(self.end)
        if first not in self.segments.starts:
            return
        # The write that failed may have stored a part of the buffer behind `reached`.
        until = min(first + self.segments.size, max(reached, self.end) + len(self._out))
        for at in range(self.end, until, PIECE):
            self.segments.write(at, bytes(min(PIECE, until - at)))

    def message(self, offset: int) -> Stored | None:
        """Return the message that begins at an offset, or None if none does or it is damaged."""
        if not self.begin <= offset < self.segments.end:
            return None
        size = record_size(self.segments.read(offset, 4))
        if size <= 0:
            return None
        data = self.segments.read(offset, size)
        record = ffi.new("hs_record *")
        with memoryview(data) as view, ffi.from_buffer("char[]", data) as memory:
            result = lib.hs_record_read(memory, len(view), offset, self.checks, record)
            return unpack_record(record, view) if result == lib.HS_FOUND_RECORD else None

    def store_timestamp(self, offset: int) -> int | None:
        """Return the store timestamp of the message at an offset without reading its body."""
        data = self.segments.read(offset, 76)
        if len(data) < 76:
            return None
        sys_flag = int.from_bytes(data[36:40], "big", signed=True)
        at = 48 + (20 if sys_flag & 16 else 8)
        return int.from_bytes(data[at : at + 8], "big", signed=True)


class LogWalk:
    """Iterates over the log's records, many at a time.

    After the last one, `stop_reason` is HS_FOUND_NOTHING or the fault of the record at `offset`.
    """

    def __init__(self, log: CommitLog, begin: int, checks: int) -> None:
        self.offset = begin
        self.stop_reason = lib.HS_FOUND_RECORD
        self._segments = log.segments
        self._checks = checks
        self._records = ffi.new("hs_record[]", RECORDS_AT_ONCE)
        self._count = 0
        self._buffer = bytearray(PIECE)
        self._scanned = ffi.new("hs_scanned *")

    @property
    def last(self) -> Any:
        """The last `hs_record` of a successful `advance`."""
        return self._records[self._count - 1]

    def advance(self) -> bool:
        """Read the next records; return False at the end."""
        segments = self._segments
        while True:
            start = segments.start_of(self.offset)
            if start not in segments.starts:
                self.stop_reason = lib.HS_FOUND_NOTHING
                return False
            left = start + segments.size - self.offset
            with memoryview(self._buffer) as view:
                got = segments.read_into(self.offset, view)
            at, checks, scanned = self.offset, self._checks, self._scanned
            with ffi.from_buffer("char[]", self._buffer) as data:
                lib.hs_scan(data, got, at, checks, self._records, RECORDS_AT_ONCE, scanned)
            self.stop_reason, self._count = scanned.why, scanned.count
            self.offset += scanned.used
            if self._count:
                return True
            if self.stop_reason == lib.HS_FOUND_BLANK:
                self.offset = start + segments.size
                continue
            if self.stop_reason != lib.HS_FOUND_CUT or got < len(self._buffer) or got == left:
                return False
            size = record_size(self._buffer)
            if size > left:
                return False  # the record is longer than its file
            self._buffer = bytearray(size)

    def messages(self, end: int) -> Iterator[Stored]:
        """Yield the messages before an offset."""
        while self.advance():
            begin = self._records[0].offset
            with memoryview(self._buffer) as view:
                for number in range(self._count):
                    record = self._records[number]
                    if record.offset >= end:
                        return
                    yield unpack_record(record, view[record.offset - begin :])


def record_size(data: bytes | bytearray) -> int:
    """Return the size of the record that the data begin with."""
    return int.from_bytes(data[:4], "big", signed=True)


def damage_error(log: CommitLog, offset: int, fault: int) -> StoreDamagedError:
    return StoreDamagedError(f"{log.segments.location(offset)}: {FAULTS[fault]}")
