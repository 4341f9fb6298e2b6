"""What workers decide among themselves: who gets a job, and which connections move.

Records of the core's mails. Must not know how a claim goes.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from beanstalkd_py.core._core import lib


class MailKind(enum.IntEnum):
    """What Python has to decide with other workers, or what those say to it."""

    FRAME = lib.BS_MAIL_FRAME
    GONE = lib.BS_MAIL_GONE
    NONSENSE = lib.BS_MAIL_NONSENSE
    RESERVE = lib.BS_MAIL_RESERVE
    CLAIM = lib.BS_MAIL_CLAIM
    ANYWHERE = lib.BS_MAIL_ANYWHERE
    TUBES = lib.BS_MAIL_TUBES
    CLOSED = lib.BS_MAIL_CLOSED
    MOVE = lib.BS_MAIL_MOVE
    CERTAIN = lib.BS_MAIL_CERTAIN


class Outcome(enum.IntEnum):
    """How a wait has ended."""

    JOB = lib.BS_CLAIM_JOB
    TIMED_OUT = lib.BS_CLAIM_TIMED_OUT
    DEADLINE_SOON = lib.BS_CLAIM_DEADLINE_SOON
    ANSWERED = lib.BS_CLAIM_ANSWERED


class Head(NamedTuple):
    """What one shard has for a session that reserves: `bs_head` of core.h."""

    ready: bool
    any: bool
    soon: bool
    pri: int
    id: int
    holds: int = 0


class Luggage(NamedTuple):
    """A session on its way to another worker: `bs_luggage` of core.h."""

    fd: int
    producer: bool
    worker: bool
    eof: bool
    state: bytes
    trace: tuple[int, int, int, int, bool] = (0, 0, 0, 0, False)
    """What is logged of it: shard, connection, commands, opened (monotonic), told. See trace.h."""
