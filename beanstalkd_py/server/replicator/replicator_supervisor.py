"""Follows the replicator of a primary, which is not replaced: without it the server stops."""

from __future__ import annotations

from collections.abc import Callable

from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.messages import ReplicatorStatus
from beanstalkd_py.server.process.supervision import Supervisor


class ReplicatorSupervisor(Supervisor):
    """Supervises `process`, which has sent PRIMARY.

    Calls `failed` with the server's exit status if the process fails or ends before `stop`.
    """

    # As for the archiver, because a slow disk may delay it.
    heartbeat_limit_s = 60.0

    def __init__(
        self, process: ChildProcess, failed: Callable[[int], None], failover: Callable[[], None]
    ) -> None:
        super().__init__("replicator", None)
        self.process = process
        self.ready = True
        self.status = ReplicatorStatus()
        self._failed = failed
        self._failover = failover
        self._reason = ""

    def run(self) -> int:
        assert self.process is not None
        self._start_heartbeat(self.process)  # it was ready as a standby
        return super().run()

    def _handle_message(self, message: channel.Message, fd: int | None) -> bool:
        match message:
            case [channel.STATUS, dict(values)]:
                self.status = ReplicatorStatus(**values)
            case [channel.FAILOVER]:
                self._failover()
            case [channel.FAILED, int(), str(text)]:
                self._reason = f"failed: {text}"
            case _:
                return False
        return True

    def _final_status(self, process: ChildProcess, status: int) -> int:
        if self._stopping.is_set() and status == EXIT_OK:
            return EXIT_OK
        reason = self._reason or self._failure(process, status)
        LOGGER.error("the replicator %s; this server is not the primary any more", reason)
        self._failed(status or EXIT_ERROR)
        return status or EXIT_ERROR

    def _on_start(self) -> None:
        """It is never started again."""

    def _on_ready(self, process: ChildProcess) -> None:
        """It was ready as a standby."""
