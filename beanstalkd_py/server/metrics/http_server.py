"""Metrics and health over HTTP, for whoever watches the server; from the parent's event loop.

Clients are served by other processes, and accepted by other greenlets of this one: so the text is
made in small pieces, and whoever asks and does not read, or says half a request, is cut off. Must
not know which metrics there are.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
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

CONNECTIONS = 256
"""At most so many at a time; a further one ends the oldest of the address that has the most."""
PER_SOURCE = 64
"""At most so many of one address at a time; a further one ends the oldest of them."""
REQUEST_LIMIT_S = 5.0
"""For the wait for a request and the request together: so long somebody may hold a connection."""
ANSWER_LIMIT_S = 30.0
"""For making the answer and for whoever has asked to take it."""
REQUEST_BYTES = 1 << 16
CHEAP_S = 0.02
KEPT_TIMES = 33
KEPT_AT_MOST_S = 10.0
"""A text is kept for so many times the processor time it took, unless it was cheap."""
PIECE_SAMPLES = 200
"""Made into text at once, in a millisecond or two; then others may run."""
PAUSE_S = 1e-4
"""Between pieces. A pause of no length at all would not let the loop look at its sockets."""
SHORTAGE_PAUSE_S = 1.0
SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
END_OF_OPENMETRICS = b"# EOF\n"
PLAIN = "text/plain; charset=utf-8"

INDEX = b"""<!DOCTYPE html>
<html><head><title>beanstalkd-py</title></head><body><h1>beanstalkd-py</h1>
<p><a href="/metrics">metrics</a> <a href="/-/healthy">healthy</a> <a href="/-/ready">ready</a></p>
</body></html>
"""

Collect = Callable[[], Iterable[Metric]]
Readiness = Callable[[], tuple[bool, str]]
"""Whether all workers serve and no component keeps restarting, and the status as a line."""


class _Pages:
    """The text of all metrics. What took long to make is kept, so that many tubes cost little.

    However often it is asked for, making it takes about 3% of a core, unless that would be later
    than KEPT_AT_MOST_S.
    """

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        self._kept: dict[str, tuple[float, float, str, bytes]] = {}
        # Many scrapes at once would keep the loop from everything else.
        self._making = Semaphore()

    def page(self, accept: str) -> tuple[str, bytes]:
        """The type and the text for this Accept header."""
        asked_mono = time.monotonic()
        with self._making:
            began_mono, until_mono, kind, body = self._kept.get(accept, (0.0, 0.0, "", b""))
            # All who have asked before a text was begun share it.
            if began_mono > asked_mono or time.monotonic() < until_mono:
                return kind, body
            kind, body = self._make(accept)
        # Else a client that asks again at once would come before those who wait.
        gevent.sleep(PAUSE_S)
        return kind, body

    def _make(self, accept: str) -> tuple[str, bytes]:
        began_mono, began_s = time.monotonic(), time.thread_time()
        kind, body = exposition(self._collect(), accept)
        took_s = time.thread_time() - began_s
        self._kept.clear()
        keep_s = min(KEPT_TIMES * took_s, KEPT_AT_MOST_S) if took_s >= CHEAP_S else 0.0
        self._kept[accept] = (began_mono, time.monotonic() + keep_s, kind, body)
        return kind, body


class MetricsServer:
    """Answers on one listening socket, which it owns."""

    def __init__(self, listener: Listener, collect: Collect, readiness: Readiness) -> None:
        self._listener = listener
        self._pages = _Pages(collect)
        self._readiness = readiness
        raw = listener.socket
        self._pool = Pool()
        copy = GeventSocket(raw.family, raw.type, raw.proto, fileno=os.dup(raw.fileno()))
        self._server = _Server(
            copy,
            self._answer,
            log=None,
            error_log=LOGGER,
            spawn=self._pool,
            handler_class=_Handler,
            # Else the name of the address is asked of the resolver.
            environ={"SERVER_NAME": socket.gethostname()},
        )

    def start(self) -> None:
        """From now on."""
        self._server.start()

    @property
    def conversations(self) -> int:
        """How many connections there are."""
        return len(self._pool)

    def close(self) -> None:
        """Stops listening, and ends all conversations."""
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
            return "405 Method Not Allowed", PLAIN, b"only GET and HEAD are answered here\n"
        match environ.get("PATH_INFO"):
            case "/metrics":
                return "200 OK", *self._pages.page(environ.get("HTTP_ACCEPT", ""))
            case "/-/healthy":
                return "200 OK", PLAIN, b"healthy\n"
            case "/-/ready":
                ready, text = self._readiness()
                return (
                    "200 OK" if ready else "503 Service Unavailable",
                    PLAIN,
                    f"{text}\n".encode(),
                )
            case "/":
                return "200 OK", "text/html; charset=utf-8", INDEX
            case _:
                return "404 Not Found", PLAIN, b"there are /metrics, /-/healthy and /-/ready\n"


def exposition(metrics: Iterable[Metric], accept: str) -> tuple[str, bytes]:
    """The type and the text that this Accept header asks for. Lets others run in between."""
    encode, kind = choose_encoder(accept)
    parts = []
    ends = False
    samples = 0
    for metric in metrics:
        for number, piece in enumerate(_pieces(metric)):
            text = encode(_One(piece))
            ends = text.endswith(END_OF_OPENMETRICS)
            text = text.removesuffix(END_OF_OPENMETRICS)
            parts.append(text if number == 0 else _without_head(text))
            samples += len(piece.samples)
            if samples >= PIECE_SAMPLES:
                gevent.sleep(PAUSE_S)
                samples = 0
    return kind, b"".join([*parts, END_OF_OPENMETRICS] if ends else parts)


def _pieces(metric: Metric) -> Iterator[Metric]:
    """The same metric with a part of its samples each."""
    for start in range(0, max(len(metric.samples), 1), PIECE_SAMPLES):
        piece = Metric(metric.name, metric.documentation, metric.type, metric.unit)
        piece.samples = metric.samples[start : start + PIECE_SAMPLES]
        yield piece


def _without_head(text: bytes) -> bytes:
    """Without the lines that say what follows."""
    at = 0
    while text.startswith(b"#", at):
        at = text.index(b"\n", at) + 1
    return text[at:]


class _One(Collector):
    """A single metric, as encoders want it."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


class _Server(WSGIServer):
    """Accepts always, so that health is never queued behind slow clients.

    It waits a moment when there are no descriptors left, rather than log each time.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._sources: dict[GeventSocket, str] = {}

    def handle(self, sock: GeventSocket, address: Any) -> None:
        """The whole of one connection."""
        source = source_of(address[0]) if isinstance(address, tuple) else ""
        counts = Counter(self._sources.values())
        if counts[source] >= PER_SOURCE:
            self._end_oldest(source)
        elif len(self._sources) >= CONNECTIONS:
            self._end_oldest(max(counts, key=lambda one: counts[one]))
        self._sources[sock] = source
        try:
            super().handle(sock, address)
        finally:
            self._sources.pop(sock, None)

    def _end_oldest(self, source: str) -> None:
        oldest = next(sock for sock, its in self._sources.items() if its == source)
        del self._sources[oldest]
        with contextlib.suppress(OSError):  # the client has gone already
            oldest.shutdown(socket.SHUT_RDWR)

    def do_read(self) -> Any:
        """The next connection; None: there is none now."""
        try:
            return super().do_read()
        except OSError as error:
            if error.errno not in SHORTAGES:
                raise
            LOGGER.warning("metrics: new connections have to wait: %s", error.strerror)
            self.stop_accepting()
            gevent.spawn_later(SHORTAGE_PAUSE_S, self._go_on)
            return None

    def _go_on(self) -> None:
        if self.started:
            self.start_accepting()


class _Handler(WSGIHandler):
    """One connection: what it says and how long it takes have limits."""

    def __init__(self, sock: Any, address: Any, server: Any) -> None:
        super().__init__(sock, address, server)
        self._bounded = _Bounded(self.rfile)
        self.rfile = cast(Any, self._bounded)

    def handle(self) -> None:
        """The whole connection. Whoever has gone meanwhile, or is sent away, is nobody's error."""
        with contextlib.suppress(OSError):
            super().handle()

    def _handle_client_error(self, ex: Exception) -> Any:
        """As its base does, which prints the traceback of an end of the connection."""
        return None if isinstance(ex, OSError) else super()._handle_client_error(ex)  # type: ignore[misc]

    def handle_one_request(self) -> Any:
        """As its base does; None, which closes the connection, when that takes too long."""
        self._bounded.refill()
        self._limit = gevent.Timeout.start_new(REQUEST_LIMIT_S)
        try:
            return super().handle_one_request()
        except gevent.Timeout as over:
            if over is not self._limit:
                raise
            return None
        finally:
            self._limit.close()

    def handle_one_response(self) -> None:
        """The request is whole."""
        self._limit.close()
        self._limit = gevent.Timeout.start_new(ANSWER_LIMIT_S)
        super().handle_one_response()

    def log_error(self, msg: str, *args: object) -> None:
        """What is wrong with a request is the client's affair."""
        LOGGER.debug("metrics: " + msg, *args)

    def handle_error(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Whoever has gone or is too slow is nobody's error; the rest is told, and answered 500."""
        if isinstance(error, gevent.Timeout):
            raise error
        if isinstance(error, OSError):
            self.close_connection = True
        else:
            super().handle_error(kind, error, trace)


class _Bounded:
    """A reader that takes no more than REQUEST_BYTES for one request."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._left = REQUEST_BYTES

    def refill(self) -> None:
        """Another request begins."""
        self._left = REQUEST_BYTES

    def readline(self, size: int = -1) -> bytes:
        """A line, or `size` bytes of it. Raises ValueError."""
        line: bytes = self._reader.readline(self._most(size))
        self._left -= len(line)
        if self._left == 0:
            raise ValueError(f"the request has more than {REQUEST_BYTES} bytes")
        return line

    def read(self, size: int = -1) -> bytes:
        """So many bytes, or what may still be read."""
        data: bytes = self._reader.read(self._most(size))
        self._left -= len(data)
        return data

    def _most(self, size: int) -> int:
        return self._left if size < 0 else min(size, self._left)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)
