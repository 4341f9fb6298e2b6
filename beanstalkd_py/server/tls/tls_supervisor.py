"""Keeps the process that speaks TLS running, and takes back what comes out of it.

It is also the receiver of what is accepted for TLS. Must not know TLS.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
from gevent.event import Event

from beanstalkd_py import errors
from beanstalkd_py.server.accept.acceptor import Receiver
from beanstalkd_py.server.accept.handover import RESERVED_DESCRIPTORS, Handover
from beanstalkd_py.server.logging.descriptor_pressure import DescriptorPressure
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.fd_wait import FdWatcher
from beanstalkd_py.server.process.heartbeat import Heartbeat
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.restart_backoff import RestartBackoff
from beanstalkd_py.server.process.shared_memory import SharedMemory, open_connections
from beanstalkd_py.server.process.wait_exit import reap
from beanstalkd_py.server.stats.worker_stats import Component
from beanstalkd_py.server.tls.certificates import Certificates

HANDSHAKES = 1024
"""At most so many at a time; further clients wait in the kernel."""
TLS_FULL = f"there are {HANDSHAKES} TLS handshakes under way, or no process for TLS"
DESCRIPTORS_PER_CLIENT = 2
STOP_LIMIT_S = 5.0

Start = Callable[[], ChildProcess]


class TlsSupervisor:
    """The place of that process. `descriptors` is its RLIMIT_NOFILE."""

    def __init__(
        self,
        start: Start,
        certificates: Certificates,
        shared: SharedMemory,
        descriptors: int,
    ) -> None:
        self._start = start
        self._certificates = certificates
        self._shared = shared
        self._capacity = (descriptors - RESERVED_DESCRIPTORS) // DESCRIPTORS_PER_CLIENT
        self._process: ChildProcess | None = start()
        self._handover: Handover | None = None
        self._receiver: Receiver | None = None
        self._shortage = DescriptorPressure()
        self._backoff = RestartBackoff()
        self._restarts = 0
        self._stopping = Event()
        self._ready = Event()
        self._ended = Event()
        self._note_pid()
        self._give_certificates()

    # --- connections that were accepted ---------------------------------------------------------

    def load(self) -> int:
        """How many connections it has that no worker counts.

        Handshakes that are under way, and those who take the rest of what a worker left for them.
        """
        if self._handover is None:
            return 0
        return self._handover.load() + int(self._counters.waiting)

    def room(self) -> int:
        """How many more connections the process can have now."""
        if self._handover is None:
            return 0
        tunnels = int(self._counters.connections)
        return min(self._handover.room(), self._capacity - self._handover.load() - tunnels)

    def send(self, fds: list[int]) -> None:
        """Passes accepted connections on."""
        if self._handover is None:
            for fd in fds:
                os.close(fd)
        else:
            self._handover.send(fds)

    def wait_until_ready(self) -> None:
        """Returns when the process can be sent connections."""
        self._ready.wait()

    # --- the process ----------------------------------------------------------------------------

    @property
    def component(self) -> Component:
        """How often the process was started again."""
        return Component("TLS", self._restarts, self._backoff.keeps_restarting)

    def serve(self, receiver: Receiver) -> None:
        """Gives what comes out of TLS to `receiver`."""
        self._receiver = receiver

    def run(self) -> None:
        """Keeps a process running until `stop`. Raises WorkerError if the first never served."""
        try:
            self._keep()
        finally:
            self._ended.set()

    def _keep(self) -> None:
        was_ready = False
        while (process := self._process) is not None:
            began_mono = time.monotonic()
            status = self._follow(process)
            was_ready = was_ready or self._ready.is_set()
            self._clear_place()
            process.close()
            if self._stopping.is_set():
                return
            if not was_ready:
                raise errors.WorkerError("the process for TLS could not be started", status or 1)
            pause_s = self._backoff.pause_after(time.monotonic() - began_mono)
            LOGGER.error(
                "the process for TLS (pid %d) ended with status %d; its connections are closed,"
                " and it is started again in %.1f s",
                *(process.pid, status, pause_s),
            )
            self._start_next(pause_s)

    def stop(self) -> None:
        """Ends the process; what workers have said last still leaves. Waits for it."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        process.channel.send(channel.STOP)
        if not self._ended.wait(STOP_LIMIT_S):
            LOGGER.error("the process for TLS has not stopped and is killed")
            process.kill()
            self._ended.wait()

    def change(self, certificates: Certificates | None, verbosity: int, log_format: str) -> None:
        """New connections get these certificates, if any, and its log is to be like this."""
        if certificates is not None:
            self._certificates = certificates
            self._give_certificates()
        if self._process is not None:
            self._process.channel.send(channel.CHANGE, verbosity, log_format)

    def _give_certificates(self) -> None:
        if self._process is None:
            return
        fd = self._certificates.to_memory_file()
        try:
            self._process.channel.send_fd(fd, channel.CERTIFICATES)
        finally:
            os.close(fd)

    def _follow(self, process: ChildProcess) -> int:
        heart = Heartbeat(lambda: process.channel.send(channel.PING))
        watch: gevent.Greenlet[[], None] | None = None
        ready = FdWatcher(process.channel.fileno())
        while True:
            ready.wait()
            message, fd = process.channel.receive_with_fd()
            match message:
                case None:
                    break
                case [channel.READY]:
                    self._begin(process)
                    watch = gevent.spawn(partial(_watch, process, heart))
                case [channel.PONG]:
                    heart.answered()
                case [channel.CONNECTION] if fd is not None:
                    self._take_back(fd, heart)
                case _:
                    LOGGER.warning("the process for TLS sent an unknown message")
        ready.close()
        if watch is not None:
            watch.kill()
        return reap(process)

    def _begin(self, process: ChildProcess) -> None:
        LOGGER.info("TLS is ready")
        self._handover = Handover(process.connections, self._counters, HANDSHAKES)
        self._ready.set()

    def _take_back(self, fd: int, heart: Heartbeat) -> None:
        """A connection whose handshake is done: from here on it is as any other."""
        while self._receiver is not None and self._receiver.room() <= 0:
            self._shortage.pause("there are as many as the descriptors allow")
            heart.answered()  # or may have; nobody has listened
        self._shortage.over()
        self._counters.moved_out += 1
        if self._receiver is None:
            os.close(fd)
        else:
            self._receiver.send([fd])

    def _clear_place(self) -> None:
        """What the process had is gone, and the counters say so."""
        handover, self._handover = self._handover, None
        if handover is not None:
            self._counters.total_connections = handover.passed
            handover.close()
        self._counters.closed_connections += open_connections(self._counters)
        self._counters.connections = self._counters.waiting = 0
        self._ready.clear()
        self._process = None
        self._note_pid()

    def _start_next(self, pause_s: float) -> None:
        while self._process is None and not self._stopping.wait(pause_s):
            try:
                self._process = self._start()
            except errors.WorkerError as error:
                pause_s = self._backoff.pause_after(0)
                LOGGER.error("TLS is tried again in %.1f s: %s", pause_s, error)
            else:
                self._restarts += 1
                self._note_pid()
                self._give_certificates()

    def _note_pid(self) -> None:
        self._counters.pid = self._process.pid if self._process is not None else 0

    @property
    def _counters(self) -> Any:
        return self._shared.tls


def _watch(process: ChildProcess, heart: Heartbeat) -> None:
    heart.run()
    LOGGER.error("the process for TLS has not answered for long and is killed")
    process.kill()
