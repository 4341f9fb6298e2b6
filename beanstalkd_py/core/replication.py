"""Typed wrapper of csrc/api/replication.h: parts of binlog files to be stored elsewhere."""

from __future__ import annotations

from typing import NamedTuple

from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.core.c_values import raise_errno
from beanstalkd_py.core.core import Core

MOST_PARTS = 64


class Part(NamedTuple):
    """The bytes `begin` to `end` of binlog.<file>."""

    file: int
    begin: int
    end: int


class Replication:
    """The parts that a core offers, for a thread of their own; that must end before Core.close.

    No reply of the core leaves before `confirm` of the generation that it depends on, and no file
    is removed.
    """

    def __init__(self, core: Core) -> None:
        """Begin; the first generation is everything in the folder.

        Call it after Core.recover. Raises OSError, with EINVAL for a core that does not sync before
        each reply.
        """
        self._core = core.pointer
        raise_errno(lib.bs_core_replicate(self._core))
        self.fd: int = lib.bs_core_replication_fd(self._core)
        """An eventfd that is readable when something was offered."""
        self._parts = ffi.new("bs_replicated_part[]", MOST_PARTS)
        self._generation = ffi.new("uint64_t *")

    def take(self) -> tuple[list[Part], int]:
        """Return the next parts, in order, and the generation that they complete.

        The generation is 0 if more parts of it follow. Without new parts it is the last one again.
        """
        count = lib.bs_core_take_parts(self._core, self._parts, MOST_PARTS, self._generation)
        parts = [Part(each.file, each.begin, each.end) for each in self._parts[0:count]]
        return parts, self._generation[0]

    def confirm(self, generation: int) -> None:
        """Confirm that a generation, and all before it, is stored."""
        lib.bs_core_confirm(self._core, generation)

    def fail(self, error: int) -> None:
        """Stop the core, which acknowledges nothing any more. `error` is an errno."""
        lib.bs_core_fail_replication(self._core, -error)
