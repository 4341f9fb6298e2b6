"""Follows the replicator of a primary, which is not replaced: without it the server stops."""

from __future__ import annotations

import time

import gevent

from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.messages import ReplicatorStatus
from beanstalkd_py.server.process.supervision import Supervisor

SILENT_S = 60.0
"""A replicator reports twice a second, but a slow disk may delay it."""
CHECK_S = 1.0


class ReplicatorSupervisor(Supervisor):
    """Supervises `process`, which has sent PRIMARY."""

    def __init__(self, process: ChildProcess) -> None:
        super().__init__("replicator", None)
        self.process = process
        self.ready = True
        self.status = ReplicatorStatus()
        self._failed = ""
        self._reported_mono = time.monotonic()

    def run(self) -> int:
        watching = gevent.spawn(self._kill_silent)
        try:
            return super().run()
        finally:
            watching.kill()

    def _kill_silent(self) -> None:
        """End a replicator that hangs, so that the server becomes a standby."""
        while time.monotonic() - self._reported_mono < SILENT_S:
            gevent.sleep(CHECK_S)
        if self.process is not None:
            LOGGER.error("the replicator has not reported for %d s; killing it", SILENT_S)
            self.process.kill()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def _handle_message(self, message: channel.Message, fd: int | None) -> bool:
        match message:
            case [channel.STATUS, dict(values)]:
                self.status = ReplicatorStatus(**values)
                self._reported_mono = time.monotonic()
            case [channel.FAILED, int(), str(text)]:
                self._failed = f"failed: {text}"
            case _:
                return False
        return True

    def _final_status(self, process: ChildProcess, status: int) -> int:
        if self._stopping.is_set() and status == EXIT_OK:
            return EXIT_OK
        failure = self._failed or self._failure(process, status)
        LOGGER.error("the replicator %s; this server is not the primary any more", failure)
        return status or EXIT_ERROR

    def _on_start(self) -> None:
        """It is never started again."""

    def _on_ready(self, process: ChildProcess) -> None:
        """It was ready as a standby."""
