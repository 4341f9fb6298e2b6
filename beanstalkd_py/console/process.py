"""The console in a process: the application of its settings, and the HTTP server.

gevent has patched the standard library before this module is imported, so that the blocking
connections of the application block one greenlet only.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

from gevent import get_hub, signal_handler
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
REQUEST_S = 75.0
"""For an idle connection, the next request and its body together."""
SEND_S = 75.0
"""For each part of a response."""


class _Handler(WSGIHandler):
    """Closes connections of clients that send or receive too slowly."""

    def handle_one_request(self) -> Any:
        self.socket.settimeout(SEND_S)
        self._timer = get_hub().loop.timer(REQUEST_S)
        self._timer.start(self._end_reading)
        try:
            return super().handle_one_request()
        finally:
            self._timer.stop()
            self._timer.close()

    def _end_reading(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RD)

    def start_response(self, *arguments: Any) -> Any:
        self._timer.stop()  # a response may be events without end
        return super().start_response(*arguments)

    def process_result(self) -> None:
        super().process_result()
        self._timer.start(self._end_reading)  # for the rest of the body, which is discarded

    def read_request(self, raw_requestline: str) -> Any:
        try:
            return super().read_request(raw_requestline)
        except Exception as error:  # pywsgi would log others than these with a traceback
            raise ValueError("invalid request") from error

    def log_error(self, msg: str, *args: object) -> None:
        """Log only for debugging, because any client can cause these lines."""
        LOGGER.debug("console: " + msg, *args)

    def log_request(self) -> None:
        """Log nothing: the audit log has what matters."""


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
    console.stop()
