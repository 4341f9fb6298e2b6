"""Typed wrapper of csrc/api/load.h: connections that put, reserve and delete."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.core.c_values import raise_errno
from beanstalkd_py.quantities import NS_PER_S


class Role(enum.IntEnum):
    CYCLES = lib.BS_LOAD_CYCLES
    PRODUCER = lib.BS_LOAD_PRODUCER
    CONSUMER = lib.BS_LOAD_CONSUMER
    DRAIN = lib.BS_LOAD_DRAIN


class Command(enum.IntEnum):
    """The kind of commands that are timed."""

    PUT = lib.BS_LOAD_PUT
    RESERVE = lib.BS_LOAD_RESERVE
    DELETE = lib.BS_LOAD_DELETE
    ALL = lib.BS_LOAD_KINDS


@dataclass(frozen=True, slots=True)
class Times:
    """The durations of `count` commands; `within` has the duration at each quantile."""

    count: int
    mean_s: float
    max_s: float
    within: tuple[float, ...]


class LoadFailedError(Exception):
    """`refusal` is the command and its unexpected reply, or ""."""

    def __init__(self, message: str, refusal: str) -> None:
        super().__init__(message)
        self.refusal = refusal


class Load:
    """A load on connected sockets, which the caller closes."""

    def __init__(
        self,
        depth: int,
        body_bytes: int,
        interval_s: float = 0.0,
        pri_spread: int = 1,
        unique: bool = False,
    ) -> None:
        """Each connection has `depth` commands of one kind in flight.

        `interval_s` is the time between two batches of puts of a connection, `pri_spread` the
        number of random priorities. With `unique` every put has a random key. Raises OSError.
        """
        interval_ns = round(interval_s * NS_PER_S)
        plan = ffi.new("bs_load_plan *", (depth, body_bytes, pri_spread, interval_ns, unique))
        created = ffi.new("bs_load **")
        raise_errno(lib.bs_load_new(plan, created))
        self._load = ffi.gc(created[0], lib.bs_load_free)

    def add(self, fd: int, role: Role) -> None:
        """Raises OSError."""
        raise_errno(lib.bs_load_add(self._load, fd, role))

    def start(self, warmup_s: float, measured_s: float, rounds: int = 0) -> None:
        """Start the load; commands after the warm-up are measured. `rounds`: see bs_load_start."""
        times_ns = round(warmup_s * NS_PER_S), round(measured_s * NS_PER_S)
        lib.bs_load_start(self._load, *times_ns, rounds)

    def stop(self) -> None:
        """Start no new round; `run` continues until the running rounds have ended."""
        lib.bs_load_stop(self._load)

    def run(self, budget_s: float) -> bool:
        """Work for about `budget_s`; return whether there is more to do. Raises LoadFailedError."""
        more = lib.bs_load_run(self._load, round(budget_s * NS_PER_S))
        if more < 0:
            error = ffi.string(lib.bs_load_error(self._load)).decode()
            raise LoadFailedError(error, ffi.string(lib.bs_load_refusal(self._load)).decode())
        return bool(more)

    @property
    def silence_s(self) -> float:
        """Seconds since the last reply."""
        return lib.bs_load_silence(self._load) / NS_PER_S

    def replies(self, command: Command) -> int:
        """Return the replies to commands of this kind, measured or not."""
        return lib.bs_load_replies(self._load, command)

    def measured(self, command: Command, quantiles: Sequence[float]) -> Times:
        times = ffi.new("bs_load_times *")
        at = ffi.new("double[]", len(quantiles))
        lib.bs_load_measured(
            self._load, command, times, ffi.new("double[]", list(quantiles)), at, len(quantiles)
        )
        within = tuple(nanoseconds / NS_PER_S for nanoseconds in at)
        return Times(times.count, times.mean_ns / NS_PER_S, times.max_ns / NS_PER_S, within)
