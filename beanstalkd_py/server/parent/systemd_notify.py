"""Reports the server's state to the service manager: sd_notify(3), one datagram per message."""

from __future__ import annotations

import socket
import time
from collections.abc import MutableMapping, Sequence

START_EXTENSION_S = 60
"""The start timeout after each message of `starting`."""


class Notifier:
    """Sends to the socket at `path`, or nowhere without a path; @ begins an abstract name.

    `watchdog_s` is the watchdog's interval, 0 for none.
    """

    def __init__(self, path: str | None = None, watchdog_s: float = 0.0) -> None:
        self.watchdog_s = watchdog_s if path else 0.0
        self._address = "\0" + path[1:] if path and path.startswith("@") else path

    def starting(self, status: str) -> None:
        """Extend the start timeout."""
        self._send(f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={START_EXTENSION_S * 1_000_000}")

    def ready(self, status: str) -> None:
        """End the start or the reload."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        # The manager compares this time with those of its own events.
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now_us}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={status}")

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=stopping")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def store(self, name: str, sock: socket.socket) -> None:
        """Let the manager keep the socket, and pass it to the next process of the service.

        The manager drops it when the service has stopped, or when the socket was shut down.
        """
        self._send("FDSTORE=1", f"FDNAME={name}", fds=[sock.fileno()])

    def _send(self, *lines: str, fds: Sequence[int] = ()) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                # A manager that does not read must not block the server.
                sender.setblocking(False)
                sender.connect(self._address)
                data = "\n".join(lines).encode()
                socket.send_fds(sender, [data], list(fds)) if fds else sender.send(data)
        except OSError:
            pass  # the manager is gone


def notifier_from_environment(environ: MutableMapping[str, str], pid: int) -> Notifier:
    """Create the notifier, and remove its variables so that no child process uses them."""
    path = environ.pop("NOTIFY_SOCKET", None)
    watchdog_us = environ.pop("WATCHDOG_USEC", "")
    watched = environ.pop("WATCHDOG_PID", str(pid))
    if path is None or not path.startswith(("/", "@")):
        return Notifier()
    is_watched = watched == str(pid) and watchdog_us.isascii() and watchdog_us.isdigit()
    return Notifier(path, int(watchdog_us) / 1_000_000 if is_watched else 0.0)
