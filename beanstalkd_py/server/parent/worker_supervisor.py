"""Keeps one worker running: hears it, asks whether it is alive, and starts the next one.

What a worker's readiness and end mean to the others is its owner's affair. Must not know
connections, signals or the other workers.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import gevent
from gevent.event import Event

from beanstalkd_py import errors
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.parent.reload import changeable
from beanstalkd_py.server.parent.worker_requests import Questions
from beanstalkd_py.server.parent.worker_sockets import peer_socket_pair, send_peer_socket
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK, EXIT_SIGNAL_BASE
from beanstalkd_py.server.process.fd_wait import FdWatcher
from beanstalkd_py.server.process.heartbeat import (
    HEARTBEAT_INTERVAL_S,
    HEARTBEAT_LIMIT_S,
    Heartbeat,
)
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.restart_backoff import RestartBackoff
from beanstalkd_py.server.process.wait_exit import reap
from beanstalkd_py.server.stats.worker_stats import Component

STOP_LIMIT_S = 60.0
"""A worker that cannot stop in this time is killed; what it acknowledged is on disk."""
REAP_LIMIT_S = 5.0

Start = Callable[[int], ChildProcess]
"""Starts a process for the worker with this number. Raises WorkerError."""


class Owner(Protocol):
    """Who has to know what becomes of a worker."""

    def worker_ready(self, keeper: WorkerSupervisor) -> None:
        """The process has read its binlog and serves."""

    def worker_ended(self, keeper: WorkerSupervisor) -> None:
        """The process has ended and been reaped; another one may follow."""

    def worker_started(self, keeper: WorkerSupervisor) -> None:
        """Another process has taken the place."""

    def worker_answered(self, keeper: WorkerSupervisor) -> None:
        """The process has answered a ping."""


class WorkerSupervisor:
    """The place of one worker, and the process that is in it now.

    `restart` starts another process; None if there shall be none after the first.
    """

    def __init__(
        self,
        owner: Owner,
        process: ChildProcess,
        restart: Start | None,
        heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S,
        heartbeat_limit_s: float = HEARTBEAT_LIMIT_S,
    ) -> None:
        self.index = process.index
        self.process: ChildProcess | None = process
        self.ready = False
        self.was_ready = False
        self.restarts = 0
        self.since_mono = time.monotonic()
        self._owner = owner
        self._restart = restart
        self._heartbeat_s = heartbeat_interval_s, heartbeat_limit_s
        self._heart: Heartbeat | None = None
        self._heart_task: gevent.Greenlet[[], None] | None = None
        self._stop_ordered = Event()
        self._failed_status: int | None = None
        self._peers: dict[int, socket.socket] = {}
        self._questions = Questions()
        self._backoff = RestartBackoff()

    def run(self) -> int:
        """Keeps a worker running until it is to stop; the exit status of the last process."""
        while (process := self.process) is not None:
            began_mono = time.monotonic()
            status = self._follow(process)
            in_order = self._ended_in_order(status)
            self._clear_place()
            if self._restart is None or not self.was_ready or self._stop_ordered.is_set():
                return EXIT_OK if in_order else self._last_words(process, status)
            pause_s = self._backoff.pause_after(time.monotonic() - began_mono)
            LOGGER.error(
                "worker %d (pid %d) %s; it is started again in %.1f s",
                *(self.index, process.pid, _end_of(status), pause_s),
            )
            process.close()
            self._start_next(self._restart, pause_s)
        return EXIT_OK

    @property
    def component(self) -> Component:
        """How often its process was started again."""
        return Component(f"worker {self.index}", self.restarts, self._backoff.keeps_restarting)

    @property
    def pid(self) -> int:
        """0 while there is no process."""
        return self.process.pid if self.process is not None else 0

    @property
    def state(self) -> str:
        """As in WorkerStatus."""
        if self._stop_ordered.is_set():
            return "stopping"
        if self.process is None:
            return "waiting"
        return "serving" if self.ready else "starting"

    def stop(self) -> None:
        """Ends the worker in order; none is started after it."""
        self._stop_ordered.set()
        self.since_mono = time.monotonic()
        self._stop_heartbeat()
        if self.process is None:
            return
        if self.ready and self.process.channel.send(channel.STOP):
            gevent.spawn_later(STOP_LIMIT_S, self._kill_slow, self.process)
        else:
            # It is reading the binlog and does not listen. A kill leaves the folder as a crash
            # would, which the next start has to cope with anyway.
            self.process.kill()

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Asks the worker and waits for its answer. Raises ControlError."""
        process = self.process
        if process is None or not self.ready:
            raise errors.ControlError(f"worker {self.index} is {self.state}")
        return self._questions.ask(lambda n: process.channel.send(channel.ASK, n, question))

    def ping(self) -> None:
        """Asks whether it is alive, beside the heartbeat."""
        if self.process is not None:
            self.process.channel.send(channel.PING)

    def change(self, options: ServeOptions) -> None:
        """Gives a process that serves what may change in its options; the next gets them all."""
        if self.process is not None and self.ready:
            self.process.channel.send(channel.CHANGE, changeable(options))

    def introduce_to(self, other: WorkerSupervisor) -> None:
        """Connects the process that has just been started with another worker, if that runs."""
        if self.process is None or other.process is None:
            return
        try:
            ours, theirs = peer_socket_pair()
        except OSError as error:
            self._give_up(self.process, other.index, str(error))
            return
        self._introduce(self.process, other.index, ours)
        other._meet(self.index, theirs)

    def _meet(self, peer: int, end: socket.socket) -> None:
        """Gives the worker its end of the pair that it shares with a peer.

        While it reads its binlog it does not read its channel, so only the newest end is kept for
        it: a peer that ends several times meanwhile must not fill the channel.
        """
        if self.ready and self.process is not None:
            self._introduce(self.process, peer, end)
        else:
            self._forget_peer(peer)
            self._peers[peer] = end

    # --- one process --------------------------------------------------------------------------

    def _follow(self, process: ChildProcess) -> int:
        """Heeds a process until it has ended; its exit status."""
        ready = FdWatcher(process.channel.fileno())
        while True:
            ready.wait()
            message = process.channel.receive()
            if message is None:
                break
            self._handle_message(process, message)
        ready.close()
        self._stop_heartbeat()
        status = reap(process, REAP_LIMIT_S)
        self.process = None
        return status

    def _handle_message(self, process: ChildProcess, message: channel.Message) -> None:
        match message:
            case [channel.READY]:
                LOGGER.info("worker %d is ready", self.index)
                self._begin_service(process)
            case [channel.PONG]:
                if self._heart is not None:
                    self._heart.answered()
                self._owner.worker_answered(self)
            case [channel.ANSWER, int(number), dict(answer)]:
                self._questions.answered(number, answer)
            case [channel.FAILED, int(status), str(text)]:
                self._failed_status = status
                LOGGER.error("%s", text)
            case _:
                LOGGER.warning("worker %d sent an unknown message", self.index)

    def _begin_service(self, process: ChildProcess) -> None:
        if self._stop_ordered.is_set():
            return  # it has been killed, as one that was not ready
        self.ready = self.was_ready = True
        self.since_mono = time.monotonic()
        peers, self._peers = self._peers, {}
        for peer, end in peers.items():
            self._introduce(process, peer, end)
        if self._restart is not None:
            self._heart = Heartbeat(lambda: process.channel.send(channel.PING), *self._heartbeat_s)
            self._heart_task = gevent.spawn(partial(self._watch, process, self._heart))
        self._owner.worker_ready(self)

    def _introduce(self, process: ChildProcess, peer: int, end: socket.socket) -> None:
        try:
            if not send_peer_socket(process, peer, end):
                self._give_up(process, peer, "it has gone, or reads no messages")
        except OSError as error:
            self._give_up(process, peer, str(error))

    def _give_up(self, process: ChildProcess, peer: int, reason: str) -> None:
        """Ends a process that does not know all its peers; the next one will."""
        LOGGER.error("worker %d cannot be told of worker %d: %s", self.index, peer, reason)
        process.kill()

    def _watch(self, process: ChildProcess, heart: Heartbeat) -> None:
        heart.run()
        limit_s = self._heartbeat_s[1]
        LOGGER.error("worker %d has not answered for %.0f s and is killed", self.index, limit_s)
        process.kill()

    def _stop_heartbeat(self) -> None:
        task, self._heart_task, self._heart = self._heart_task, None, None
        if task is not None:
            task.kill()

    def _kill_slow(self, process: ChildProcess) -> None:
        if self.process is process:
            LOGGER.error(
                "worker %d has not stopped within %d s and is killed", self.index, STOP_LIMIT_S
            )
            process.kill()

    # --- its end, and the next one ------------------------------------------------------------

    def _ended_in_order(self, status: int) -> bool:
        killed_at_start = status == EXIT_SIGNAL_BASE + signal.SIGKILL and not self.ready
        return self._stop_ordered.is_set() and (status == EXIT_OK or killed_at_start)

    def _last_words(self, process: ChildProcess, status: int) -> int:
        """The server's exit status for a worker that should not have ended."""
        if self._failed_status is not None:
            return self._failed_status  # it has said why
        LOGGER.error("worker %d (pid %d) %s", self.index, process.pid, _end_of(status))
        return status or EXIT_ERROR

    def _clear_place(self) -> None:
        self.ready = False
        self.since_mono = time.monotonic()
        self._questions.give_up()
        for peer in list(self._peers):
            self._forget_peer(peer)
        self._owner.worker_ended(self)

    def _forget_peer(self, peer: int) -> None:
        end = self._peers.pop(peer, None)
        if end is not None:
            end.close()

    def _start_next(self, start: Start, pause_s: float) -> None:
        """Fills the place again, unless the order to stop comes first."""
        while self.process is None and not self._stop_ordered.wait(pause_s):
            self._failed_status = None
            try:
                self.process = start(self.index)
            except errors.WorkerError as error:
                pause_s = self._backoff.pause_after(0)
                LOGGER.error("worker %d is tried again in %.1f s: %s", self.index, pause_s, error)
            else:
                self.restarts += 1
                self.since_mono = time.monotonic()
                self._owner.worker_started(self)


def _end_of(status: int) -> str:
    if status > EXIT_SIGNAL_BASE:
        return f"was killed by signal {status - EXIT_SIGNAL_BASE}"
    return f"ended with status {status}"
