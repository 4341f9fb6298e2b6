"""The CPUs of the generator and the server.

If both share a core, no other core must be woken: one connection with one command in flight is
seven times as fast, and an operation costs the server a third less CPU time. Without fixed CPUs,
the scheduler's random choice would decide the ratio of the two servers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from . import BenchError

Cpus = frozenset[int]

FREE = "free"
APART = "apart"
TOGETHER = "together"
PLACEMENTS = (FREE, APART, TOGETHER)


@dataclass(frozen=True)
class Placement:
    """The CPUs of each; None leaves the choice to the scheduler."""

    generator: Cpus | None = None
    server: Cpus | None = None


def placement(name: str) -> Placement:
    """Return a placement: `apart` (generator alone on the last core), `together` (both on it)."""
    cpus = sorted(os.sched_getaffinity(0))
    last = frozenset(cpus[-1:])
    if name == FREE:
        return Placement()
    if name == TOGETHER:
        return Placement(last, last)
    rest = frozenset(cpus[:-1])
    if not rest:
        raise BenchError(f"placement {name} needs two cores")
    return Placement(last, rest)


@contextlib.contextmanager
def children_on(cpus: Cpus | None) -> Iterator[None]:
    """Let processes that are started meanwhile inherit these CPUs."""
    if cpus is None:
        yield
        return
    free = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, free)
