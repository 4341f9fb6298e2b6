"""Let root create files that belong to the owner of their folder.

A root-owned file would prevent the folder's owner from starting a server, ours with -u or C
beanstalkd. Linux has a file-system user and group for each thread, which own what the thread
creates and which new threads inherit. Only these are changed; the process remains root and can read
and write all files. Other users, and folders of root, need none of this.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LOGGER = logging.getLogger("beanstalkd_py")

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_CAPABILITY_VERSION = 0x20080522
_UNCHANGED = 0xFFFFFFFF
"""An id that no user has: setfsuid and setfsgid return the current id and change nothing."""


def create_as_owner_of(folder: str | Path) -> None:
    """Give files that this thread creates from now on to the owner and group of `folder`.

    Call it before other threads start.
    """
    if os.geteuid() != 0:
        return
    try:
        owner = os.stat(folder)  # noqa: PTH116 - pathlib is a slow import
    except OSError:
        return  # the caller opens the folder next and reports the error
    _act_as(owner.st_uid, owner.st_gid, folder)


@contextlib.contextmanager
def creating_as_owner_of(folder: str | Path) -> Iterator[None]:
    """Give files created in the block to the owner and group of `folder`. Blocks may be nested."""
    if os.geteuid() != 0:
        yield
        return
    before = _current_ids()
    create_as_owner_of(folder)
    try:
        yield
    finally:
        _act_as(*before, folder)


def _current_ids() -> tuple[int, int]:
    """Return the file-system user and group of this thread."""
    import ctypes  # a slow import that only root needs

    libc, unchanged = ctypes.CDLL(None), ctypes.c_uint(_UNCHANGED)
    return libc.setfsuid(unchanged), libc.setfsgid(unchanged)


def _act_as(uid: int, gid: int, folder: str | Path) -> None:
    if _current_ids() == (uid, gid):
        return
    import ctypes

    libc = ctypes.CDLL(None)
    # The kernel resets all of these with the file-system user, also capabilities for files.
    header, capabilities = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, capabilities)
    dumpable, death_signal = libc.prctl(_PR_GET_DUMPABLE), ctypes.c_int()
    libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(death_signal))
    libc.setfsgid(ctypes.c_uint(gid))
    libc.setfsuid(ctypes.c_uint(uid))
    libc.capset(header, capabilities)
    libc.prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(dumpable))
    libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(death_signal.value))
    taken = _current_ids()
    if taken != (uid, gid):
        LOGGER.warning(
            "new files in %s will belong to uid %d and gid %d, not to their folder's owner,"
            " because this process may not act as uid %d and gid %d",
            *(folder, *taken, uid, gid),
        )
