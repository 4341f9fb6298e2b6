"""Who may come in: from where, and how many at a time. Asked before anything is read.

Counts those it turns away. Must not know what becomes of the others.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from beanstalkd_py.server.accept.networks import Networks
from beanstalkd_py.server.logging.throttled_log import ThrottledLog
from beanstalkd_py.server.options import ServeOptions


class Admission:
    """One for all listening sockets.

    `load` tells how many connections there are; `counters` is the parent's bs_counters.
    """

    def __init__(self, options: ServeOptions, load: Callable[[], int], counters: Any) -> None:
        self._load = load
        self._counters = counters
        self._strangers = ThrottledLog("connections refused")
        self._too_many = ThrottledLog("connections refused")
        self.change(options)

    def change(self, options: ServeOptions) -> None:
        """Those that are open stay, whatever the options say now."""
        self._limit = options.max_connections
        self._allowed = Networks(options.allow) if options.allow else None

    def admits(self, family: int, address: Any, besides: int) -> bool:
        """Whether a connection from there may come in, besides so many that nobody counts yet."""
        if self._allowed is not None and family != socket.AF_UNIX:
            host = address[0]
            if host not in self._allowed:
                return self._refuse(self._strangers, f"--allow does not name {host}, the last one")
        if self._limit and self._load() + besides >= self._limit:
            return self._refuse(
                self._too_many, f"{self._limit} are open, which is --max-connections"
            )
        return True

    def _refuse(self, refusals: ThrottledLog, reason: str) -> bool:
        self._counters.refused_connections += 1
        refusals.note(reason)
        return False
