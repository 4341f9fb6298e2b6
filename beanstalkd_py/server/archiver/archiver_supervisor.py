"""Supervises the archiver and collects its status.

Finished jobs wait in the binlog folders, up to a limit, while the archiver cannot run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import gevent
from gevent.event import Event

from beanstalkd_py import errors
from beanstalkd_py.server.archiver.backlog_limit import BacklogLimit
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_OK
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.messages import ArchiverOptions, ArchiverStatus
from beanstalkd_py.server.process.restart_backoff import RestartBackoff
from beanstalkd_py.server.process.supervision import Liveness, read_channel
from beanstalkd_py.server.stats.worker_stats import Component

HEARTBEAT_LIMIT_S = 60.0
"""Long enough for a slow disk, because no client waits for the archiver."""
STOP_LIMIT_S = 60.0
CHECK_S = 0.25
"""Interval of checks of the backlog."""

TOTALS = ("archived", "freed_bytes", "orphans", "bodies_left_out", "faults", "missing_bytes")
"""The fields of ArchiverStatus that count from the start of the process."""

Start = Callable[[], ChildProcess]
"""Starts an archiver. Raises WorkerError."""


@dataclass(frozen=True, slots=True)
class HistoryStatus(ArchiverStatus):
    """The archiver's progress since the server started, its process, and the backlog.

    `last_error` is the reason for the last end of a process, or empty. `most_bytes` is
    --history-backlog, and the last three fields are those of BacklogLimit.
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


class ArchiverSupervisor:
    """Runs one archiver. `limit` limits its backlog."""

    def __init__(self, start: Start, limit: BacklogLimit) -> None:
        self.limit = limit
        self._restarts = 0
        self._backoff = RestartBackoff()
        self._last_error = ""
        self._start = start
        self._process: ChildProcess | None = None
        self._ready = False
        self._stopping = Event()
        self._ended = Event()
        self._now = ArchiverStatus()
        self._before = dict.fromkeys(TOTALS, 0)
        """The totals of ended processes."""

    @property
    def component(self) -> Component:
        return Component("archiver", self._restarts, self._backoff.keeps_restarting)

    @property
    def state(self) -> str:
        """As in WorkerStatus; a starting archiver opens the store."""
        if self._stopping.is_set():
            return "stopping"
        if self._process is None:
            return "waiting"
        return "serving" if self._ready else "starting"

    def status(self) -> HistoryStatus:
        return HistoryStatus(
            **(asdict(self._now) | self._totals()),
            state=self.state,
            pid=self._process.pid if self._process is not None else 0,
            restarts=self._restarts,
            keeps_restarting=self._backoff.keeps_restarting,
            last_error=self._last_error,
            most_bytes=self.limit.most_bytes,
            waiting_bytes=self.limit.waiting_bytes,
            lost_files=self.limit.lost_files,
            lost_bytes=self.limit.lost_bytes,
        )

    def _totals(self) -> dict[str, int]:
        return {name: before + getattr(self._now, name) for name, before in self._before.items()}

    # --- the process ----------------------------------------------------------------------------

    def run(self) -> None:
        """Keep a process running until `stop`; the last one archives the rest."""
        checking = gevent.spawn(self._check_backlog)
        try:
            self._supervise()
        finally:
            checking.kill()
            self._ended.set()

    def _supervise(self) -> None:
        pause_s = 0.0
        while True:
            is_last = self._stopping.wait(pause_s)
            started_mono = time.monotonic()
            try:
                failure = self._follow(self._start_process())
            except errors.WorkerError as error:
                failure = str(error)
            if not failure or is_last:
                break
            self._restarts += 1
            self._last_error = failure
            pause_s = self._backoff.pause_after(time.monotonic() - started_mono)
            LOGGER.error(
                "archiver %s; restarting in %.1f s, finished jobs wait in the binlog",
                *(failure, pause_s),
            )
        if failure:
            LOGGER.error("archiver %s; the next start archives the rest", failure)

    def _start_process(self) -> ChildProcess:
        self._process = process = self._start()
        if self._stopping.is_set():
            process.channel.send(channel.STOP)
        return process

    def stop(self) -> None:
        """Let it archive the rest, and wait for its end. Call it when the workers have ended."""
        self._stopping.set()
        if self._process is not None:
            self._process.channel.send(channel.STOP)  # executed once it has opened the store
        while not self._ended.wait(STOP_LIMIT_S):
            if self._process is not None:
                LOGGER.error("archiver did not stop within %d s; killing it", STOP_LIMIT_S)
                self._process.kill()

    def change(self, options: ServeOptions) -> None:
        """Send new options to the process; later processes start with them."""
        self.limit.most_bytes = options.history_backlog
        if self._process is not None:  # executed once it has opened the store
            self._process.channel.send(channel.CHANGE, ArchiverOptions.of(options).encode())

    def _follow(self, process: ChildProcess) -> str:
        """Handle messages until the process ends; return its failure, or nothing."""
        liveness: Liveness | None = None
        failure = ""

        def handle(message: channel.Message, _: int | None) -> None:
            nonlocal liveness, failure
            match message:
                case [channel.READY]:
                    self._ready = True
                    LOGGER.info("the archiver is ready")
                    liveness = Liveness(process, "archiver", limit_s=HEARTBEAT_LIMIT_S)
                case [channel.PONG] if liveness is not None:
                    liveness.answered()
                case [channel.STATUS, dict(values)]:
                    self._now = ArchiverStatus.decode(values)
                case [channel.FAILED, int(), str(text)]:
                    failure = f"failed: {text}"
                case _:
                    LOGGER.warning("ignored an unknown message of the archiver")

        read_channel(process, handle)
        if liveness is not None:
            liveness.stop()
        status = process.wait()
        process.close()
        self._before, self._now = self._totals(), ArchiverStatus()
        self._process, self._ready = None, False
        if self._stopping.is_set() and status == EXIT_OK:
            return ""
        return failure or f"(pid {process.pid}) ended with status {status}"

    # --- the backlog ----------------------------------------------------------------------------

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
