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


class HeldInterrupts:
    """Ctrl-C for a command that counts what it does.

    Outside of `held` it interrupts at once. Inside, the first one waits for the end of the block,
    so that the block's work is done and counted; a second one interrupts the block and sets
    `forced`.
    """

    def __init__(self) -> None:
        self.noted = False
        self.forced = False
        self._depth = 0

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handles SIGINT inside the block."""
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.SIG_IGN:  # a shell's script has it ignored in the background
            signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raises KeyboardInterrupt at its end if there was a signal inside."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self.noted and self._depth == 0:
            raise KeyboardInterrupt

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if self._depth == 0:
            raise KeyboardInterrupt
        if self.noted:
            self.forced = True
            raise KeyboardInterrupt
        self.noted = True
