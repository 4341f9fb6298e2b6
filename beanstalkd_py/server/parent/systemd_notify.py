"""What the service manager is told: sd_notify(3), one datagram for each message.

Without a service manager nothing is sent. Knows no event loop.
"""

from __future__ import annotations

import socket
import time
from collections.abc import MutableMapping

START_EXTENSION_S = 60
"""How long a start may take from the last message on; messages come more often."""


class Notifier:
    """The way to the service manager; `path` is that of its socket, with @ for an abstract one.

    `watchdog_s` is how often it wants to hear that all is well, 0 for never.
    """

    def __init__(self, path: str | None = None, watchdog_s: float = 0.0) -> None:
        self.watchdog_s = watchdog_s if path else 0.0
        self._address = "\0" + path[1:] if path and path.startswith("@") else path

    def starting(self, text: str) -> None:
        """The start takes longer, for this reason."""
        self._say(f"STATUS={text}", f"EXTEND_TIMEOUT_USEC={START_EXTENSION_S * 1_000_000}")

    def ready(self, text: str) -> None:
        """Clients are served from now on."""
        self._say("READY=1", f"STATUS={text}")

    def reloading(self) -> None:
        """It reads its options again; `ready` ends that."""
        # The manager channel_ this among its own events by the clock.
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._say("RELOADING=1", f"MONOTONIC_USEC={now_us}")

    def status(self, text: str) -> None:
        """What it does now, for people."""
        self._say(f"STATUS={text}")

    def stopping(self) -> None:
        """It is on its way out."""
        self._say("STOPPING=1", "STATUS=stopping")

    def alive(self) -> None:
        """All is well."""
        self._say("WATCHDOG=1")

    def _say(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                # A manager that does not read must not stop the server.
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            pass  # it is there for the manager's sake: without one there is nobody to tell


def notifier_from_environment(environ: MutableMapping[str, str], pid: int) -> Notifier:
    """The notifier that the environment describes; what describes it is removed.

    So no process that is started from here speaks for this one.
    """
    path = environ.pop("NOTIFY_SOCKET", None)
    watchdog_us = environ.pop("WATCHDOG_USEC", "")
    watched = environ.pop("WATCHDOG_PID", str(pid))
    if path is None or not path.startswith(("/", "@")):
        return Notifier()
    wanted = watched == str(pid) and watchdog_us.isascii() and watchdog_us.isdigit()
    return Notifier(path, int(watchdog_us) / 1_000_000 if wanted else 0.0)
