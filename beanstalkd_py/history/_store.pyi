"""Types of the cffi module built from csrc/store/store.h.

C structures and pointers are Any; the calling modules give them types.
"""

from typing import Any

class _FFI:
    NULL: Any
    def new(self, cdecl: str, init: Any = ...) -> Any: ...
    def from_buffer(self, cdecl: str, buffer: Any, require_writable: bool = ...) -> Any: ...
    def buffer(self, cdata: Any, size: int = ...) -> Any: ...
    def gc(self, cdata: Any, destructor: Any) -> Any: ...
    def release(self, cdata: Any) -> None: ...
    def unpack(self, cdata: Any, length: int) -> Any: ...

class _Lib:
    HS_UNIT: int
    HS_INDEX_HEADER: int
    HS_INDEX_ENTRY: int
    HS_ERR_LAYOUT: int
    HS_ERR_TOPIC: int
    HS_ERR_PROPERTIES: int
    HS_ERR_BODY: int
    HS_ERR_SEGMENT: int
    HS_ERR_QUEUE: int
    HS_ERR_FLAG: int
    HS_ENCODED_SEGMENT_FULL: int
    HS_FOUND_RECORD: int
    HS_FOUND_BLANK: int
    HS_FOUND_NOTHING: int
    HS_FOUND_CUT: int
    HS_FOUND_BAD_MAGIC: int
    HS_FOUND_BAD_SIZE: int
    HS_FOUND_BAD_OFFSET: int
    HS_FOUND_BAD_BODY: int
    HS_FOUND_BAD_CRC: int
    HS_FOUND_BAD_TEXT: int
    HS_CHECK_BODY: int
    HS_CHECK_HAS_CRC: int
    HS_CHECK_TEXT: int
    HS_CHECK_PROPERTY_CRC: int
    HS_DISPATCH_GAP: int
    HS_INDEX_SOUND: int
    HS_INDEX_HEADER_WRONG: int
    HS_INDEX_LINK_WRONG: int
    HS_INDEX_SLOT_WRONG: int
    HS_INDEX_ENTRY_WRONG: int
    def hs_queues_new(self) -> Any: ...
    def hs_queues_free(self, queues: Any) -> None: ...
    def hs_queues_set(
        self, queues: Any, topic: bytes, topic_length: int, queue_id: int, next: int
    ) -> int: ...
    def hs_queues_name(self, queues: Any, number: int, name: Any) -> None: ...
    def hs_queues_mark(self, queues: Any) -> None: ...
    def hs_queues_undo(self, queues: Any) -> None: ...
    def hs_items_check(self, items: Any, length: int, limits: Any, fault_at: Any) -> int: ...
    def hs_encode(
        self,
        queues: Any,
        limits: Any,
        items: Any,
        length: int,
        out: Any,
        capacity: int,
        places: Any,
        encoding: Any,
    ) -> int: ...
    def hs_record_read(
        self, data: Any, length: int, offset: int, checks: int, record: Any
    ) -> int: ...
    def hs_scan(
        self,
        data: Any,
        length: int,
        offset: int,
        checks: int,
        records: Any,
        most: int,
        scanned: Any,
    ) -> None: ...
    def hs_java_hash(self, seed: int, text: bytes, length: int) -> int: ...
    def hs_is_utf8(self, text: bytes, length: int) -> int: ...
    def hs_crc32(self, crc: int, data: Any, length: int) -> int: ...
    def hs_dispatch_new(self) -> Any: ...
    def hs_dispatch_free(self, dispatch: Any) -> None: ...
    def hs_dispatch_run(
        self, dispatch: Any, queues: Any, data: Any, length: int, offset: int, dispatched: Any
    ) -> int: ...
    def hs_index_bytes(self, slots: int, entries: int) -> int: ...
    def hs_index_read_header(self, index: Any, header: Any) -> None: ...
    def hs_index_write_header(self, index: Any, header: Any) -> None: ...
    def hs_index_put(self, index: Any, slots: int, entries: int, keys: Any, count: int) -> int: ...
    def hs_index_rewind(self, index: Any, slots: int, entries: int, header: Any) -> int: ...
    def hs_index_find(
        self,
        index: Any,
        slots: int,
        entries: int,
        hash: int,
        begin: int,
        end: int,
        offsets: Any,
        most: int,
        cursor: Any,
    ) -> int: ...
    def hs_index_check(self, index: Any, slots: int, entries: int, at: Any) -> int: ...
    def hs_index_compare(
        self, index: Any, slots: int, entries: int, keys: Any, count: int, comparison: Any
    ) -> int: ...

ffi: _FFI
lib: _Lib
