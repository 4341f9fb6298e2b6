"""Emptying a tube on request: piece by piece, with time for clients between, until it is on disk.

Must not know who wants it, nor how the worker that has the tube is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import gevent

from beanstalkd_py import errors
from beanstalkd_py.core.step_results import Truncating
from beanstalkd_py.plural import counted

PIECE = 1000
"""Jobs that are removed without a break: less than a millisecond of a worker."""
WAIT_S = 0.002
NEWS_EVERY = 10_000
"""Jobs. Only at news can whoever asked stop it."""

Ask = Callable[[dict[str, Any]], dict[str, Any]]


def truncate(
    tube: bytes, states: Sequence[str], ask: Ask
) -> Generator[dict[str, int], None, dict[str, int]]:
    """Yields {"deleted"} as it goes on, and returns the last. Jobs that come meanwhile go, too.

    Raises ControlError when the worker goes, or its disk is so full that it cannot note it.
    """
    question: dict[str, Any] = {"do": "truncate", "tube": tube, "states": list(states)}
    deleted = generation = said = 0
    most = PIECE
    while True:
        step = ask({**question, "most": most, "generation": generation})
        deleted, generation = deleted + step["removed"], step["generation"]
        if step["full"]:
            raise errors.ControlError(
                f"deleted {counted(deleted)}; there is no room in the binlog to delete more:"
                " is the disk full?"
            )
        if step["outcome"] == Truncating.DONE:
            return {"deleted": deleted}
        if step["outcome"] == Truncating.WAIT:
            most = 0  # what comes from now on is not ours: under load there would be no end
        if deleted >= said + NEWS_EVERY:
            said = deleted
            yield {"deleted": deleted}
        gevent.sleep(WAIT_S if step["outcome"] == Truncating.WAIT else 0)
