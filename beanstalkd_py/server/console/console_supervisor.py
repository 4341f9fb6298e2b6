"""Supervises the console. Its failures end neither the server nor a connection of a client."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import asdict

from gevent.event import Event

from beanstalkd_py import errors
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_OK
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.messages import ConsoleConfig
from beanstalkd_py.server.process.supervision import Supervisor


class ConsoleSupervisor(Supervisor):
    """Starts the console at `begin`, so that it does not delay the server.

    `listener` is a listening socket of the caller, which each process gets.
    """

    # Long enough for the checks of a large binlog, because no client waits for the console.
    heartbeat_limit_s = 60.0
    stop_limit_s = 5.0

    def __init__(
        self,
        component: str,
        start: Callable[[], ChildProcess],
        listener: socket.socket,
        config: ConsoleConfig,
    ) -> None:
        super().__init__(component, start)
        self._start_process = start
        self._listener = listener
        self._config = config
        self._begun = Event()
        self._failed = ""

    def begin(self) -> None:
        """Let `run` start the first process."""
        self._begun.set()

    def run(self) -> int:
        """Keep a process running from `begin` until `stop`."""
        self._begun.wait()
        if not self._stopping.is_set():
            self._start_first()
        return super().run()

    def stop(self) -> None:
        self._stopping.set()
        self._begun.set()
        super().stop()

    def _start_first(self) -> None:
        try:
            self.process = self._start_process()
        except errors.WorkerError as error:
            delay_s = self._backoff.delay_after(0)
            LOGGER.error("%s: %s; retrying in %.1f s", self._name, error, delay_s)
            self._start_next(delay_s)
        else:
            self._on_start()

    def _on_start(self) -> None:
        process, self._failed = self.process, ""
        assert process is not None
        fd = self._listener.fileno()
        try:
            is_sent = process.channel.send(channel.CONSOLE, asdict(self._config), fd=fd)
        except OSError as error:
            is_sent, self._failed = False, f"cannot get its socket: {error.strerror}"
        if not is_sent:
            process.kill()

    def _handle_message(self, message: channel.Message, fd: int | None) -> bool:
        match message:
            case [channel.FAILED, int(), str(text)]:
                self._failed = f"failed: {text}"
            case _:
                return False
        return True

    def _on_ready(self, process: ChildProcess) -> None:
        LOGGER.info("the console is ready")

    def _failure(self, process: ChildProcess, status: int) -> str:
        return self._failed or super()._failure(process, status)

    def _final_status(self, process: ChildProcess, status: int) -> int | None:
        return EXIT_OK if self._stopping.is_set() else None
