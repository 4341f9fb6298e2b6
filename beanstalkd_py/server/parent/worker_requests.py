"""What the parent asks of a worker for its administrator: one message there, one back.

An answer of any length is asked for in pieces, each with where the last one ended, so nobody has to
keep what is not read. Must not know what is asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from gevent.event import AsyncResult

from beanstalkd_py import errors

ANSWER_LIMIT_S = 30.0

Answer = dict[str, Any]


class Questions:
    """Those to one worker that are not answered yet. `send` returns False if it cannot be sent."""

    def __init__(self) -> None:
        self._open: dict[int, AsyncResult[Answer]] = {}
        self._next = itertools.count(1).__next__

    def ask(self, send: Callable[[int], bool]) -> Answer:
        """Sends a question by its number, and waits. Raises ControlError."""
        number = self._next()
        answer = self._open[number] = AsyncResult()
        try:
            if not send(number):
                raise errors.ControlError("the worker takes no questions now")
            found: Answer | None = answer.get(timeout=ANSWER_LIMIT_S)
        finally:
            del self._open[number]
        if found is None:
            raise errors.ControlError("the worker has gone")
        return found

    def answered(self, number: int, answer: Answer) -> None:
        """An answer has come; nobody may be waiting for it any more."""
        if number in self._open:
            self._open[number].set(answer)

    def give_up(self) -> None:
        """No more answers will come."""
        for answer in self._open.values():
            answer.set(None)
