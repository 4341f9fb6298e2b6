"""The process of the console: listens, drops nothing else, and serves until it is stopped."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from gevent import signal_handler
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer
from gevent.socket import socket as GeventSocket

from beanstalkd_py.console.application import Console

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


def serve_console(console: Console, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT. Owns the listening socket."""
    adopted = GeventSocket(listener.family, listener.type, listener.proto, listener.detach())
    server = WSGIServer(
        adopted,
        console,
        log=None,
        error_log=LOGGER,
        spawn=Pool(MOST_CONNECTIONS),
        handler_class=_Handler,
        environ={"SERVER_NAME": socket.gethostname()},  # avoids a DNS lookup
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal_handler(number, server.stop, 0)
    server.start()
    ready()
    server.serve_forever()


def end_with_parent(parent: int) -> None:
    """Stop if the parent has ended before this process could ask to be told."""
    if os.getppid() != parent:
        raise SystemExit(0)
