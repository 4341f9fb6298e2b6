"""A TLS process, from exec to exit.

It receives accepted connections by SCM_RIGHTS like a worker, and performs their handshakes. For
each it creates a pair of plain sockets and sends one end to the parent, which routes it like any
other connection. A tunnel copies between the client and the other end.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import socket
import ssl
import time
from functools import partial
from typing import Any

import gevent
from gevent.event import Event
from gevent.lock import Semaphore

from beanstalkd_py import errors
from beanstalkd_py.core.connections import origin_of
from beanstalkd_py.server.accept.handover import BATCH, CERTIFICATES, RETRY_S
from beanstalkd_py.server.accept.networks import source_of
from beanstalkd_py.server.logging.lines import LogSource
from beanstalkd_py.server.logging.setup import (
    LOGGER,
    exit_on_error,
    log_in_background,
    set_up_logging,
)
from beanstalkd_py.server.logging.throttling import ThrottledLog
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_OK
from beanstalkd_py.server.process.fd_wait import READ, WRITE, FdWatcher
from beanstalkd_py.server.process.messages import ProcessConfig
from beanstalkd_py.server.process.privileges import raise_descriptor_limit
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.tls.certificates import Certificates, make_context
from beanstalkd_py.server.tls.handshakes import Handshake, Handshakes
from beanstalkd_py.server.tls.tunnel import TlsSocket, run_tunnel

HANDSHAKE_S = 5.0
CHECK_S = 0.1
PAUSE_S = 1e-4
DRAIN_LIMIT_S = 2.0
"""How long a stop waits until tunnels have sent the last data of workers."""

SOURCE = LogSource(name="tls")

_NAME_PREFIX = b"\0beanstalkd-py/tls/"
_serial = itertools.count()


def main(
    parent: channel.Channel, connections_fd: int, shared: SharedMemory, config: ProcessConfig
) -> int:
    set_up_logging(config.options.verbosity, config.options.log_format, SOURCE)
    log_in_background()
    raise_descriptor_limit()
    counters = shared.tls_counters(config.index)
    return TlsTerminator(parent, socket.socket(fileno=connections_fd), counters).run()


class TlsTerminator:
    """The connections of one TLS process; `counters` is from SharedMemory.tls_counters."""

    def __init__(self, parent: channel.Channel, connections: socket.socket, counters: Any) -> None:
        self._parent = parent
        self._connections = connections
        self._counters = counters
        self._context: ssl.SSLContext | None = None
        self._failures = ThrottledLog("TLS: handshakes failed")
        self._aborted = ThrottledLog("TLS: handshakes aborted at the limit")
        self._writable = FdWatcher(parent.fileno(), WRITE)
        self._sending = Semaphore()  # a watcher serves one greenlet at a time
        self._stop = Event()
        self._handshakes = Handshakes()
        self._crowded_source = Semaphore()  # for one handshake at a time
        self._tunnels: set[gevent.Greenlet[[], None]] = set()

    def run(self) -> int:
        """Serve until the parent sends STOP or ends; return the exit status."""
        self._parent.set_nonblocking()
        self._connections.setblocking(False)
        loops = (self._read_channel, self._adopt, self._abort_surplus)
        tasks = [gevent.spawn(partial(exit_on_error, loop, "TLS process")) for loop in loops]
        self._parent.send(channel.READY)
        self._stop.wait()
        gevent.killall(tasks)
        gevent.joinall(list(self._tunnels), timeout=DRAIN_LIMIT_S)
        return EXIT_OK

    # --- messages of the parent ---------------------------------------------------------------

    def _read_channel(self) -> None:
        ready = FdWatcher(self._parent.fileno(), READ)
        while not self._stop.is_set():
            ready.wait()
            self._handle_message()

    def _handle_message(self) -> None:
        match self._parent.receive():
            case None | [channel.STOP]:
                self._stop.set()
            case [channel.PING]:
                self._parent.send(channel.PONG)
            case [channel.CHANGE, dict(values)]:
                options = ServeOptions(**values)
                set_up_logging(options.verbosity, options.log_format, SOURCE)
            case _:
                LOGGER.warning("ignored an unknown message of the parent")

    # --- connections --------------------------------------------------------------------------

    def _adopt(self) -> None:
        ready = FdWatcher(self._connections.fileno(), READ)
        while True:
            ready.wait()
            try:
                data, fds, _, _ = socket.recv_fds(self._connections, BATCH, BATCH)
            except BlockingIOError:
                continue
            if not data:
                return  # the parent is gone
            if data == CERTIFICATES:
                self._load_certificates(fds)
                continue
            self._counters.total_connections += len(data)
            self._counters.closed_connections += len(data) - len(fds)
            for fd in fds:
                os.set_inheritable(fd, False)
                task = gevent.spawn(partial(exit_on_error, partial(self._serve, fd), "TLS process"))
                self._tunnels.add(task)
                task.link(self._tunnels.discard)

    def _load_certificates(self, fds: list[int]) -> None:
        """Use the certificates of the received file for later connections."""
        try:
            if not fds:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            self._context = make_context(Certificates.from_memory_file(fds[0]))
        except (errors.UsageError, OSError) as error:
            # Unexpected, because the parent has checked them.
            LOGGER.error("TLS: cannot load certificates: %s", error)
        finally:
            for fd in fds:
                os.close(fd)

    def _serve(self, fd: int) -> None:
        accepted = socket.socket(fileno=fd)
        peer = origin_of(fd)
        client = self._accept_tls(accepted, peer)
        if client is None:
            self._counters.closed_connections += 1
            return
        self._counters.connections += 1
        try:
            plain = self._send_to_parent(peer)
            if plain is None:
                client.close()
            else:
                self._run_tunnel(client, plain)
        finally:
            self._counters.connections -= 1

    def _run_tunnel(self, client: ssl.SSLSocket, plain: socket.socket) -> None:
        """Count a tunnel that drains as waiting, because its worker no longer counts it."""
        draining = False

        def on_drain() -> None:
            nonlocal draining
            if not draining:
                draining = True
                self._counters.waiting += 1

        try:
            run_tunnel(client, plain, on_drain)
        finally:
            self._counters.waiting -= draining

    def _accept_tls(self, accepted: socket.socket, peer: str) -> ssl.SSLSocket | None:
        accepted.setblocking(False)
        client: ssl.SSLSocket | None = None
        try:
            if self._context is None:
                raise OSError("no certificate loaded yet")
            client = self._context.wrap_socket(
                accepted,
                server_side=True,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,
            )
            handshake = self._handshakes.begin(client, source_of(client.getpeername()[0]))
            try:
                with gevent.Timeout(HANDSHAKE_S, TimeoutError("timed out")):
                    if self._handshakes.is_crowded(handshake.source):
                        # A handshake takes a millisecond of CPU. Those of other sources go first.
                        with self._crowded_source:
                            gevent.sleep(PAUSE_S)
                    _do_handshake(client, handshake)
            finally:
                self._handshakes.end(handshake)
        except OSError as error:
            self._failures.warn(f"{peer}: {getattr(error, 'reason', None) or error}")
            (client or accepted).close()
            return None
        return client

    def _abort_surplus(self) -> None:
        while True:
            gevent.sleep(CHECK_S)
            aborted = self._handshakes.abort_surplus(time.monotonic())
            if aborted:
                self._aborted.warn(f"{aborted} more waited for clients that sent no data")

    def _send_to_parent(self, peer: str) -> socket.socket | None:
        """Send one end of a new pair to the parent; return the other, or None on failure."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            LOGGER.error("TLS: closed a connection: %s", error.strerror)
            self._counters.closed_connections += 1
            return None
        _bind_name(ours, peer)
        ours.setblocking(False)
        with theirs, self._sending:
            while not self._try_send(theirs.fileno()):
                pass
        return ours

    def _try_send(self, fd: int) -> bool:
        try:
            if self._parent.send(channel.CONNECTION, fd=fd):
                return True
            self._writable.wait()
        except OSError as error:
            if error.errno not in channel.TRANSIENT:
                raise
            gevent.sleep(RETRY_S)
        return False


def _bind_name(end: socket.socket, client: str) -> None:
    """Bind to an abstract address that ends with the client's, for the worker's logs.

    csrc/runtime/peer_address.c reads it, and checks which process has bound it.
    """
    # The serial keeps names unique if a client reuses a port before its old pair is closed.
    name = _NAME_PREFIX + b"%d/%d/%b" % (os.getpid(), next(_serial), client.encode())
    with contextlib.suppress(OSError):
        end.bind(name)


def _do_handshake(client: ssl.SSLSocket, handshake: Handshake) -> None:
    waiting = TlsSocket(client)
    try:
        while True:
            try:
                return client.do_handshake()
            except OSError as error:
                handshake.waits_since = time.monotonic()
                waiting.wait_after(error, READ)
                handshake.waits_since = None
    finally:
        waiting.close()
