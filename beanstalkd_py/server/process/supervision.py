"""Supervision of one child process: its channel, and the detection of a hung process."""

from __future__ import annotations

from collections.abc import Callable

import gevent

from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.fd_wait import FdWatcher
from beanstalkd_py.server.process.launch import ChildProcess

HEARTBEAT_INTERVAL_S = 1.0
HEARTBEAT_LIMIT_S = 10.0


class Heartbeat:
    """Calls `ping` at intervals; the owner calls `answered` for each reply.

    Counts intervals and not seconds: after a SIGSTOP of the whole server a process gets time to
    answer.
    """

    def __init__(
        self,
        ping: Callable[[], object],
        interval_s: float = HEARTBEAT_INTERVAL_S,
        limit_s: float = HEARTBEAT_LIMIT_S,
    ) -> None:
        self._ping = ping
        self._interval_s = interval_s
        self._limit = max(1, round(limit_s / interval_s))
        self._unanswered = 0

    def answered(self) -> None:
        self._unanswered = 0

    def run(self) -> None:
        """Return when the process has not answered for the limit."""
        while self._unanswered < self._limit:
            # One ping at a time: they must not fill the channel of a process that does not read.
            if self._unanswered == 0:
                self._ping()
            self._unanswered += 1
            gevent.sleep(self._interval_s)


class Liveness:
    """Kills a process that does not answer pings. `name` is for the log."""

    def __init__(
        self,
        process: ChildProcess,
        name: str,
        interval_s: float = HEARTBEAT_INTERVAL_S,
        limit_s: float = HEARTBEAT_LIMIT_S,
    ) -> None:
        self._process = process
        self._name = name
        self._limit_s = limit_s
        self._heartbeat = Heartbeat(lambda: process.channel.send(channel.PING), interval_s, limit_s)
        self._task: gevent.Greenlet[[], None] = gevent.spawn(self._run)

    def answered(self) -> None:
        self._heartbeat.answered()

    def stop(self) -> None:
        self._task.kill()

    def _run(self) -> None:
        self._heartbeat.run()
        LOGGER.error("%s did not answer for %.0f s; killing it", self._name, self._limit_s)
        self._process.kill()


def read_channel(
    process: ChildProcess, handle: Callable[[channel.Message, int | None], None]
) -> None:
    """Call `handle` for each message and its descriptor, until the process closes the channel."""
    ready = FdWatcher(process.channel.fileno())
    while True:
        ready.wait()
        message, fd = process.channel.receive_with_fd()
        if message is None:
            break
        handle(message, fd)
    ready.close()
