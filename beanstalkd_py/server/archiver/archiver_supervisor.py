"""Supervises the archiver and collects its status.

Finished jobs wait in the binlog folders, up to a limit, while the archiver cannot run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import gevent

from beanstalkd_py.server.archiver.backlog_limit import BacklogLimit
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.messages import ArchiverStatus
from beanstalkd_py.server.process.supervision import Supervisor

CHECK_S = 0.25
"""The interval of the backlog's checks."""

TOTALS = ("archived", "freed_bytes", "orphans", "bodies_left_out", "faults", "missing_bytes")
"""The fields of ArchiverStatus that count since the start of the process."""


@dataclass(frozen=True, slots=True)
class HistoryStatus(ArchiverStatus):
    """The archiver's progress since the server started, its process, and its backlog.

    `last_error` is the reason for the last end of a process, or empty. `most_bytes` is
    --history-backlog. The last three fields are those of BacklogLimit.
    """

    state: str = ""
    pid: int = 0
    restarts: int = 0
    keeps_restarting: bool = False
    last_error: str = ""
    most_bytes: int = 0
    waiting_bytes: int = 0
    lost_files: int = 0
    lost_bytes: int = 0


class ArchiverSupervisor(Supervisor):
    """Supervises the archiver; `limit` is the limit of its backlog.

    A standby starts it in the background, and goes on with it as the primary.
    """

    restart_text = "%s %s; restarting in %.1f s, finished jobs wait in the binlog"
    # Long enough for a slow disk, because no client waits for the archiver.
    heartbeat_limit_s = 60.0

    def __init__(self, start: Callable[[], ChildProcess], limit: BacklogLimit) -> None:
        super().__init__("archiver", start)
        self.limit = limit
        self._background: gevent.Greenlet[[], int] | None = None
        self._last_error = ""
        self._failed = ""
        self._is_last = False
        self._current = ArchiverStatus()
        self._ended_totals = dict.fromkeys(TOTALS, 0)
        self.process = start()

    def status(self) -> HistoryStatus:
        return HistoryStatus(
            **(asdict(self._current) | self._totals()),
            state=self.state,
            pid=self.pid,
            restarts=self._restarts,
            keeps_restarting=self._backoff.keeps_restarting,
            last_error=self._last_error,
            most_bytes=self.limit.most_bytes,
            waiting_bytes=self.limit.waiting_bytes,
            lost_files=self.limit.lost_files,
            lost_bytes=self.limit.lost_bytes,
        )

    def run_in_background(self) -> None:
        """Do what `run` does in a greenlet of its own, which `run` then waits for."""
        self._background = gevent.spawn(self._run)

    def run(self) -> int:
        """Keep a process running until `stop`; the last one archives the rest."""
        return self._run() if self._background is None else self._background.get()

    def _run(self) -> int:
        checking = gevent.spawn(self._check_backlog)
        try:
            return super().run()
        finally:
            checking.kill()

    def change_options(self, options: ServeOptions) -> None:
        self.limit.most_bytes = options.history_backlog
        super().change_options(options)  # the archiver reads them once it has opened the store

    def _handle_message(self, message: channel.Message, fd: int | None) -> bool:
        match message:
            case [channel.STATUS, dict(values)]:
                self._current = ArchiverStatus(**values)
            case [channel.FAILED, int(), str(text)]:
                self._failed = f"failed: {text}"
            case _:
                return False
        return True

    def _on_ready(self, process: ChildProcess) -> None:
        LOGGER.info("the archiver is ready")

    def _final_status(self, process: ChildProcess, status: int) -> int | None:
        if self._stopping.is_set() and status == EXIT_OK:
            return EXIT_OK
        self._last_error = self._failure(process, status)
        if self._is_last:
            LOGGER.error("archiver %s; the next start archives the rest", self._last_error)
            return EXIT_ERROR
        return None

    def _failure(self, process: ChildProcess, status: int) -> str:
        return self._failed or super()._failure(process, status)

    def _reset(self) -> None:
        super()._reset()
        self._ended_totals, self._current = self._totals(), ArchiverStatus()

    def _may_start(self, delay_s: float) -> bool:
        """Also permits one process after a stop, which archives the rest."""
        was_last, self._is_last = self._is_last, self._stopping.wait(delay_s)
        return not was_last

    def _on_start(self) -> None:
        self._failed = ""
        if self._stopping.is_set():
            self.send_message(channel.STOP)

    def _totals(self) -> dict[str, int]:
        ended = self._ended_totals
        return {name: ended[name] + getattr(self._current, name) for name in TOTALS}

    def _check_backlog(self) -> None:
        failed = ""
        while True:
            try:
                self.limit.enforce()
                failed = ""
            except OSError as error:
                if str(error) != failed:
                    LOGGER.error("cannot check the backlog of the archiver: %s", error)
                failed = str(error)
            gevent.sleep(CHECK_S)
