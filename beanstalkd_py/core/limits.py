"""What a core does not go beyond: `bs_limits` of core.h."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from beanstalkd_py.core._core import ffi

USUAL_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes, numbers and nanoseconds; 0 is no limit, but for `output`, which is never 0.

    `memory` is bytes of jobs and `tubes` a number, both of all workers together. `output` is the
    bytes of replies that one client may leave untaken and still be read from. Timeouts are for a
    client that says nothing, that does not go on with what it has begun, and that takes no replies.
    """

    memory: int = 0
    tubes: int = 0
    output: int = USUAL_OUTPUT_BYTES
    idle_timeout_ns: int = 0
    send_timeout_ns: int = 0
    output_timeout_ns: int = 0

    def to_c(self) -> Any:
        """A `bs_limits *`."""
        return ffi.new("bs_limits *", asdict(self))
