"""class JobHistories: jobs followed through binlog folders that servers write to, for a history.

What csrc/history/job_history.h does, with types, and with an exception where C returns a negative
number. It must not know the history store, nor who deletes files and when.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.core.errno_errors import raise_errno


@dataclass(frozen=True, slots=True)
class Progress:
    """What one reading has brought.

    `items` is a batch as `Store` takes it (`hs_item` of csrc/store/store.h) of `count` messages.
    With `more` there is more to be read at once.
    """

    items: bytes
    count: int
    more: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """What was wrong at `offset` (bytes) of the file with number `file` of a folder."""

    folder: int
    file: int
    offset: int
    what: str


@dataclass(frozen=True, slots=True)
class HistoryStats:
    """Counted since the beginning, but for `open`: jobs that are not finished now.

    `orphans` ended and have no message, because their full entry was never seen. `left_out` are
    bodies that were too large or could not be read any more. `bytes_read` is of files.
    """

    open: int
    finished: int
    orphans: int
    left_out: int
    bytes_read: int


class JobHistories:
    """The open jobs of some folders. Methods raise OSError, or MemoryError.

    A message has a job's tube, id, how it ended, counters and timeline; its UNIQ_KEY is the key of
    the folder, and file and offset of the entry that ended the job, with - between them.
    """

    def __init__(
        self, topic_of: Callable[[bytes], bytes], most_body: int, most_events: int = 256
    ) -> None:
        """`topic_of` is asked for the topic of a tube when that is first needed.

        A body of more than `most_body` bytes is left out. A timeline has at most `most_events`
        events, of which more than 500 would not fit. ValueError if that is less than 2.
        """
        if most_events < 2 or most_body < 0:
            raise ValueError("at least 2 events are kept, and a body has at least 0 bytes")
        self._topic_of = topic_of
        made = ffi.new("bs_history **")
        events = min(most_events, 2**31)
        raise_errno(lib.bs_history_new(min(most_body, 2**63), events, made))
        self._histories = made[0]
        self._length = ffi.new("size_t *")
        self._number = ffi.new("uint64_t *")

    def close(self) -> None:
        """Frees it; it is of no use afterwards."""
        if self._histories != ffi.NULL:
            lib.bs_history_free(self._histories)
            self._histories = ffi.NULL

    # --- before anything is read --------------------------------------------------------------

    def add_folder(self, path: Path, key: str) -> int:
        """The number of the folder, which is followed from its lowest file on.

        UNIQ_KEY of its messages begins with `key`, at most 200 bytes without 0, 1 or 2: ValueError.
        """
        encoded = key.encode()
        if not encoded or len(encoded) > 200 or any(byte < 3 for byte in encoded):
            raise ValueError(f"{key!r} cannot begin a UNIQ_KEY")
        return raise_errno(lib.bs_history_add_folder(self._histories, os.fsencode(path), encoded))

    def set_checkpointed(self, folder: int, file: int, offset: int) -> None:
        """Entries before this place make no events: those are in what `load_checkpoint` got."""
        raise_errno(lib.bs_history_set_checkpointed(self._histories, folder, file, offset))

    def set_archived(self, folder: int, file: int, offset: int) -> None:
        """Entries at or before this place make no messages: the store has them."""
        raise_errno(lib.bs_history_set_archived(self._histories, folder, file, offset))

    def load_checkpoint(self, data: bytes) -> None:
        """What `save_checkpoint` of another gave. ValueError if it is damaged or comes too late."""
        result = lib.bs_history_load_checkpoint(self._histories, data, len(data))
        if result == -errno.EINVAL:
            raise ValueError("load the checkpoint once, and before anything is read")
        if result == -errno.EBADMSG:
            raise ValueError("the checkpoint is damaged")
        raise_errno(result)

    # --- reading ------------------------------------------------------------------------------

    def read(self, folder: int, durable_file: int, durable_end: int, budget: int) -> Progress:
        """Reads on, about `budget` bytes of files, or as many of messages.

        Only bytes before offset `durable_end` of file `durable_file` and files with lower numbers
        are read. Exceptions of `topic_of` are passed on. After an exception nothing is lost, and
        the next call continues.
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
                return Progress(b"".join(parts), count, True)  # the next call meets it again

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

    # --- what is known ------------------------------------------------------------------------

    def position(self, folder: int) -> tuple[int, int]:
        """File and offset where reading goes on; zeros before the first one."""
        file = ffi.new("uint32_t *")
        raise_errno(lib.bs_history_position(self._histories, folder, file, self._number))
        return int(file[0]), int(self._number[0])

    def drop_unseen(self) -> None:
        """Forgets jobs that were carried in and that are nowhere: they have ended meanwhile.

        For when all folders of a server have been read.
        """
        raise_errno(lib.bs_history_drop_unseen(self._histories))

    def needed_from(self, folder: int) -> int:
        """Files with lower numbers are read and have no full entry of an open job."""
        return raise_errno(lib.bs_history_needed_from(self._histories, folder))

    def faults(self) -> list[Fault]:
        """What was wrong since the last call."""
        faults = []
        folder, file = ffi.new("uint32_t *"), ffi.new("uint32_t *")
        what = ffi.new("char **")
        while lib.bs_history_next_fault(self._histories, folder, file, self._number, what):
            text = ffi.string(what[0]).decode("utf-8", "replace")
            faults.append(Fault(folder[0], file[0], self._number[0], text))
        return faults

    @property
    def stats(self) -> HistoryStats:
        """What was counted."""
        stats = lib.bs_history_get_stats(self._histories)
        return HistoryStats(stats.open, stats.finished, stats.orphans, stats.left_out, stats.bytes)

    def save_checkpoint(self) -> bytes:
        """What another needs to go on from here, besides the files from `needed_from` on.

        Messages that were handed out are the caller's. Raises MemoryError.
        """
        data = lib.bs_history_save_checkpoint(self._histories, self._length)
        if data == ffi.NULL:
            raise MemoryError("no memory for the checkpoint")
        return bytes(ffi.buffer(data, self._length[0]))
