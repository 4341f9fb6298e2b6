"""Supervision of one child process: its messages, its heartbeat, and its restarts."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

import gevent
from gevent.event import Event

from beanstalkd_py import errors
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_OK, EXIT_SIGNAL_BASE
from beanstalkd_py.server.process.fd_wait import FdWatcher
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.stats.worker_stats import Component

HEARTBEAT_INTERVAL_S = 1.0
HEARTBEAT_LIMIT_S = 10.0
RESEND_S = 0.5
EXIT_LIMIT_S = 5.0
"""The time from the end of a process's channel to the end of the process."""
STOP_LIMIT_S = 60.0
"""The time from STOP to SIGKILL."""

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 10.0
STABLE_AFTER_S = 60.0
EARLY_EXITS = 3
"""The number of early exits in a row from which on the process keeps restarting."""


class RestartBackoff:
    """Delays that double with each exit; a process that ran for `stable_after_s` resets them."""

    def __init__(self, stable_after_s: float = STABLE_AFTER_S) -> None:
        self._stable_after_s = stable_after_s
        self._next_s = FIRST_DELAY_S
        self._early_exits = 0
        self._stable_at_mono = 0.0

    @property
    def keeps_restarting(self) -> bool:
        return self._early_exits >= EARLY_EXITS and time.monotonic() < self._stable_at_mono

    def delay_after(self, uptime_s: float) -> float:
        """Return the delay after an exit of a process that ran this long."""
        if uptime_s >= self._stable_after_s:
            self._next_s = FIRST_DELAY_S
            self._early_exits = 0
        self._early_exits += 1
        delay_s = self._next_s
        self._stable_at_mono = time.monotonic() + delay_s + self._stable_after_s
        self._next_s = min(2 * delay_s, MAX_DELAY_S)
        return delay_s


class Heartbeat:
    """Calls `ping` at intervals; the owner calls `answered` for each reply.

    Counts intervals and not seconds, so that a process gets time to answer after a SIGSTOP of the
    whole server.
    """

    def __init__(self, ping: Callable[[], object], interval_s: float, limit_s: float) -> None:
        self._ping = ping
        self._interval_s = interval_s
        self._limit = max(1, round(limit_s / interval_s))
        self._unanswered = 0

    def answered(self) -> None:
        self._unanswered = 0

    def run(self) -> None:
        """Ping until the process has not answered for `limit_s`."""
        while self._unanswered < self._limit:
            # One ping at a time, because pings must not fill the channel of a hung process.
            if self._unanswered == 0:
                self._ping()
            self._unanswered += 1
            gevent.sleep(self._interval_s)


class Supervisor(ABC):
    """Follows one process at a time, and replaces it until `stop`.

    `start` starts another process, or raises WorkerError. Without `start`, a process is neither
    replaced nor checked by a heartbeat. Subclasses extend `_reset`.
    """

    restart_text = "%s %s; restarting in %.1f s"
    heartbeat_interval_s = HEARTBEAT_INTERVAL_S
    heartbeat_limit_s = HEARTBEAT_LIMIT_S
    stop_limit_s = STOP_LIMIT_S

    def __init__(
        self, component: str, start: Callable[[], ChildProcess] | None, name: str = ""
    ) -> None:
        self.process: ChildProcess | None = None
        self.ready = False
        self.was_ready = Event()
        """Whether any process has been ready."""
        self._component = component
        self._name = name or component
        """The name in messages."""
        self._start = start
        self._restarts = 0
        self._since_mono = time.monotonic()
        self._backoff = RestartBackoff()
        self._unsent_options: ServeOptions | None = None
        self._heartbeat: Heartbeat | None = None
        self._beating: gevent.Greenlet[[], None] | None = None
        self._stopping = Event()
        self._ended = Event()

    @property
    def component(self) -> Component:
        return Component(self._component, self._restarts, self._backoff.keeps_restarting)

    @property
    def pid(self) -> int:
        """The process id, 0 without a process."""
        return self.process.pid if self.process is not None else 0

    @property
    def state(self) -> str:
        """See WorkerStatus."""
        if self._stopping.is_set():
            return "stopping"
        if self.process is None:
            return "waiting"
        return "serving" if self.ready else "starting"

    def run(self) -> int:
        """Keep a process running until `stop`; return the exit status of the server."""
        try:
            return self._supervise()
        finally:
            self._ended.set()

    def stop(self) -> None:
        """Stop the process and wait for its end; no other process starts."""
        self._stopping.set()
        self.send_message(channel.STOP)
        while not self._ended.wait(self.stop_limit_s):
            self._kill_slow(self.process)

    def send_message(self, *message: object) -> bool:
        """Send a message; return False if there is no process, or it does not read its channel."""
        return self.process is not None and self.process.channel.send(*message)

    def change_options(self, options: ServeOptions) -> None:
        """Send new options to the process, again while its channel is full.

        Later processes start with them.
        """
        self._unsent_options = None
        values = asdict(replace(options, schedules=()))
        if self.process is not None and not self.send_message(channel.CHANGE, values):
            self._unsent_options = options
            gevent.spawn_later(RESEND_S, self._send_unsent_options)

    def _send_unsent_options(self) -> None:
        if self._unsent_options is not None:
            self.change_options(self._unsent_options)

    def _supervise(self) -> int:
        while (process := self.process) is not None:
            started_mono = time.monotonic()
            status = self._follow(process)
            final = self._final_status(process, status)
            self._reset()
            process.close()
            if final is not None:
                return final
            delay_s = self._backoff.delay_after(time.monotonic() - started_mono)
            LOGGER.error(self.restart_text, self._name, self._failure(process, status), delay_s)
            self._start_next(delay_s)
        return EXIT_OK

    def _follow(self, process: ChildProcess) -> int:
        """Handle messages until the process ends; return its exit status."""
        readable = FdWatcher(process.channel.fileno())
        while True:
            readable.wait()
            message, fd = process.channel.receive_with_fd()
            match message:
                case None:
                    break
                case [channel.READY]:
                    self._begin_service(process)
                case [channel.PONG]:
                    self._on_answer()
                case _ if not self._handle_message(message, fd):
                    LOGGER.warning("ignored an unknown message of %s", self._name)
        readable.close()
        self._stop_heartbeat()
        return process.wait(EXIT_LIMIT_S)

    def _begin_service(self, process: ChildProcess) -> None:
        self.ready = True
        self.was_ready.set()
        self._since_mono = time.monotonic()
        if self._start is not None:
            self._start_heartbeat(process)
        self._on_ready(process)

    def _start_heartbeat(self, process: ChildProcess) -> None:
        ping = partial(process.channel.send, channel.PING)
        self._heartbeat = Heartbeat(ping, self.heartbeat_interval_s, self.heartbeat_limit_s)
        self._beating = gevent.spawn(partial(self._kill_hung, self._heartbeat, process))

    def _kill_hung(self, heartbeat: Heartbeat, process: ChildProcess) -> None:
        heartbeat.run()
        LOGGER.error("%s did not answer for %.0f s; killing it", self._name, self.heartbeat_limit_s)
        process.kill()

    def _kill_slow(self, process: ChildProcess | None) -> None:
        if process is not None and process is self.process:
            LOGGER.error("%s did not stop within %d s; killing it", self._name, self.stop_limit_s)
            process.kill()

    def _on_answer(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.answered()

    def _stop_heartbeat(self) -> None:
        if self._beating is not None:
            self._beating.kill()

    def _start_next(self, delay_s: float) -> None:
        while self._start is not None and self.process is None and self._may_start(delay_s):
            try:
                self.process = self._start()
            except errors.WorkerError as error:
                delay_s = self._backoff.delay_after(0)
                LOGGER.error("%s: %s; retrying in %.1f s", self._name, error, delay_s)
            else:
                self._restarts += 1
                self._since_mono = time.monotonic()
                self._on_start()

    def _may_start(self, delay_s: float) -> bool:
        """Wait for the delay or a stop; return whether to start another process."""
        return not self._stopping.wait(delay_s)

    def _reset(self) -> None:
        self._unsent_options = None
        self.process = None
        self.ready = False
        self._since_mono = time.monotonic()

    def _failure(self, process: ChildProcess, status: int) -> str:
        """Return the part of a log message about an unexpected end that follows the name."""
        if status > EXIT_SIGNAL_BASE:
            return f"(pid {process.pid}) was killed by signal {status - EXIT_SIGNAL_BASE}"
        return f"(pid {process.pid}) ended with status {status}"

    @abstractmethod
    def _final_status(self, process: ChildProcess, status: int) -> int | None:
        """Return the server's exit status after the process ended; None to start another one."""

    @abstractmethod
    def _handle_message(self, message: channel.Message, fd: int | None) -> bool:
        """Handle a message other than READY and PONG; return False if it is unknown."""

    @abstractmethod
    def _on_start(self) -> None:
        """Handle the start of another process."""

    @abstractmethod
    def _on_ready(self, process: ChildProcess) -> None:
        """Handle READY of a process."""
