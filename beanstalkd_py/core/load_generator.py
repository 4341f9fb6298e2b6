"""class Load: connections that put, reserve and delete, as csrc/api/load.h describes it.

Must not know how connections are made, or what is done with the figures.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from beanstalkd_py.core._core import ffi, lib

NS_PER_S = 10**9


class Role(enum.IntEnum):
    """What a connection does."""

    CYCLES = lib.BS_LOAD_CYCLES
    PRODUCER = lib.BS_LOAD_PRODUCER
    CONSUMER = lib.BS_LOAD_CONSUMER
    DRAIN = lib.BS_LOAD_DRAIN


class Command(enum.IntEnum):
    """What is timed; ALL is all of them."""

    PUT = lib.BS_LOAD_PUT
    RESERVE = lib.BS_LOAD_RESERVE
    DELETE = lib.BS_LOAD_DELETE
    ALL = lib.BS_LOAD_KINDS


@dataclass(frozen=True, slots=True)
class Times:
    """How long `count` commands took, seconds; `within` for each share that was asked for."""

    count: int
    mean_s: float
    max_s: float
    within: tuple[float, ...]


class LoadFailedError(Exception):
    """The load cannot go on. `refusal`: the command and the reply that was not expected, or ""."""

    def __init__(self, message: str, refusal: str) -> None:
        super().__init__(message)
        self.refusal = refusal


class Load:
    """A load on connected sockets, which stay the caller's."""

    def __init__(self, depth: int, body_bytes: int, interval_s: float = 0.0) -> None:
        """`depth` commands of one kind in flight of each connection.

        `interval_s` is the time from one batch of puts of a connection to the next, 0 for at once.
        Raises OSError.
        """
        plan = ffi.new("bs_load_plan *")
        plan.depth, plan.body = depth, body_bytes
        plan.interval_ns = round(interval_s * NS_PER_S)
        made = ffi.new("bs_load **")
        self._check(lib.bs_load_new(plan, made))
        self._load: Any = ffi.gc(made[0], lib.bs_load_free)

    def add(self, fd: int, role: Role) -> None:
        """Adds a socket. Raises OSError."""
        self._check(lib.bs_load_add(self._load, fd, role))

    def start(self, warmup_s: float, measured_s: float) -> None:
        """Begins; what is sent after the warm-up is measured."""
        lib.bs_load_start(self._load, round(warmup_s * NS_PER_S), round(measured_s * NS_PER_S), 0)

    def stop(self) -> None:
        """Begins no new round: `run` goes on until those that are under way have ended."""
        lib.bs_load_stop(self._load)

    def run(self, budget_s: float) -> bool:
        """Works for about so long; whether there is more to do. Raises LoadFailedError."""
        more = lib.bs_load_run(self._load, round(budget_s * NS_PER_S))
        if more < 0:
            error = ffi.string(lib.bs_load_error(self._load)).decode()
            raise LoadFailedError(error, ffi.string(lib.bs_load_refusal(self._load)).decode())
        return bool(more)

    @property
    def silence_s(self) -> float:
        """Since anything was answered."""
        return lib.bs_load_silence(self._load) / NS_PER_S

    def replies(self, command: Command) -> int:
        """To commands of this kind so far, measured or not."""
        return lib.bs_load_replies(self._load, command)

    def measured(self, command: Command, shares: Sequence[float]) -> Times:
        """What was measured."""
        times = ffi.new("bs_load_times *")
        at = ffi.new("double[]", len(shares))
        lib.bs_load_measured(
            self._load, command, times, ffi.new("double[]", list(shares)), at, len(shares)
        )
        within = tuple(nanoseconds / NS_PER_S for nanoseconds in at)
        return Times(times.count, times.mean_ns / NS_PER_S, times.max_ns / NS_PER_S, within)

    @staticmethod
    def _check(code: int) -> None:
        if code < 0:
            raise OSError(-code, os.strerror(-code))
