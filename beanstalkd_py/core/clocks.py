"""Times as the core takes them: both clocks, read together."""

from __future__ import annotations

from typing import Any, NamedTuple

from beanstalkd_py.core._core import ffi, lib

NEVER = 2**63 - 1


class Now(NamedTuple):
    """Both clocks at one moment, nanoseconds: `mono` runs timers, `wall` is only stored."""

    mono: int
    wall: int


def read_clocks() -> Now:
    now = lib.bs_now_read()
    return Now(now.mono, now.wall)


def c_now(now: Now | None) -> Any:
    """Return a `bs_now`: `now`, or the current time."""
    return lib.bs_now_read() if now is None else ffi.new("bs_now *", tuple(now))[0]
