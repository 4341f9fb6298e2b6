"""Records of upcalls and migrations (csrc/api/server.h)."""

from __future__ import annotations

import enum
from typing import NamedTuple

from beanstalkd_py.core._core import lib


class UpcallKind(enum.IntEnum):
    FRAME = lib.BS_UPCALL_FRAME
    PEER_CLOSED = lib.BS_UPCALL_PEER_CLOSED
    PROTOCOL_ERROR = lib.BS_UPCALL_PROTOCOL_ERROR
    OUTPUT = lib.BS_UPCALL_OUTPUT
    FIND_JOB = lib.BS_UPCALL_FIND_JOB
    LIST_TUBES = lib.BS_UPCALL_LIST_TUBES
    SESSION_CLOSED = lib.BS_UPCALL_SESSION_CLOSED
    MIGRATE = lib.BS_UPCALL_MIGRATE


class Migration(NamedTuple):
    """A session on its way to another worker: `bs_migration`."""

    fd: int
    producer: bool
    worker: bool
    eof: bool
    logged: bool
    connection: int
    commands: int
    opened: int
    shard: int
    state: bytes
