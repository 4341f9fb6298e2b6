"""Accepts or refuses a connection by its address and the number of open connections."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from beanstalkd_py.server.accept.networks import Networks
from beanstalkd_py.server.logging.throttling import ThrottledLog
from beanstalkd_py.server.options import ServeOptions


class Admission:
    """The checks of all listening sockets.

    `count_open` returns the number of open connections; `counters` is the parent's bs_counters.
    """

    def __init__(self, options: ServeOptions, count_open: Callable[[], int], counters: Any) -> None:
        self._count_open = count_open
        self._counters = counters
        self._not_allowed = ThrottledLog("connections refused")
        self._too_many = ThrottledLog("connections refused")
        self.change(options)

    def change(self, options: ServeOptions) -> None:
        self._limit = options.max_connections
        self._allowed = Networks(options.allow) if options.allow else None

    def admits(self, family: int, address: Any, pending: int) -> bool:
        """Return whether to accept; `count_open` does not include the `pending` connections yet."""
        if self._allowed is not None and family != socket.AF_UNIX:
            host = address[0]
            if host not in self._allowed:
                return self._refuse(self._not_allowed, f"--allow does not include {host}, the last")
        if self._limit and self._count_open() + pending >= self._limit:
            return self._refuse(
                self._too_many, f"{self._limit} are open, the limit of --max-connections"
            )
        return True

    def _refuse(self, log: ThrottledLog, reason: str) -> bool:
        self._counters.refused_connections += 1
        log.warn(reason)
        return False
