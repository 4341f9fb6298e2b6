"""The priority of processes that no client waits for."""

from __future__ import annotations

import os

from beanstalkd_py.server.logging.setup import LOGGER

NICENESS = 10


def lower_priority(process: str) -> None:
    """Give workers precedence, unless a unit's system call filter forbids it."""
    try:
        os.nice(NICENESS)
    except OSError as error:
        LOGGER.info("the %s runs at normal priority: %s", process, error.strerror)
