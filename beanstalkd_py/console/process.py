"""The console in a process: the application of its settings, and the HTTP server.

gevent has patched the standard library before this module is imported, so that the blocking
connections of the application block one greenlet only.
"""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

from gevent import signal_handler
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer
from gevent.socket import socket as GeventSocket

from beanstalkd_py.console.access.accounts import Role
from beanstalkd_py.console.access.browser_checks import known_hosts
from beanstalkd_py.console.application import Console, ConsoleOptions
from beanstalkd_py.console.settings import ConsoleSettings
from beanstalkd_py.console.target import Target

LOGGER = logging.getLogger("beanstalkd_py")
MOST_CONNECTIONS = 1000
IDLE_S = 75.0
"""For an idle connection and the next request together."""


class _Handler(WSGIHandler):
    def log_request(self) -> None:
        """Log nothing: the audit log has what matters."""

    def read_request(self, raw_requestline: str) -> Any:
        self.socket.settimeout(IDLE_S)
        return super().read_request(raw_requestline)


def new_console(settings: ConsoleSettings, targets: Sequence[Target]) -> Console:
    """Return the console of checked settings. Raises UsageError for their files."""
    options = ConsoleOptions(
        targets,
        known_hosts(settings.host, settings.names),
        settings.accounts(),
        Role.named(settings.role),
        settings.user_header,
        settings.is_https,
    )
    return Console(options, settings.open_audit_log())


def new_server(console: Console, listener: socket.socket) -> WSGIServer:
    """Return a server that owns the listening socket, and has not started."""
    adopted = GeventSocket(listener.family, listener.type, listener.proto, listener.detach())
    return WSGIServer(
        adopted,
        console,
        log=None,
        error_log=LOGGER,
        spawn=Pool(MOST_CONNECTIONS),
        handler_class=_Handler,
        environ={"SERVER_NAME": socket.gethostname()},  # avoids a DNS lookup
    )


def serve_console(console: Console, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT. Owns the listening socket."""
    server = new_server(console, listener)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal_handler(number, server.stop, 0)
    server.start()
    ready()
    server.serve_forever()
