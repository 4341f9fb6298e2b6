"""Supervises one worker: reads its channel, detects its end, restarts it, requests admin data."""

from __future__ import annotations

import itertools
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import AsyncResult, Event

from beanstalkd_py import errors
from beanstalkd_py.core.step_results import CompactStep, StepOutcome, TruncateStep
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK, EXIT_SIGNAL_BASE
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.supervision import Supervisor
from beanstalkd_py.server.stats.worker_stats import WorkerStatus

if TYPE_CHECKING:
    from beanstalkd_py.server.parent.loop import ParentLoop

REQUEST_LIMIT_S = 30.0

Start = Callable[[int], ChildProcess]
"""Starts a process for the worker with this number. Raises WorkerError."""


class WorkerSupervisor(Supervisor):
    """Supervises one worker, and reports its events to `parent`.

    `restart` starts another process; None if the worker must not be restarted.
    """

    def __init__(self, parent: ParentLoop, process: ChildProcess, restart: Start | None) -> None:
        start = None if restart is None else partial(restart, process.index)
        super().__init__(f"worker {process.index}", start)
        self.index = process.index
        self.process = process
        self._parent = parent
        self.finished = Event()
        """Whether no reply has to leave before a stop."""
        self._failed_status: int | None = None
        self._peer_sockets: dict[int, socket.socket] = {}
        self._requests: dict[int, AsyncResult[Any]] = {}
        self._next_request = itertools.count(1).__next__

    def status(self) -> WorkerStatus:
        since_s = time.monotonic() - self._since_mono
        return WorkerStatus(self.index, self.state, since_s, self.pid, self._restarts)

    def finish(self) -> None:
        """Let the worker execute no further command, and send all replies before `stop`."""
        self.finished.clear()
        if not (self.ready and self.send_message(channel.FINISH)):
            self.finished.set()

    def stop(self) -> None:
        """Stop the worker for good, without waiting for its end."""
        self._stopping.set()
        self._since_mono = time.monotonic()
        self._stop_heartbeat()
        if self.process is None:
            return
        if self.ready and self.send_message(channel.STOP):
            # The kill is safe, because acknowledged jobs are on disk.
            gevent.spawn_later(self.stop_limit_s, self._kill_slow, self.process)
        else:
            # During recovery the worker does not read its channel. Recovery is crash-safe.
            self.process.kill()

    def change_options(self, options: ServeOptions) -> None:
        if self.ready:  # during recovery the worker does not read its channel
            super().change_options(options)

    # --- admin requests, which raise ControlError ---------------------------------------------

    def compact(self, per_cent: int, last: int) -> CompactStep:
        outcome, *rest = self._request("compact", per_cent, last)
        return CompactStep(StepOutcome(outcome), *rest)

    def truncate(
        self, tube: bytes, states: Sequence[str], most: int, generation: int
    ) -> TruncateStep:
        outcome, *rest = self._request("truncate", tube, states, most, generation)
        return TruncateStep(StepOutcome(outcome), *rest)

    def pages(self, name: str) -> Iterator[Any]:
        """Yield the pages of `connections` or `tube_stats`."""
        first: int | None = 0
        while first is not None:
            page, first = self._request(name, first)
            yield page

    def _request(self, name: str, *arguments: object) -> Any:
        if not self.ready:
            raise errors.ControlError(f"{self._name} is {self.state}; try again later")
        number = self._next_request()
        response = self._requests[number] = AsyncResult()
        try:
            if not self.send_message(channel.ASK, number, name, arguments):
                raise errors.ControlError(f"{self._name} is overloaded; try again later")
            result = response.get(timeout=REQUEST_LIMIT_S)
        finally:
            del self._requests[number]
        if result is None:
            raise errors.ControlError(f"{self._name} ended before it answered; try again later")
        return result

    # --- links between workers ----------------------------------------------------------------

    def connect_to(self, other: WorkerSupervisor) -> None:
        """Connect this worker's new process with another worker's process."""
        if self.process is None or other.process is None:
            return
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self._kill_unconnected(self.process, other.index, str(error))
            return
        self._send_peer_socket(self.process, other.index, ours)
        other._offer_peer_socket(self.index, theirs)

    def _offer_peer_socket(self, peer: int, end: socket.socket) -> None:
        """Send the socket, or keep the newest one until the worker is ready.

        During recovery the worker does not read its channel, and a peer that restarts repeatedly
        must not fill it.
        """
        if self.ready and self.process is not None:
            self._send_peer_socket(self.process, peer, end)
        else:
            self._close_peer_socket(peer)
            self._peer_sockets[peer] = end

    def _send_peer_socket(self, process: ChildProcess, peer: int, end: socket.socket) -> None:
        try:
            if not process.send_peer(peer, end):
                self._kill_unconnected(process, peer, "it ended or does not read its channel")
        except OSError as error:
            self._kill_unconnected(process, peer, str(error))

    def _kill_unconnected(self, process: ChildProcess, peer: int, reason: str) -> None:
        """End a process without links to all peers; the next process gets them."""
        LOGGER.error("cannot connect %s to worker %d: %s", self._name, peer, reason)
        process.kill()

    def _close_peer_socket(self, peer: int) -> None:
        end = self._peer_sockets.pop(peer, None)
        if end is not None:
            end.close()

    # --- one process --------------------------------------------------------------------------

    def _handle_message(self, message: channel.Message, fd: int | None) -> bool:
        match message:
            case [channel.ANSWER, int(number), list(result)]:
                if number in self._requests:
                    self._requests[number].set(result)
            case [channel.FINISHED]:
                self.finished.set()
            case [channel.STOPPED]:
                self._parent.worker_stopped()
            case [channel.FAILED, int(status), str(text)]:
                self._failed_status = status
                LOGGER.error("%s", text)
            case _:
                return False
        return True

    def _begin_service(self, process: ChildProcess) -> None:
        if not self._stopping.is_set():  # else `stop` has killed the process
            super()._begin_service(process)

    def _on_ready(self, process: ChildProcess) -> None:
        LOGGER.info("%s is ready", self._name)
        sockets, self._peer_sockets = self._peer_sockets, {}
        for peer, end in sockets.items():
            self._send_peer_socket(process, peer, end)
        self._parent.worker_ready(self)

    def _on_answer(self) -> None:
        super()._on_answer()
        self._parent.worker_answered(self)

    def _final_status(self, process: ChildProcess, status: int) -> int | None:
        killed_at_start = status == EXIT_SIGNAL_BASE + signal.SIGKILL and not self.ready
        if self._stopping.is_set():
            if status == EXIT_OK or killed_at_start:
                return EXIT_OK
        elif self._start is not None and self.was_ready.is_set():
            return None
        if self._failed_status is not None:
            return self._failed_status  # its message has been logged
        LOGGER.error("%s %s", self._name, self._failure(process, status))
        return status or EXIT_ERROR

    def _reset(self) -> None:
        super()._reset()
        self.finished.set()
        for response in self._requests.values():
            response.set(None)
        for peer in list(self._peer_sockets):
            self._close_peer_socket(peer)
        self._parent.worker_ended(self)

    def _on_start(self) -> None:
        self._failed_status = None
        self._parent.worker_started(self)
