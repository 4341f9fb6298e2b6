"""Preparation of a process for its command line, without the slow import of click."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

_INTERRUPTED = 130
"""EXIT_INTERRUPTED, without an import that may itself be interrupted."""
_STDERR = 2
_GROUP_OPTIONS = ("--help", "--version")


def with_command(words: list[str]) -> list[str]:
    """Prepend `serve` if the first word is one of its options."""
    is_serve = bool(words) and words[0].startswith("-") and words[0] not in _GROUP_OPTIONS
    return ["serve", *words] if is_serve else words


def open_standard_descriptors() -> None:
    """Open /dev/null for closed descriptors of 0, 1 and 2.

    Otherwise a binlog or shared memory could get number 2, and log lines would corrupt it.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


@contextlib.contextmanager
def exiting_on_interrupt() -> Iterator[None]:
    """End the process on Ctrl-C inside the block, which only imports.

    Python ignores a KeyboardInterrupt in callbacks, and each import runs some.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # SIG_IGN in background jobs of scripts
        signal.signal(signal.SIGINT, _exit_interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _exit_interrupted(_number: int, _frame: object) -> None:
    with contextlib.suppress(OSError):
        os.write(_STDERR, b"beanstalkd-py: interrupted\n")
    os._exit(_INTERRUPTED)
