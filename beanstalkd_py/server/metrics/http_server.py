"""Metrics and health over HTTP, in the parent's event loop.

Other greenlets of this process accept clients, so this module renders metrics in small pieces, and
closes connections that stall.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace, TracebackType
from typing import Any, cast
from wsgiref.types import StartResponse, WSGIEnvironment

import gevent
from gevent.lock import Semaphore
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer
from gevent.socket import socket as GeventSocket
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from beanstalkd_py.server.accept.listeners import Listener
from beanstalkd_py.server.accept.networks import source_of
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.logging.throttling import OUT_OF_DESCRIPTORS

MAX_CONNECTIONS = 256
"""At this limit, a new connection closes the oldest one of the address with most connections."""
PER_SOURCE = 64
"""At this limit, a new connection of an address closes its oldest one."""
REQUEST_LIMIT_S = 5.0
"""For an idle connection and the next request together."""
RESPONSE_LIMIT_S = 30.0
"""For rendering and sending the response."""
STOP_LIMIT_S = 0.2
"""For answers that have begun. A standby that takes over waits for them."""
REQUEST_BYTES = 1 << 16
SLOW_PAGE_S = 0.02
CACHE_FACTOR = 33
MAX_CACHE_S = 10.0
"""A page that takes SLOW_PAGE_S of CPU time is cached CACHE_FACTOR times that long, up to 10 s."""
PIECE_SAMPLES = 200
"""Samples rendered between two pauses, in a millisecond or two."""
PAUSE_S = 1e-4
"""The pause between pieces. Only a pause above zero lets the event loop poll its sockets."""
ACCEPT_PAUSE_S = 1.0
END_OF_OPENMETRICS = b"# EOF\n"
PLAIN = "text/plain; charset=utf-8"

INDEX = b"""<!DOCTYPE html>
<html><head><title>beanstalkd-py</title></head><body><h1>beanstalkd-py</h1>
<p><a href="/metrics">metrics</a> <a href="/-/healthy">healthy</a> <a href="/-/ready">ready</a></p>
</body></html>
"""

Collect = Callable[[], Iterable[Metric]]
Readiness = Callable[[], tuple[bool, str]]
"""Returns whether all workers serve and no component keeps restarting, and the status line."""


class _Pages:
    """Renders and caches the metrics page.

    The cache limits rendering to about 3% of a processor, however often clients ask.
    """

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        self._cache: dict[str, tuple[float, float, str, bytes]] = {}
        # One rendering at a time, because concurrent ones would delay all other greenlets.
        self._lock = Semaphore()

    def page(self, accept: str) -> tuple[str, bytes]:
        """Return the content type and the page for this Accept header."""
        requested_mono = time.monotonic()
        with self._lock:
            began_mono, until_mono, kind, body = self._cache.get(accept, (0.0, 0.0, "", b""))
            # Requests that arrived before the rendering began share its page.
            if began_mono > requested_mono or time.monotonic() < until_mono:
                return kind, body
            kind, body = self._render(accept)
        # Without a pause, a client that asks again would overtake waiting requests.
        gevent.sleep(PAUSE_S)
        return kind, body

    def _render(self, accept: str) -> tuple[str, bytes]:
        began_mono, began_s = time.monotonic(), time.thread_time()
        kind, body = exposition(self._collect(), accept)
        took_s = time.thread_time() - began_s
        self._cache.clear()
        cached_s = min(CACHE_FACTOR * took_s, MAX_CACHE_S) if took_s >= SLOW_PAGE_S else 0.0
        self._cache[accept] = (began_mono, time.monotonic() + cached_s, kind, body)
        return kind, body


class MetricsServer:
    """Serves one listening socket, which it owns."""

    def __init__(self, listener: Listener, collect: Collect, readiness: Readiness) -> None:
        self._listener = listener
        self._pages = _Pages(collect)
        self._readiness = readiness
        raw = listener.socket
        self._pool = Pool()
        self._server = _Server(
            GeventSocket(raw.family, raw.type, raw.proto, fileno=os.dup(raw.fileno())),
            self._answer,
            log=None,
            error_log=LOGGER,
            spawn=self._pool,
            handler_class=_Handler,
            environ={"SERVER_NAME": socket.gethostname()},  # avoids a DNS lookup
        )

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        """Stop serving after the answers that have begun; the listening socket stays open."""
        self._server.close()
        until_mono = time.monotonic() + STOP_LIMIT_S
        while self._server.answering and time.monotonic() < until_mono:
            gevent.sleep(PAUSE_S)
        self._server.stop(timeout=0)

    def close(self) -> None:
        self._server.stop(timeout=0)
        self._listener.close()

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status, kind, body = self._answer_to(environ)
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        if status.startswith("405"):
            headers.append(("Allow", "GET, HEAD"))
        start_response(status, headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer_to(self, environ: WSGIEnvironment) -> tuple[str, str, bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", PLAIN, b"use GET or HEAD\n"
        match environ.get("PATH_INFO"):
            case "/metrics":
                return "200 OK", *self._pages.page(environ.get("HTTP_ACCEPT", ""))
            case "/-/healthy":
                return "200 OK", PLAIN, b"healthy\n"
            case "/-/ready":
                ready, text = self._readiness()
                status = "200 OK" if ready else "503 Service Unavailable"
                return status, PLAIN, f"{text}\n".encode()
            case "/":
                return "200 OK", "text/html; charset=utf-8", INDEX
            case _:
                return "404 Not Found", PLAIN, b"not found; use /metrics, /-/healthy or /-/ready\n"


def exposition(metrics: Iterable[Metric], accept: str) -> tuple[str, bytes]:
    """Return the content type and the page for an Accept header. Yields to other greenlets."""
    encode, kind = choose_encoder(accept)
    page: list[bytes] = []
    is_openmetrics = False
    samples = 0
    for metric in metrics:
        for number, piece in enumerate(_pieces(metric)):
            text = encode(cast(Collector, SimpleNamespace(collect=lambda: [piece])))  # noqa: B023
            is_openmetrics = text.endswith(END_OF_OPENMETRICS)
            lines = text.removesuffix(END_OF_OPENMETRICS).splitlines(keepends=True)
            page += [line for line in lines if number == 0 or not line.startswith(b"#")]
            samples += len(piece.samples)
            if samples >= PIECE_SAMPLES:
                gevent.sleep(PAUSE_S)
                samples = 0
    return kind, b"".join([*page, END_OF_OPENMETRICS] if is_openmetrics else page)


def _pieces(metric: Metric) -> Iterator[Metric]:
    for start in range(0, max(len(metric.samples), 1), PIECE_SAMPLES):
        piece = Metric(metric.name, metric.documentation, metric.type, metric.unit)
        piece.samples = metric.samples[start : start + PIECE_SAMPLES]
        yield piece


class _Server(WSGIServer):
    """Closes old connections at the limits, so that slow clients never delay health checks.

    Pauses when descriptors run out, instead of logging each failed accept.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._sources: dict[GeventSocket, str] = {}
        self.answering = 0
        """Requests that are complete, and whose answers are not sent yet."""

    def handle(self, sock: GeventSocket, address: Any) -> None:
        source = source_of(address[0]) if isinstance(address, tuple) else ""
        counts = Counter(self._sources.values())
        if counts[source] >= PER_SOURCE:
            self._close_oldest(source)
        elif len(self._sources) >= MAX_CONNECTIONS:
            self._close_oldest(max(counts, key=lambda source: counts[source]))
        self._sources[sock] = source
        try:
            super().handle(sock, address)
        finally:
            self._sources.pop(sock, None)

    def _close_oldest(self, source: str) -> None:
        oldest = next(sock for sock, other in self._sources.items() if other == source)
        del self._sources[oldest]
        with contextlib.suppress(OSError):  # the client is gone
            oldest.shutdown(socket.SHUT_RDWR)

    def do_read(self) -> Any:
        try:
            return super().do_read()
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
            LOGGER.warning("metrics: new connections have to wait: %s", error.strerror)
            self.stop_accepting()
            gevent.spawn_later(ACCEPT_PAUSE_S, self._resume)
            return None

    def _resume(self) -> None:
        if self.started:
            self.start_accepting()


class _Handler(WSGIHandler):
    """One connection, with limits of time and size."""

    def __init__(self, sock: Any, address: Any, server: Any) -> None:
        super().__init__(sock, address, server)
        self._request = _LimitedReader(self.rfile)
        self.rfile = cast(Any, self._request)

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    def _handle_client_error(self, ex: Exception) -> Any:
        # The base class prints a traceback when the client closes the connection.
        return None if isinstance(ex, OSError) else super()._handle_client_error(ex)  # type: ignore[misc]

    def handle_one_request(self) -> Any:
        """Return None after the limit, which closes the connection."""
        self._request.restart()
        self._limit = gevent.Timeout.start_new(REQUEST_LIMIT_S)
        try:
            return super().handle_one_request()
        except gevent.Timeout as timeout:
            if timeout is not self._limit:
                raise
            return None
        finally:
            self._limit.close()

    def handle_one_response(self) -> None:
        self._limit.close()  # because the request is complete
        self._limit = gevent.Timeout.start_new(RESPONSE_LIMIT_S)
        server = cast(_Server, self.server)
        server.answering += 1
        try:
            super().handle_one_response()
        finally:
            server.answering -= 1

    def log_error(self, msg: str, *args: object) -> None:
        # At level DEBUG, because these errors are the client's.
        LOGGER.debug("metrics: " + msg, *args)

    def handle_error(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, gevent.Timeout):
            raise error
        if isinstance(error, OSError):
            self.close_connection = True
        else:
            super().handle_error(kind, error, trace)


class _LimitedReader:
    """A reader that returns at most REQUEST_BYTES per request."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.restart()

    def restart(self) -> None:
        self._left = REQUEST_BYTES

    def readline(self, size: int = -1) -> bytes:
        """Raises ValueError at the limit."""
        line: bytes = self._reader.readline(self._limited(size))
        self._left -= len(line)
        if self._left == 0:
            raise ValueError(f"the request exceeds {REQUEST_BYTES} bytes")
        return line

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._reader.read(self._limited(size))
        self._left -= len(data)
        return data

    def _limited(self, size: int) -> int:
        return self._left if size < 0 else min(size, self._left)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)
