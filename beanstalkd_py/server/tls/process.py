"""The process that speaks TLS, from exec to exit.

process.py runs it with CHANNEL CONNECTIONS SHARED, three descriptors from the parent. It gets
accepted connections by SCM_RIGHTS as a worker does, does their handshakes, and gives the parent the
other end of a pair of plain sockets for each, which goes the way of any connection. Must not know
the protocol, or where connections go.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
from gevent.event import Event
from gevent.lock import Semaphore

from beanstalkd_py import errors
from beanstalkd_py.core.connections import origin_of
from beanstalkd_py.server.accept.handover import BATCH, RETRY_S
from beanstalkd_py.server.accept.networks import source_of
from beanstalkd_py.server.logging.lines import LogSource
from beanstalkd_py.server.logging.setup import LOGGER, flush_log, never_block, set_up_logging
from beanstalkd_py.server.logging.throttled_log import ThrottledLog
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.child import configuration, ignore_server_signals
from beanstalkd_py.server.process.descriptor_passing import TRANSIENT
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.fd_wait import READ, WRITE, FdWatcher
from beanstalkd_py.server.process.privileges import raise_descriptor_limit
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.tls.certificates import Certificates, make_context
from beanstalkd_py.server.tls.client_names import bind_name
from beanstalkd_py.server.tls.handshakes import Handshake, Handshakes
from beanstalkd_py.server.tls.tunnel import Tunnel

HANDSHAKE_S = 5.0
SWEEP_S = 0.1
PAUSE_S = 1e-4
LAST_TUNNELS_S = 2.0
"""For what workers have said last before they closed all connections."""


SOURCE = LogSource(name="tls")


def main(arguments: list[str]) -> int:
    """Runs the process; its exit status."""
    channel_fd, connections_fd, shared_fd = map(int, arguments)
    ignore_server_signals()
    channel_ = channel.Channel(socket.socket(fileno=channel_fd))
    config = configuration(channel_)
    if config is None:
        return EXIT_OK
    set_up_logging(config["verbosity"], config["log_format"], SOURCE)
    never_block()
    raise_descriptor_limit()
    shared = SharedMemory(shared_fd)
    os.close(shared_fd)
    return TlsTerminator(channel_, socket.socket(fileno=connections_fd), shared.tls).run()


class TlsTerminator:
    """Where TLS ends. `counters` is its bs_counters, see SharedMemory.tls."""

    def __init__(
        self, channel_: channel.Channel, connections: socket.socket, counters: Any
    ) -> None:
        self._orders = channel_
        self._connections = connections
        self._counters = counters
        self._context: ssl.SSLContext | None = None
        self._failures = ThrottledLog("TLS: handshakes failed")
        self._crowds = ThrottledLog("TLS: too many handshakes at a time, some were given up")
        self._room = FdWatcher(channel_.fileno(), WRITE)
        self._passing = Semaphore()  # only one at a time can wait for room
        self._stop = Event()
        self._handshakes = Handshakes()
        self._crowded = Semaphore()
        self._tunnels: set[gevent.Greenlet[[], None]] = set()

    def run(self) -> int:
        """Serves until the parent says stop or goes; the exit status."""
        self._orders.never_block()
        self._connections.setblocking(False)
        tasks = [
            gevent.spawn(partial(_exit_on_error, one))
            for one in (self._read_channel, self._adopt, self._sweep)
        ]
        self._orders.send(channel.READY)
        self._stop.wait()
        gevent.killall(tasks)
        gevent.joinall(list(self._tunnels), timeout=LAST_TUNNELS_S)
        return EXIT_OK

    # --- channel_ -------------------------------------------------------------------------------

    def _read_channel(self) -> None:
        ready = FdWatcher(self._orders.fileno(), READ)
        while not self._stop.is_set():
            ready.wait()
            self._handle_message()

    def _handle_message(self) -> None:
        message, fd = self._orders.receive_with_fd()
        match message:
            case None | [channel.STOP]:
                self._stop.set()
            case [channel.PING]:
                self._orders.send(channel.PONG)
            case [channel.CHANGE, int(verbosity), str(log_format)]:
                set_up_logging(verbosity, log_format, SOURCE)
            case [channel.CERTIFICATES] if fd is not None:
                self._take_certificates(fd)
            case _:
                LOGGER.warning("the parent sent an unknown message")
        if fd is not None:
            os.close(fd)

    def _take_certificates(self, fd: int) -> None:
        """Connections that are open keep theirs."""
        try:
            self._context = make_context(Certificates.from_memory_file(fd))
        except errors.UsageError as error:
            # The parent has made one of the same before.
            LOGGER.error("TLS: %s", error)

    # --- connections --------------------------------------------------------------------------

    def _adopt(self) -> None:
        ready = FdWatcher(self._connections.fileno(), READ)
        while True:
            ready.wait()
            try:
                sizes, fds, _, _ = socket.recv_fds(self._connections, BATCH, BATCH)
            except BlockingIOError:
                continue
            if not sizes:
                return  # the parent has gone
            self._counters.total_connections += len(sizes)
            self._counters.closed_connections += len(sizes) - len(fds)
            for fd in fds:
                os.set_inheritable(fd, False)
                task = gevent.spawn(partial(_exit_on_error, partial(self._serve, fd)))
                self._tunnels.add(task)
                task.link(self._tunnels.discard)

    def _serve(self, fd: int) -> None:
        accepted = socket.socket(fileno=fd)
        peer = origin_of(fd)
        client = self._shake_hands(accepted, peer)
        if client is None:
            self._counters.closed_connections += 1
            return
        self._counters.connections += 1
        try:
            plain = self._give_to_the_parent(peer)
            if plain is None:
                client.close()
            else:
                self._carry(client, plain)
        finally:
            self._counters.connections -= 1

    def _carry(self, client: ssl.SSLSocket, plain: socket.socket) -> None:
        """The worker that has closed counts it no more, but limits have to."""
        outliving = False

        def outlives() -> None:
            nonlocal outliving
            if not outliving:
                outliving = True
                self._counters.waiting += 1

        try:
            Tunnel(client, plain, outlives).run()
        finally:
            self._counters.waiting -= outliving

    def _shake_hands(self, accepted: socket.socket, peer: str) -> ssl.SSLSocket | None:
        accepted.setblocking(False)
        client: ssl.SSLSocket | None = None
        try:
            if self._context is None:
                raise OSError("there is no certificate yet")
            client = self._context.wrap_socket(
                accepted,
                server_side=True,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,
            )
            handshake = self._handshakes.begin(client, source_of(client.getpeername()[0]))
            try:
                with gevent.Timeout(HANDSHAKE_S, TimeoutError("it took too long")):
                    if self._handshakes.is_crowded(handshake.source):
                        self._let_others_go_first()
                    _shake(client, handshake)
            finally:
                self._handshakes.end(handshake)
        except OSError as error:
            self._failures.note(f"{peer}: {getattr(error, 'reason', None) or error}")
            (client or accepted).close()
            return None
        return client

    def _let_others_go_first(self) -> None:
        """A millisecond of cryptography each, many in a row, would keep other sources waiting."""
        with self._crowded:
            gevent.sleep(PAUSE_S)

    def _sweep(self) -> None:
        while True:
            gevent.sleep(SWEEP_S)
            given_up = self._handshakes.give_up_surplus(time.monotonic())
            if given_up:
                self._crowds.note(f"{given_up} more waited for clients that did not answer")

    def _give_to_the_parent(self, peer: str) -> socket.socket | None:
        """Our end of a new pair; None if there are no descriptors left, or no parent."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            LOGGER.error("TLS: a connection was lost: %s", error.strerror)
            self._counters.closed_connections += 1
            return None
        bind_name(ours, peer)
        ours.setblocking(False)
        with theirs, self._passing:
            while not self._pass_on(theirs.fileno()):
                pass
        return ours

    def _pass_on(self, fd: int) -> bool:
        try:
            if self._orders.send_fd(fd, channel.CONNECTION):
                return True
            self._room.wait()
        except OSError as error:
            if error.errno not in TRANSIENT:
                raise
            gevent.sleep(RETRY_S)
        return False


def _shake(client: ssl.SSLSocket, handshake: Handshake) -> None:
    watchers: dict[int, FdWatcher] = {}
    try:
        while True:
            try:
                client.do_handshake()
                return
            except ssl.SSLWantReadError:
                event = READ
            except ssl.SSLWantWriteError:
                event = WRITE
            if event not in watchers:
                watchers[event] = FdWatcher(client.fileno(), event)
            handshake.waits_since = time.monotonic()
            watchers[event].wait()
            handshake.waits_since = None
    finally:
        for watcher in watchers.values():
            watcher.close()


def _exit_on_error(task: Callable[[], None]) -> None:
    """An error that nobody expects is the end of the process; the parent starts another."""
    try:
        task()
    except Exception:
        import traceback

        flush_log()
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(EXIT_ERROR)
