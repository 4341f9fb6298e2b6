"""Supervises one TLS process, and routes the connections that it has decrypted."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.server.accept.acceptor import Receiver
from beanstalkd_py.server.accept.handover import RESERVED_DESCRIPTORS, Handover
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.logging.throttling import DescriptorPressure
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.shared_memory import open_connections
from beanstalkd_py.server.process.supervision import Supervisor
from beanstalkd_py.server.tls.certificates import Certificates

HANDSHAKES = 1024
"""The limit of concurrent handshakes."""
DESCRIPTORS_PER_CLIENT = 2


class TlsSupervisor(Supervisor):
    """Supervises one TLS process and passes accepted connections to it.

    `component` is the name in metrics, `counters` the block of shared memory, `descriptors` the
    RLIMIT_NOFILE of the process. `stop` waits while the process sends pending replies. `run` raises
    WorkerError if no process was ever ready.
    """

    restart_text = "%s %s, its connections are closed; restarting in %.1f s"
    stop_limit_s = 5.0

    def __init__(
        self,
        component: str,
        start: Callable[[], ChildProcess],
        certificates: Certificates,
        counters: Any,
        descriptors: int,
    ) -> None:
        super().__init__(component, start, component.replace("TLS", "TLS process"))
        self._certificates = certificates
        self._certificates_passed = False
        self._counters = counters
        self._capacity = (descriptors - RESERVED_DESCRIPTORS) // DESCRIPTORS_PER_CLIENT
        self._handover: Handover | None = None
        self._receiver: Receiver | None = None
        self._pressure = DescriptorPressure()
        self.process = start()
        self._on_start()

    def uncounted_connections(self) -> int:
        """Return how many connections no worker counts.

        These are handshakes, and tunnels whose worker has closed its end.
        """
        if self._handover is None:
            return 0
        return self._handover.connection_count() + int(self._counters.waiting)

    def free_slots(self) -> int:
        if self._handover is None:
            return 0
        connections = self._handover.connection_count() + int(self._counters.connections)
        return min(self._handover.free_slots(), self._capacity - connections)

    def rank(self) -> tuple[int, int]:
        """Return a key for `min`: fewest handshakes, because each takes a millisecond of CPU."""
        handshakes = 0 if self._handover is None else self._handover.connection_count()
        return handshakes, int(self._counters.connections)

    def pass_copy(self, fd: int) -> bool:
        """Pass a connection that the caller still owns; return False if the process is gone."""
        if not self._certificates_passed:
            self._pass_certificates()
        return self._handover is not None and self._handover.pass_copies([fd])

    def _pass_certificates(self) -> None:
        """Pass the certificates ahead of the next connections, by the same socket."""
        self._certificates_passed = True  # first, because a reload during the calls resets it
        fd = self._memory_file()
        try:
            if self._handover is not None:
                self._handover.pass_certificates(fd)
        finally:
            os.close(fd)

    def _memory_file(self) -> int:
        while True:
            try:
                return self._certificates.to_memory_file()
            except OSError as error:
                self._pressure.pause(str(error.strerror))

    def serve(self, receiver: Receiver) -> None:
        """Route decrypted connections by `receiver` from now on."""
        self._receiver = receiver

    def change(self, options: ServeOptions, certificates: Certificates | None) -> None:
        """Apply new options of the log, and new certificates, if any, to new connections."""
        if certificates is not None:
            self._certificates, self._certificates_passed = certificates, False
        self.change_options(options)

    def _handle_message(self, message: channel.Message, fd: int | None) -> bool:
        if message != [channel.CONNECTION] or fd is None:
            return False
        self._route(fd)
        return True

    def _route(self, fd: int) -> None:
        while self._receiver is not None and self._receiver.free_slots() <= 0:
            self._pressure.pause("descriptor limit reached")
            self._on_answer()  # because this greenlet cannot read a PONG meanwhile
        self._pressure.relieve()
        self._counters.moved_out += 1
        if self._receiver is None:
            os.close(fd)
        else:
            self._receiver.send([fd])

    def _on_start(self) -> None:
        self._counters.pid = self.pid

    def _on_ready(self, process: ChildProcess) -> None:
        LOGGER.info("%s is ready", self._component)
        self._certificates_passed = False
        self._handover = Handover(process.connections, self._counters, HANDSHAKES)

    def _final_status(self, process: ChildProcess, status: int) -> int | None:
        if self._stopping.is_set():
            return EXIT_OK
        if not self.was_ready.is_set():
            raise errors.WorkerError(f"cannot start {self._name}", status or EXIT_ERROR)
        return None

    def _reset(self) -> None:
        """Also clear the counters, because the connections of the process are closed."""
        super()._reset()
        handover, self._handover = self._handover, None
        if handover is not None:
            self._counters.total_connections = handover.passed
            handover.close()
        self._counters.closed_connections += open_connections(self._counters)
        self._counters.connections = self._counters.waiting = self._counters.pid = 0
