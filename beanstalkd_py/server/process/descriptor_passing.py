"""Descriptors in messages between processes (SCM_RIGHTS)."""

from __future__ import annotations

import array
import errno
import socket

TRANSIENT = frozenset((errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM))
"""Too many descriptors in flight, or no memory for the message: a retry succeeds."""
ANCILLARY_BYTES = socket.CMSG_SPACE(array.array("i").itemsize)
"""Bytes of ancillary data to receive one descriptor."""

Ancillary = list[tuple[int, int, bytes]]


def scm_rights(*fds: int) -> list[tuple[int, int, array.array[int]]]:
    """Return the ancillary data that sends these descriptors; the caller still owns them."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]


def received_fd(ancillary: Ancillary) -> int | None:
    """Return the received descriptor, which the caller owns, or None."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds = array.array("i")
            fds.frombytes(data[: fds.itemsize])
            return fds[0]
    return None
