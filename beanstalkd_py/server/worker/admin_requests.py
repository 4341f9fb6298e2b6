"""A worker's part of what the administrator asks: one dict in, one dict out.

An answer fits into a message of the channel; what is longer is asked for again, from where the
answer says. Must not know how questions travel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beanstalkd_py.core.core import Core
from beanstalkd_py.server.stats import connection_list, tube_stats

Question = dict[str, Any]
Answer = dict[str, Any]


class Answers:
    """Answers about one core."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._ways: dict[str, Callable[[Question], Answer]] = {
            "compact": self._compact,
            "conns": self._conns,
            "truncate": self._truncate,
            "tubes": self._tubes,
        }

    def answer(self, question: Question) -> Answer:
        """The answer to `question["do"]`."""
        return self._ways[question["do"]](question)

    def _compact(self, question: Question) -> Answer:
        """One step: see Core.compact."""
        step = self._core.compact(question["per-cent"], question["last"])
        return {
            "outcome": int(step.outcome),
            "last": step.last,
            "bytes": step.total_bytes,
            "alive": step.alive_bytes,
        }

    def _conns(self, question: Question) -> Answer:
        """See connections.part."""
        return connection_list.part(self._core, question["first"])

    def _truncate(self, question: Question) -> Answer:
        """One step: see Core.truncate."""
        step = self._core.truncate(
            question["tube"], question["states"], question["most"], question["generation"]
        )
        return {
            "outcome": int(step.outcome),
            "removed": step.removed,
            "generation": step.generation,
            "full": step.full,
        }

    def _tubes(self, question: Question) -> Answer:
        """See tubes.part."""
        return tube_stats.part(self._core, question["first"])
