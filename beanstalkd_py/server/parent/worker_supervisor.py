"""Supervises one worker: reads its channel, detects its end, restarts it, requests admin data."""

from __future__ import annotations

import itertools
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gevent
from gevent.event import AsyncResult, Event

from beanstalkd_py import errors
from beanstalkd_py.core.step_results import CompactStep, StepOutcome, TruncateStep
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.parent.worker_sockets import peer_socket_pair, send_peer_socket
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK, EXIT_SIGNAL_BASE
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.messages import WorkerOptions
from beanstalkd_py.server.process.restart_backoff import RestartBackoff
from beanstalkd_py.server.process.supervision import (
    HEARTBEAT_INTERVAL_S,
    HEARTBEAT_LIMIT_S,
    Liveness,
    read_channel,
)
from beanstalkd_py.server.stats.connection_list import ConnectionPage
from beanstalkd_py.server.stats.tube_stats import TubeStatsPage
from beanstalkd_py.server.stats.worker_stats import Component, WorkerStatus

STOP_LIMIT_S = 60.0
"""A worker is killed after this time; acknowledged jobs are on disk."""
EXIT_LIMIT_S = 5.0
REQUEST_LIMIT_S = 30.0

Start = Callable[[int], ChildProcess]
"""Starts a process for the worker with this number. Raises WorkerError."""


class Observer(Protocol):
    """Gets the events of workers."""

    def worker_ready(self, worker: WorkerSupervisor) -> None:
        """The process has recovered and serves."""

    def worker_ended(self, worker: WorkerSupervisor) -> None:
        """The process has ended and been reaped; another one may follow."""

    def worker_started(self, worker: WorkerSupervisor) -> None:
        """Another process has been started."""

    def worker_answered(self, worker: WorkerSupervisor) -> None:
        """The process has answered a ping."""


class WorkerSupervisor:
    """One worker and its current process.

    `restart` starts another process; None if the worker must not be restarted.
    """

    def __init__(
        self,
        observer: Observer,
        process: ChildProcess,
        restart: Start | None,
        heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S,
        heartbeat_limit_s: float = HEARTBEAT_LIMIT_S,
    ) -> None:
        self.index = process.index
        self.process: ChildProcess | None = process
        self.ready = False
        self.was_ready = False
        self._name = f"worker {process.index}"
        self._restarts = 0
        self._since_mono = time.monotonic()
        self._observer = observer
        self._restart = restart
        self._heartbeat_s = heartbeat_interval_s, heartbeat_limit_s
        self._liveness: Liveness | None = None
        self._stop_requested = Event()
        self._failed_status: int | None = None
        self._peer_sockets: dict[int, socket.socket] = {}
        self._requests: dict[int, AsyncResult[Any]] = {}
        self._next_request = itertools.count(1).__next__
        self._backoff = RestartBackoff()

    def run(self) -> int:
        """Keep the worker running until `stop`; return the exit status of the last process."""
        while (process := self.process) is not None:
            started_mono = time.monotonic()
            status = self._follow(process)
            as_requested = self._ended_as_requested(status)
            self._reset()
            if self._restart is None or not self.was_ready or self._stop_requested.is_set():
                return EXIT_OK if as_requested else self._final_status(process, status)
            pause_s = self._backoff.pause_after(time.monotonic() - started_mono)
            LOGGER.error(
                "%s (pid %d) %s; restarting in %.1f s",
                *(self._name, process.pid, _describe(status), pause_s),
            )
            process.close()
            self._start_next(self._restart, pause_s)
        return EXIT_OK

    @property
    def component(self) -> Component:
        return Component(self._name, self._restarts, self._backoff.keeps_restarting)

    @property
    def state(self) -> str:
        """See WorkerStatus."""
        if self._stop_requested.is_set():
            return "stopping"
        if self.process is None:
            return "waiting"
        return "serving" if self.ready else "starting"

    def status(self, now_mono: float) -> WorkerStatus:
        pid = self.process.pid if self.process is not None else 0
        since_s = max(0.0, now_mono - self._since_mono)
        return WorkerStatus(self.index, self.state, since_s, pid, self._restarts)

    def stop(self) -> None:
        """Stop the worker for good."""
        self._stop_requested.set()
        self._since_mono = time.monotonic()
        self._stop_heartbeat()
        if self.process is None:
            return
        if self.ready and self.process.channel.send(channel.STOP):
            gevent.spawn_later(STOP_LIMIT_S, self._kill_slow, self.process)
        else:
            # During recovery it does not read its channel. Recovery survives a kill.
            self.process.kill()

    def ping(self) -> None:
        """Ping once, independently of the heartbeat."""
        if self.process is not None:
            self.process.channel.send(channel.PING)

    def change(self, options: ServeOptions) -> None:
        """Send new options to a process that serves; later processes start with them."""
        if self.process is not None and self.ready:
            self.process.channel.send(channel.CHANGE, WorkerOptions.of(options).encode())

    # --- admin requests, which raise ControlError ---------------------------------------------

    def compact(self, per_cent: int, last: int) -> CompactStep:
        outcome, *rest = self._request("compact", per_cent, last)
        return CompactStep(StepOutcome(outcome), *rest)

    def truncate(
        self, tube: bytes, states: Sequence[str], most: int, generation: int
    ) -> TruncateStep:
        outcome, *rest = self._request("truncate", tube, states, most, generation)
        return TruncateStep(StepOutcome(outcome), *rest)

    def connections(self, first: int) -> ConnectionPage:
        return ConnectionPage(*self._request("connections", first))

    def tube_stats(self, first: int) -> TubeStatsPage:
        return TubeStatsPage(*self._request("tube_stats", first))

    def _request(self, name: str, *arguments: object) -> Any:
        process = self.process
        if process is None or not self.ready:
            raise errors.ControlError(f"{self._name} is {self.state}; try again later")
        number = self._next_request()
        response = self._requests[number] = AsyncResult()
        try:
            if not process.channel.send(channel.ASK, number, name, arguments):
                raise errors.ControlError(f"{self._name} is overloaded; try again later")
            result = response.get(timeout=REQUEST_LIMIT_S)
        finally:
            del self._requests[number]
        if result is None:
            raise errors.ControlError(f"{self._name} ended before it answered; try again later")
        return result

    # --- links between workers ----------------------------------------------------------------

    def connect_to(self, other: WorkerSupervisor) -> None:
        """Connect a process that has just been started with another worker's process."""
        if self.process is None or other.process is None:
            return
        try:
            ours, theirs = peer_socket_pair()
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
            if not send_peer_socket(process, peer, end):
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

    def _follow(self, process: ChildProcess) -> int:
        """Handle messages until the process ends; return its exit status."""
        read_channel(process, lambda message, _: self._handle_message(process, message))
        self._stop_heartbeat()
        status = process.wait(EXIT_LIMIT_S)
        self.process = None
        return status

    def _handle_message(self, process: ChildProcess, message: channel.Message) -> None:
        match message:
            case [channel.READY]:
                LOGGER.info("%s is ready", self._name)
                self._begin_service(process)
            case [channel.PONG]:
                if self._liveness is not None:
                    self._liveness.answered()
                self._observer.worker_answered(self)
            case [channel.ANSWER, int(number), list(result)]:
                if number in self._requests:
                    self._requests[number].set(result)
            case [channel.FAILED, int(status), str(text)]:
                self._failed_status = status
                LOGGER.error("%s", text)
            case _:
                LOGGER.warning("ignored an unknown message of %s", self._name)

    def _begin_service(self, process: ChildProcess) -> None:
        if self._stop_requested.is_set():
            return  # it has been killed, because it was not ready
        self.ready = self.was_ready = True
        self._since_mono = time.monotonic()
        sockets, self._peer_sockets = self._peer_sockets, {}
        for peer, end in sockets.items():
            self._send_peer_socket(process, peer, end)
        if self._restart is not None:
            self._liveness = Liveness(process, self._name, *self._heartbeat_s)
        self._observer.worker_ready(self)

    def _stop_heartbeat(self) -> None:
        liveness, self._liveness = self._liveness, None
        if liveness is not None:
            liveness.stop()

    def _kill_slow(self, process: ChildProcess) -> None:
        if self.process is process:
            LOGGER.error("%s did not stop within %d s; killing it", self._name, STOP_LIMIT_S)
            process.kill()

    # --- its end, and the next one ------------------------------------------------------------

    def _ended_as_requested(self, status: int) -> bool:
        killed_at_start = status == EXIT_SIGNAL_BASE + signal.SIGKILL and not self.ready
        return self._stop_requested.is_set() and (status == EXIT_OK or killed_at_start)

    def _final_status(self, process: ChildProcess, status: int) -> int:
        """Return the server's exit status after an unexpected end."""
        if self._failed_status is not None:
            return self._failed_status  # its message has been logged
        LOGGER.error("%s (pid %d) %s", self._name, process.pid, _describe(status))
        return status or EXIT_ERROR

    def _reset(self) -> None:
        self.ready = False
        self._since_mono = time.monotonic()
        for response in self._requests.values():
            response.set(None)
        for peer in list(self._peer_sockets):
            self._close_peer_socket(peer)
        self._observer.worker_ended(self)

    def _start_next(self, start: Start, pause_s: float) -> None:
        while self.process is None and not self._stop_requested.wait(pause_s):
            self._failed_status = None
            try:
                self.process = start(self.index)
            except errors.WorkerError as error:
                pause_s = self._backoff.pause_after(0)
                LOGGER.error("%s: %s; retrying in %.1f s", self._name, error, pause_s)
            else:
                self._restarts += 1
                self._since_mono = time.monotonic()
                self._observer.worker_started(self)


def _describe(status: int) -> str:
    if status > EXIT_SIGNAL_BASE:
        return f"was killed by signal {status - EXIT_SIGNAL_BASE}"
    return f"ended with status {status}"
