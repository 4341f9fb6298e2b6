"""Descriptors in messages between processes: SCM_RIGHTS, for whoever sends or receives them."""

from __future__ import annotations

import array
import errno
import socket

TRANSIENT = frozenset((errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM))
"""Too many descriptors on their way, or no memory for the message: both pass."""
ANCILLARY_BYTES = socket.CMSG_SPACE(array.array("i").itemsize)
"""Bytes of ancillary data to receive one descriptor."""

Ancillary = list[tuple[int, int, bytes]]


def scm_rights(*fds: int) -> list[tuple[int, int, array.array[int]]]:
    """The ancillary data that sends these descriptors, which stay the caller's."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]


def received_fd(ancillary: Ancillary) -> int | None:
    """The descriptor that has come, which is the caller's; None if there is none."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds = array.array("i")
            fds.frombytes(data[: fds.itemsize])
            return fds[0]
    return None
