"""What cffi builds from csrc/columns/columns.h, as far as the package uses it.

C structures and pointers are opaque to the type checker (Any): the modules that call them give
them types.
"""

from typing import Any

class _FFI:
    NULL: Any
    def new(self, cdecl: str, init: Any = ...) -> Any: ...
    def buffer(self, cdata: Any, size: int = ...) -> Any: ...
    def cast(self, cdecl: str, source: Any) -> Any: ...
    def from_buffer(self, cdecl: str, buffer: Any, require_writable: bool = ...) -> Any: ...
    def string(self, cdata: Any, maxlen: int = ...) -> bytes: ...
    def gc(self, cdata: Any, destructor: Any) -> Any: ...
    def release(self, cdata: Any) -> None: ...

class _Lib:
    BC_END: int
    BC_MORE: int
    BC_FAULT: int
    BC_NO_SPACE: int
    BC_FILE_EMPTY: int
    BC_FILE_ENTRIES: int
    BC_FILE_VERSION: int
    BC_OFFSET: int
    BC_SIZE: int
    BC_KIND: int
    BC_ID: int
    BC_TUBE: int
    BC_PRIORITY: int
    BC_DELAY: int
    BC_TTR: int
    BC_BODY_SIZE: int
    BC_CREATED_AT: int
    BC_EVENT_TIME: int
    BC_EVENT_KIND: int
    BC_EVENT_UNTIL: int
    BC_DEADLINE_AT: int
    BC_STATE: int
    BC_RESERVES: int
    BC_TIMEOUTS: int
    BC_RELEASES: int
    BC_BURIES: int
    BC_KICKS: int
    BC_CHECKSUM: int
    BC_IS_COPY: int
    BC_CREATED_NS: int
    BC_EVENT_NS: int
    BC_DEADLINE_NS: int
    BC_RESERVED_AT: int
    BC_RESERVED_NS: int
    BC_TRUNCATED: int
    BC_OLD_DEADLINE_NS: int
    BC_BODY: int
    BC_LOG_TOPIC: int
    BC_LOG_TUBE: int
    BC_LOG_QUEUE_ID: int
    BC_LOG_QUEUE_OFFSET: int
    BC_LOG_OFFSET: int
    BC_LOG_SIZE: int
    BC_LOG_TAGS: int
    BC_LOG_KEYS: int
    BC_LOG_KEY_TEXT: int
    BC_LOG_PROPERTIES: int
    BC_LOG_PROPERTY_NAME: int
    BC_LOG_PROPERTY_VALUE: int
    BC_LOG_FLAG: int
    BC_LOG_SYS_FLAG: int
    BC_LOG_RECONSUMED: int
    BC_LOG_BORN: int
    BC_LOG_STORED: int
    BC_LOG_BORN_HOST: int
    BC_LOG_STORE_HOST: int
    BC_LOG_BODY_CRC: int
    BC_LOG_BODY_SIZE: int
    BC_LOG_PREPARED: int
    BC_LOG_BODY: int
    BC_UNIT_OFFSET: int
    BC_UNIT_SIZE: int
    BC_UNIT_TAG_CODE: int
    BC_UNIT_NUMBER: int
    BC_INDEX_NUMBER: int
    BC_INDEX_SLOT: int
    BC_INDEX_HASH: int
    BC_INDEX_OFFSET: int
    BC_INDEX_STORED: int
    BC_INDEX_PREVIOUS: int
    BC_FLAGS_CERTAINTY: int
    BC_FLAGS_SOUND: int
    BC_FLAGS_TRUNCATED: int
    BC_FLAGS_FULL: int
    def bc_histories_new(self) -> Any: ...
    def bc_histories_free(self, lives: Any) -> None: ...
    def bc_histories_of_entries(self, lives: Any, entries: Any, last: int) -> int: ...
    def bc_histories_of_timelines(
        self, lives: Any, data: Any, ends: Any, truncated: Any, rows: int
    ) -> int: ...
    def bc_histories_columns(self, lives: Any) -> Any: ...
    def bc_entries_new(self) -> Any: ...
    def bc_entries_free(self, entries: Any) -> None: ...
    def bc_entries_open(self, entries: Any, data: Any, length: int, number: int) -> int: ...
    def bc_entries_range(self, entries: Any, begin: int, end: int) -> None: ...
    def bc_entries_read(self, entries: Any, batch: Any) -> int: ...
    def bc_entries_skip(self, entries: Any) -> None: ...
    def bc_entries_fault(self, entries: Any, fault: Any) -> None: ...
    def bc_entries_end(self, entries: Any) -> int: ...
    def bc_entries_version(self, entries: Any) -> int: ...
    def bc_log_read(self, log: Any, batch: Any) -> int: ...
    def bc_log_seek(self, log: Any, begin: int) -> None: ...
    def bc_log_skip(self, log: Any) -> None: ...
    def bc_units_read(self, data: Any, length: int, first: int, at: Any, batch: Any) -> int: ...
    def bc_index_read(
        self, data: Any, length: int, slots: int, entries: int, at: Any, batch: Any
    ) -> int: ...

ffi: _FFI
lib: _Lib
