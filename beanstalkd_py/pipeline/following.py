"""What following files has in common, whatever is in them: budgets, and faults that may be none.

In a file that is being written a fault is looked at again before it is believed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from dataclasses import dataclass

from beanstalkd_py.errors import DataLossError

RETRIES = 3
RETRY_S = 0.02


@dataclass(frozen=True, slots=True)
class Budget:
    """How much there may be between two positions; None: no limit."""

    files: int | None = None
    rows: int | None = None
    size: int | None = None

    def share(self, of: int) -> Budget:
        """An even part, at least one of each."""

        def part(value: int | None) -> int | None:
            return None if value is None else max(1, -(-value // of))

        return Budget(part(self.files), part(self.rows), part(self.size))

    def less(self, rows: int, size: int) -> Budget:
        """What is left after so much of one file."""
        return Budget(
            None if self.files is None else self.files - 1,
            None if self.rows is None else self.rows - rows,
            None if self.size is None else self.size - size,
        )

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return any(left is not None and left <= 0 for left in (self.files, self.rows, self.size))


UNLIMITED = Budget()


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a file was read: `offset` is behind the last entry; `whole`: there is no more.

    `doubt` is where something is wrong that may be so only while it is written.
    """

    offset: int
    rows: int
    whole: bool
    doubt: int | None = None


LOGGER = logging.getLogger("beanstalkd_py.pipeline")


def look_again(
    run: Callable[[Container[int]], Reached], wait: Callable[[float], object]
) -> Reached:
    """How far a scan gets that is given the faults which have been there for a while."""
    believed: set[int] = set()
    reached, tries = run(believed), 0
    while reached.doubt is not None:
        wait(RETRY_S)
        again = run(believed)
        tries = tries + 1 if again.doubt == reached.doubt else 0
        if tries == RETRIES:
            believed.add(reached.doubt)
            again, tries = run(believed), 0
        reached = again
    return reached


def lost(what: str) -> DataLossError:
    """The error for what was removed before it was read."""
    return DataLossError(
        f"{what}: it was removed before it was read; failOnDataLoss=false, of an export"
        " --allow-loss, goes on without it"
    )
