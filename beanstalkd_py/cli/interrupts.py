"""Ctrl-C and SIGTERM that let a command finish its current step."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType


@contextlib.contextmanager
def pending_interrupts(
    numbers: Sequence[signal.Signals] = (signal.SIGINT,),
) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal has arrived; a second signal interrupts."""
    received: list[int] = []

    def record(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, record) for number in numbers}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class DeferredInterrupts:
    """Ctrl-C for a command that counts its work.

    Outside of `deferred()`, Ctrl-C interrupts at once. Inside, the first one takes effect when the
    block ends, so that its work is complete and counted. A second one interrupts the block and sets
    `forced`.
    """

    def __init__(self) -> None:
        self.pending = False
        self.forced = False
        self._depth = 0

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGINT inside the block."""
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.SIG_IGN:  # shells ignore SIGINT in background jobs of scripts
            signal.signal(signal.SIGINT, self._record)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Raise KeyboardInterrupt at the end of the block if a signal arrived inside."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self.pending and self._depth == 0:
            raise KeyboardInterrupt

    def _record(self, _number: int, _frame: FrameType | None) -> None:
        if self._depth == 0:
            raise KeyboardInterrupt
        if self.pending:
            self.forced = True
            raise KeyboardInterrupt
        self.pending = True
