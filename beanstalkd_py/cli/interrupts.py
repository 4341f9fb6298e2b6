"""Ctrl-C and SIGTERM that let a command finish what it is at."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType


@contextlib.contextmanager
def interrupts_noted(
    numbers: Sequence[signal.Signals] = (signal.SIGINT,),
) -> Iterator[Callable[[], bool]]:
    """A signal is only noted; the second one interrupts."""
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield lambda: bool(noted)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
