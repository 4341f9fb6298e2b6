"""Follows the replicator of a primary, which is not replaced: without it the server stops."""

from __future__ import annotations

from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.messages import ReplicatorStatus
from beanstalkd_py.server.process.supervision import Supervisor


class ReplicatorSupervisor(Supervisor):
    """Supervises `process`, which has sent PRIMARY."""

    # As for the archiver, because a slow disk may delay it.
    heartbeat_limit_s = 60.0

    def __init__(self, process: ChildProcess) -> None:
        super().__init__("replicator", None)
        self.process = process
        self.ready = True
        self.status = ReplicatorStatus()
        self._failed = ""

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def run(self) -> int:
        assert self.process is not None
        self._start_heartbeat(self.process)  # it was ready as a standby
        return super().run()

    def _handle_message(self, message: channel.Message, fd: int | None) -> bool:
        match message:
            case [channel.STATUS, dict(values)]:
                self.status = ReplicatorStatus(**values)
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
