"""A tube policy: `bs_policy` of csrc/api/policies.h. Imports nothing of the core."""

from __future__ import annotations

import re
from typing import NamedTuple

from beanstalkd_py.quantities import NS_PER_S, UINT32_MAX, UNITS_S

BURY = "bury"
DELETE = "delete"
BODY = "body"
"""The only value of `unique` but none."""
MOVE = "move:"
"""Before the name of a tube."""


class TubePolicy(NamedTuple):
    """The policy of the tubes whose names match a shell pattern.

    A named tuple, because messages between processes carry a thousand of them in few bytes.
    `max_bytes` is of bodies, times are seconds; 0 is none, except for `max_delay`.
    `unique` is BODY. `then` is BURY, DELETE, or MOVE and a tube; `release_backoff` and `rate` are
    as Backoff and Rate parse them.
    """

    pattern: str
    max_jobs: int = 0
    max_bytes: int = 0
    default_ttr: int = 0
    max_delay: int = UINT32_MAX
    max_reserves: int = 0
    then: str = BURY
    release_backoff: str = ""
    max_reserved: int = 0
    rate: str = ""
    expires: int = 0
    unique: str = ""


class Backoff(NamedTuple):
    """`exponential:1s..1h`: delays that double from `first_s` up to `last_s`."""

    first_s: int
    last_s: int

    @classmethod
    def parse(cls, text: str) -> Backoff:
        """Raises ValueError."""
        match = re.fullmatch(_BACKOFF, text)
        if not match:
            raise ValueError(f"invalid backoff {text!r}; use exponential:1s..1h")
        first, last = (int(match[i]) * UNITS_S[match[i + 1]] for i in (1, 3))
        if not 1 <= first <= last <= UINT32_MAX:
            raise ValueError(f"invalid backoff {text!r}; the delays rise from 1s on")
        return cls(first, last)


class Rate(NamedTuple):
    """`100/s`, `30/m` or `5/h`: the interval of reserves, and how many are possible at once."""

    interval_ns: int
    burst: int

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Raises ValueError."""
        match = re.fullmatch(_RATE, text)
        if not match:
            raise ValueError(f"invalid rate {text!r}; use 100/s, 30/m or 5/h")
        count, unit_s = int(match[1]), UNITS_S[match[2]]
        if not 1 <= count <= MAX_RATE * unit_s:
            raise ValueError(f"invalid rate {text!r}; use 1/h to {MAX_RATE}/s")
        return cls(unit_s * NS_PER_S // count, max(1, count // unit_s // BURSTS_PER_S))


MAX_RATE = 10**6
BURSTS_PER_S = 10
_BACKOFF = r"exponential:(\d{1,9})([smhd])\.\.(\d{1,9})([smhd])"
_RATE = r"(\d{1,12})/([smh])"
