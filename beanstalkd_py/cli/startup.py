"""Preparation of a process for its command line, without the slow import of click."""

from __future__ import annotations

import os
import sys

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
