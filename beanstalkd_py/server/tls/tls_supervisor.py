"""Supervises the TLS process, and routes the connections that it has decrypted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from gevent.event import Event

from beanstalkd_py import errors
from beanstalkd_py.server.accept.acceptor import Receiver
from beanstalkd_py.server.accept.handover import RESERVED_DESCRIPTORS, Handover
from beanstalkd_py.server.logging.descriptor_pressure import DescriptorPressure
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.restart_backoff import RestartBackoff
from beanstalkd_py.server.process.shared_memory import SharedMemory, open_connections
from beanstalkd_py.server.process.supervision import Liveness, read_channel
from beanstalkd_py.server.stats.worker_stats import Component
from beanstalkd_py.server.tls.certificates import Certificates

HANDSHAKES = 1024
"""The limit of concurrent handshakes; further clients wait in the kernel."""
TLS_FULL = f"limit of {HANDSHAKES} TLS handshakes reached, or the TLS process is restarting"
DESCRIPTORS_PER_CLIENT = 2
STOP_LIMIT_S = 5.0

Start = Callable[[], ChildProcess]


class TlsSupervisor:
    """Also the Receiver of connections for TLS. `descriptors` is the process's RLIMIT_NOFILE."""

    def __init__(
        self, start: Start, certificates: Certificates, shared: SharedMemory, descriptors: int
    ) -> None:
        self._start = start
        self._certificates = certificates
        self._shared = shared
        self._capacity = (descriptors - RESERVED_DESCRIPTORS) // DESCRIPTORS_PER_CLIENT
        self._process: ChildProcess | None = start()
        self._handover: Handover | None = None
        self._receiver: Receiver | None = None
        self._pressure = DescriptorPressure()
        self._backoff = RestartBackoff()
        self._restarts = 0
        self._liveness: Liveness | None = None
        self._stopping = Event()
        self._ready = Event()
        self._ended = Event()
        self._publish_pid()
        self._send_certificates()

    # --- accepted connections -------------------------------------------------------------------

    def load(self) -> int:
        """Return how many connections no worker counts.

        These are handshakes, and tunnels whose worker has closed its end.
        """
        if self._handover is None:
            return 0
        return self._handover.load() + int(self._counters.waiting)

    def free_slots(self) -> int:
        if self._handover is None:
            return 0
        tunnels = int(self._counters.connections)
        return min(self._handover.free_slots(), self._capacity - self._handover.load() - tunnels)

    def send(self, fds: list[int]) -> None:
        if self._handover is None:
            for fd in fds:
                os.close(fd)
        else:
            self._handover.send(fds)

    def wait_until_ready(self) -> None:
        self._ready.wait()

    # --- the process ----------------------------------------------------------------------------

    @property
    def component(self) -> Component:
        return Component("TLS", self._restarts, self._backoff.keeps_restarting)

    def serve(self, receiver: Receiver) -> None:
        """Send decrypted connections to `receiver`."""
        self._receiver = receiver

    def run(self) -> None:
        """Keep a process running until `stop`. Raises WorkerError if the first never served."""
        try:
            self._supervise()
        finally:
            self._ended.set()

    def _supervise(self) -> None:
        was_ready = False
        while (process := self._process) is not None:
            started_mono = time.monotonic()
            status = self._follow(process)
            was_ready = was_ready or self._ready.is_set()
            self._reset()
            process.close()
            if self._stopping.is_set():
                return
            if not was_ready:
                raise errors.WorkerError("cannot start the TLS process", status or 1)
            pause_s = self._backoff.pause_after(time.monotonic() - started_mono)
            LOGGER.error(
                "TLS process (pid %d) ended with status %d, its connections are closed;"
                " restarting in %.1f s",
                *(process.pid, status, pause_s),
            )
            self._start_next(pause_s)

    def stop(self) -> None:
        """Stop the process and wait for it; it still sends pending replies."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        process.channel.send(channel.STOP)
        if not self._ended.wait(STOP_LIMIT_S):
            LOGGER.error("TLS process did not stop within %d s; killing it", STOP_LIMIT_S)
            process.kill()
            self._ended.wait()

    def change(self, certificates: Certificates | None, verbosity: int, log_format: str) -> None:
        """Apply new certificates, if any, to new connections, and new options of the log."""
        if certificates is not None:
            self._certificates = certificates
            self._send_certificates()
        if self._process is not None:
            self._process.channel.send(channel.CHANGE, verbosity, log_format)

    def _send_certificates(self) -> None:
        if self._process is None:
            return
        fd = self._certificates.to_memory_file()
        try:
            self._process.channel.send_fd(fd, channel.CERTIFICATES)
        finally:
            os.close(fd)

    def _follow(self, process: ChildProcess) -> int:
        def handle(message: channel.Message, fd: int | None) -> None:
            match message:
                case [channel.READY]:
                    LOGGER.info("TLS is ready")
                    self._handover = Handover(process.connections, self._counters, HANDSHAKES)
                    self._ready.set()
                    self._liveness = Liveness(process, "TLS process")
                case [channel.PONG] if self._liveness is not None:
                    self._liveness.answered()
                case [channel.CONNECTION] if fd is not None:
                    self._route(fd)
                case _:
                    LOGGER.warning("ignored an unknown message of the TLS process")

        read_channel(process, handle)
        if self._liveness is not None:
            self._liveness.stop()
        return process.wait()

    def _route(self, fd: int) -> None:
        """Route a decrypted connection like any other."""
        while self._receiver is not None and self._receiver.free_slots() <= 0:
            self._pressure.pause("descriptor limit reached")
            if self._liveness is not None:
                self._liveness.answered()  # an unread PONG may be in the channel
        self._pressure.relieve()
        self._counters.moved_out += 1
        if self._receiver is None:
            os.close(fd)
        else:
            self._receiver.send([fd])

    def _reset(self) -> None:
        """Clear the counters, because the connections of the process are closed."""
        handover, self._handover = self._handover, None
        if handover is not None:
            self._counters.total_connections = handover.passed
            handover.close()
        self._counters.closed_connections += open_connections(self._counters)
        self._counters.connections = self._counters.waiting = 0
        self._ready.clear()
        self._process = None
        self._publish_pid()

    def _start_next(self, pause_s: float) -> None:
        while self._process is None and not self._stopping.wait(pause_s):
            try:
                self._process = self._start()
            except errors.WorkerError as error:
                pause_s = self._backoff.pause_after(0)
                LOGGER.error("TLS process: %s; retrying in %.1f s", error, pause_s)
            else:
                self._restarts += 1
                self._publish_pid()
                self._send_certificates()

    def _publish_pid(self) -> None:
        self._counters.pid = self._process.pid if self._process is not None else 0

    @property
    def _counters(self) -> Any:
        return self._shared.tls
