"""Typed wrapper of csrc/api/transfer.h: the jobs of whole folders written to new folders."""

from __future__ import annotations

import os

from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.core.c_values import raise_errno
from beanstalkd_py.core.clocks import Now, c_now
from beanstalkd_py.core.core import Core


class Transfer:
    """Writes the jobs of cores that have read their folders to new folders, one per shard.

    In this order: `add` each source, which must stay open, `start`, `write` until no job is left,
    `finish`, `close`. Methods raise OSError.
    """

    def __init__(
        self, folders: list[str], after: int, file_size: int, colocate: bytes | None
    ) -> None:
        """`folders` exist and are empty; files get numbers above `after` and `file_size` bytes."""
        names = [ffi.new("char[]", os.fsencode(folder)) for folder in folders]
        separator = ffi.NULL if colocate is None else ffi.new("char[]", colocate)
        created = ffi.new("bs_transfer **")
        c_names = ffi.new("char *[]", names)
        raise_errno(lib.bs_transfer_new(c_names, len(names), after, separator, file_size, created))
        self._transfer = ffi.gc(created[0], lib.bs_transfer_free)

    def add(self, source: Core) -> None:
        raise_errno(source.give_jobs(self._transfer))

    def start(self, last_id: int, now: Now) -> int:
        """Sort the jobs and return their number. `last_id` is the highest id ever given.

        `now` must be the same as in Core.read.
        """
        return raise_errno(lib.bs_transfer_start(self._transfer, last_id, c_now(now)))

    def write(self, size: int) -> int:
        """Write jobs of at least `size` bytes in total; return how many jobs are left."""
        return raise_errno(lib.bs_transfer_write(self._transfer, size))

    def finish(self) -> int:
        """Sync the files, not their folders; return how many jobs had duplicate ids."""
        return raise_errno(lib.bs_transfer_finish(self._transfer))

    def close(self) -> None:
        ffi.release(self._transfer)
