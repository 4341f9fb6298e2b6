"""Typed wrapper of csrc/api/history.h: job histories from binlog folders that servers write to.

Methods without a docstring do what their C function does. The module is independent of the history
store and of the removal of files.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.core.c_values import raise_errno


@dataclass(frozen=True, slots=True)
class Progress:
    """The result of one read.

    `items` is a batch of `count` messages for a store (`hs_item` of csrc/store/store.h). With
    `more`, the next read would return more at once.
    """

    items: bytes
    count: int
    more: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """Damage at `offset` (bytes) of a file."""

    folder: int
    file: int
    offset: int
    what: str


@dataclass(frozen=True, slots=True)
class HistoryStats:
    """Counters since the start; `open` is the jobs that are not finished now.

    `orphans` ended without a message, because their full entry was not seen. `left_out` is bodies
    that were too large or unreadable.
    """

    open: int
    finished: int
    orphans: int
    left_out: int
    bytes_read: int


class JobHistories:
    """The open jobs of some folders. Methods raise OSError or MemoryError.

    A message has a job's tube, id, end, counters and timeline. Its UNIQ_KEY is the key of the
    folder, and file and offset of the entry that ended the job, joined by "-".
    """

    def __init__(
        self, topic_of: Callable[[bytes], bytes], most_body: int, most_events: int = 256
    ) -> None:
        """`topic_of` returns the topic of a tube, and is called once for each tube.

        A body of more than `most_body` bytes is left out. A timeline has at most `most_events`
        events, 2 to 500. Raises ValueError.
        """
        if most_events < 2 or most_body < 0:
            raise ValueError("at least 2 events are kept, and a body has at least 0 bytes")
        self._topic_of = topic_of
        created = ffi.new("bs_history **")
        events = min(most_events, 2**31)
        raise_errno(lib.bs_history_new(min(most_body, 2**63), events, created))
        self._histories = ffi.gc(created[0], lib.bs_history_free)
        self._length = ffi.new("size_t *")
        self._number = ffi.new("uint64_t *")

    def close(self) -> None:
        ffi.release(self._histories)

    # --- before anything is read --------------------------------------------------------------

    def add_folder(self, path: Path, key: str) -> int:
        """Follow a folder from its lowest file on; return its index.

        UNIQ_KEY of its messages begins with `key`, at most 200 bytes without 0, 1 or 2: ValueError.
        """
        encoded = key.encode()
        if not encoded or len(encoded) > 200 or any(byte < 3 for byte in encoded):
            raise ValueError(f"{key!r} cannot begin a UNIQ_KEY")
        return raise_errno(lib.bs_history_add_folder(self._histories, os.fsencode(path), encoded))

    def set_checkpointed(self, folder: int, file: int, offset: int) -> None:
        """Ignore entries before this position: the checkpoint has their events."""
        lib.bs_history_set_checkpointed(self._histories, folder, file, offset)

    def set_archived(self, folder: int, file: int, offset: int) -> None:
        """Make no messages from entries up to this position: the store has them."""
        lib.bs_history_set_archived(self._histories, folder, file, offset)

    def load_checkpoint(self, data: bytes) -> None:
        """Load the result of `save_checkpoint`. ValueError if it is damaged or too late."""
        result = lib.bs_history_load_checkpoint(self._histories, data, len(data))
        if result == -errno.EINVAL:
            raise ValueError("load the checkpoint once, and before anything is read")
        if result == -errno.EBADMSG:
            raise ValueError("the checkpoint is damaged")
        raise_errno(result)

    # --- reading ------------------------------------------------------------------------------

    def read(self, folder: int, durable_file: int, durable_end: int, budget: int) -> Progress:
        """Read about `budget` bytes of files, or make that many bytes of messages.

        It stops at the durable position: offset `durable_end` of file `durable_file`. Exceptions of
        `topic_of` are passed on. After an exception nothing is lost, and the next call continues.
        """
        parts: list[bytes] = []
        count = 0
        while True:
            try:
                result = raise_errno(
                    lib.bs_history_read(
                        self._histories, folder, durable_file, durable_end, max(budget, 1)
                    )
                )
                self._take(parts)
                count += self._number[0]
                if result != lib.BS_HISTORY_TOPIC:
                    return Progress(b"".join(parts), count, result == lib.BS_HISTORY_MORE)
                self._set_topic()
            except Exception:
                if count == 0:
                    raise
                return Progress(b"".join(parts), count, True)  # the next call raises it again

    def _take(self, parts: list[bytes]) -> None:
        items = lib.bs_history_items(self._histories, self._length, self._number)
        if self._length[0]:
            parts.append(bytes(ffi.buffer(items, self._length[0])))

    def _set_topic(self) -> None:
        tube = lib.bs_history_tube(self._histories, self._length)
        topic = self._topic_of(bytes(ffi.buffer(tube, self._length[0])))
        if not 0 < len(topic) <= 255:
            raise ValueError(f"{topic!r} is no topic")
        raise_errno(lib.bs_history_set_topic(self._histories, topic, len(topic)))

    # --- queries ---------------------------------------------------------------------------

    def position(self, folder: int) -> tuple[int, int]:
        """Return file and offset of the next read; zeros before the first one."""
        position = lib.bs_history_position(self._histories, folder)
        return position.file, position.offset

    def drop_unseen(self) -> None:
        lib.bs_history_drop_unseen(self._histories)

    def needed_from(self, folder: int) -> int:
        return raise_errno(lib.bs_history_needed_from(self._histories, folder))

    def faults(self) -> list[Fault]:
        faults = []
        while (fault := lib.bs_history_next_fault(self._histories)) != ffi.NULL:
            text = ffi.string(fault.what).decode("utf-8", "replace")
            faults.append(Fault(fault.folder, fault.position.file, fault.position.offset, text))
        return faults

    @property
    def stats(self) -> HistoryStats:
        stats = lib.bs_history_get_stats(self._histories)
        return HistoryStats(stats.open, stats.finished, stats.orphans, stats.left_out, stats.bytes)

    def save_checkpoint(self) -> bytes:
        """Return the state that a successor needs besides the files from `needed_from` on.

        The caller keeps messages that were returned. Raises MemoryError.
        """
        data = lib.bs_history_save_checkpoint(self._histories, self._length)
        if data == ffi.NULL:
            raise MemoryError("no memory for the checkpoint")
        return bytes(ffi.buffer(data, self._length[0]))
