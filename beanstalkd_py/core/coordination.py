"""Records of upcalls, claims and migrations (csrc/api/server.h)."""

from __future__ import annotations

import enum
from typing import NamedTuple

from beanstalkd_py.core._core import lib


class UpcallKind(enum.IntEnum):
    FRAME = lib.BS_UPCALL_FRAME
    PEER_CLOSED = lib.BS_UPCALL_PEER_CLOSED
    PROTOCOL_ERROR = lib.BS_UPCALL_PROTOCOL_ERROR
    RESERVE = lib.BS_UPCALL_RESERVE
    OUTPUT = lib.BS_UPCALL_OUTPUT
    CLAIM_ENDED = lib.BS_UPCALL_CLAIM_ENDED
    FIND_JOB = lib.BS_UPCALL_FIND_JOB
    LIST_TUBES = lib.BS_UPCALL_LIST_TUBES
    SESSION_CLOSED = lib.BS_UPCALL_SESSION_CLOSED
    MIGRATE = lib.BS_UPCALL_MIGRATE
    CLAIMS_DECIDED = lib.BS_UPCALL_CLAIMS_DECIDED


class Outcome(enum.IntEnum):
    """How a wait for a claim has ended."""

    JOB = lib.BS_CLAIM_JOB
    TIMED_OUT = lib.BS_CLAIM_TIMED_OUT
    DEADLINE_SOON = lib.BS_CLAIM_DEADLINE_SOON
    ANSWERED = lib.BS_CLAIM_ANSWERED


class Head(NamedTuple):
    """What one shard offers to a session that reserves: `bs_head`."""

    ready: bool
    any: bool
    soon: bool
    pri: int
    id: int
    holds: int = 0


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
