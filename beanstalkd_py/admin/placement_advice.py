"""Advice on --colocate: how tubes that clients watch together would be divided among the workers.

A client that watches tubes of several workers makes them exchange messages for most of its
reserves. A separator keeps tubes with a common prefix together, at the price of a coarser division.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from beanstalkd_py.core.placement import shard_of

BUSIEST_LIMIT = 1.5
"""The maximum share of the busiest worker, relative to an equal division, of a balanced choice."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of --colocate; None: tubes are placed by their whole names.

    `spread` is the number of clients that would watch tubes of several workers, `busiest` the
    share of all puts that the busiest worker would get.
    """

    colocate: str | None
    spread: int
    busiest: float

    def is_balanced(self, workers: int) -> bool:
        return self.busiest * workers <= BUSIEST_LIMIT


def choices(
    watched: Collection[Collection[str]], puts: Mapping[str, int], workers: int
) -> list[Choice]:
    """Return the choices from the best to the worst: balanced, few spread clients, equal shares.

    `watched` has the tubes that each client watches, `puts` the jobs put into each tube so far.
    """
    separators = {char for tube in puts for char in tube[1:] if not char.isalnum()}
    unsorted = [_choice(separator, watched, puts, workers) for separator in (None, *separators)]
    return sorted(
        unsorted,
        key=lambda one: (not one.is_balanced(workers), one.spread, one.busiest, one.colocate or ""),
    )


def _choice(
    colocate: str | None, watched: Iterable[Collection[str]], puts: Mapping[str, int], workers: int
) -> Choice:
    separator = None if colocate is None else colocate.encode()

    def shard(tube: str) -> int:
        return shard_of(tube.encode(), workers, separator)

    spread = sum(len({shard(tube) for tube in tubes}) > 1 for tubes in watched)
    shares = [0] * workers
    for tube, count in puts.items():
        shares[shard(tube)] += count
    return Choice(colocate, spread, max(shares) / (sum(shares) or 1))
