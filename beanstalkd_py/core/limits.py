"""Limits of a core: `bs_limits` of csrc/api/server.h."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from beanstalkd_py.core._core import ffi

USUAL_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes, counts and nanoseconds; 0 is no limit, except for `output`, which is never 0.

    `memory` is bytes of jobs and `tubes` a count, both over all workers. `output` is the bytes of
    replies that one client may leave unread. A client is timed out when it is idle, does not finish
    a command, or does not read replies. `replicate_timeout_ns` is how long a replicated core waits
    for its log before it closes clients that wait for replies, and refuses puts (overdue_log.h).
    """

    memory: int = 0
    tubes: int = 0
    output: int = USUAL_OUTPUT_BYTES
    idle_timeout_ns: int = 0
    send_timeout_ns: int = 0
    output_timeout_ns: int = 0
    replicate_timeout_ns: int = 0

    def to_c(self) -> Any:
        return ffi.new("bs_limits *", asdict(self))
