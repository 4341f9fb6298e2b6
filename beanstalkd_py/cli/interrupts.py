"""Signals that end a command, at once or after its current step."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NoReturn

Handler = Callable[[int, FrameType | None], object]


@contextlib.contextmanager
def handled(numbers: Sequence[signal.Signals], handler: Handler) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def exit_by_signal(number: int, _frame: FrameType | None) -> NoReturn:
    """Raise SystemExit, so that `finally` blocks run."""
    raise SystemExit(128 + number)


@contextlib.contextmanager
def pending_interrupts(numbers: Sequence[signal.Signals]) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal has arrived; a second signal interrupts."""
    received: list[int] = []

    def record(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(number, signal.default_int_handler)

    with handled(numbers, record):
        yield lambda: bool(received)


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
        # Shells ignore SIGINT in background jobs of scripts.
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        with handled(() if ignored else (signal.SIGINT,), self._record):
            yield

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
