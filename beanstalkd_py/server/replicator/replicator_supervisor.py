"""Follows the replicator of a primary, which is not replaced: without it the server stops."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import gevent
from gevent.event import AsyncResult

from beanstalkd_py import errors
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.messages import ReplicatorStatus
from beanstalkd_py.server.process.supervision import Supervisor

SAVE_LIMIT_S = 5.0
"""Shorter than the timeout of a control client."""


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
        self._waiting: dict[int, AsyncResult[bool]] = {}
        self._numbers = itertools.count(1)

    def saved(self, name: str) -> int:
        """Let the log store a file of the binlog folder; return the number of this request."""
        number = next(self._numbers)
        self.send_message(channel.SAVED, name, number)
        return number

    def wait_for(self, name: str) -> None:
        """Let the log store a file, and wait for it. Raises ControlError."""
        number = self.saved(name)
        result = self._waiting[number] = AsyncResult()
        try:
            result.get(timeout=SAVE_LIMIT_S)
        except gevent.Timeout as error:
            raise errors.ControlError(
                f"the replicated log has not stored {name} within {SAVE_LIMIT_S:.0f} s; the change"
                " applies to this server, and whether it holds after a failover is unknown"
            ) from error
        finally:
            del self._waiting[number]

    def run(self) -> int:
        assert self.process is not None
        self._start_heartbeat(self.process)  # it was ready as a standby
        return super().run()

    def _handle_message(self, message: channel.Message, fd: int | None) -> bool:
        match message:
            case [channel.STATUS, dict(values)]:
                self.status = ReplicatorStatus(**values)
            case [channel.SAVED, int(number)]:
                if number in self._waiting:
                    self._waiting[number].set(True)
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
