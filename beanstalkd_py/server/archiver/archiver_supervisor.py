"""Keeps the archiver running, hears how far it is, and sees to it that it never stops the queue.

What it cannot do, for want of room or because it ends again and again, waits in the binlog folders,
up to a limit. Must not know the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
from gevent.event import Event

from beanstalkd_py import errors
from beanstalkd_py.server.archiver.backlog_limit import BacklogLimit
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_OK
from beanstalkd_py.server.process.fd_wait import FdWatcher
from beanstalkd_py.server.process.heartbeat import Heartbeat
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.restart_backoff import RestartBackoff
from beanstalkd_py.server.process.wait_exit import reap
from beanstalkd_py.server.stats.worker_stats import Component

HEARTBEAT_LIMIT_S = 60.0
"""It may wait for a slow disk; nobody waits for it."""
STOP_LIMIT_S = 60.0
LOOK_S = 0.25
"""Between two looks at what waits."""

TOTALS = ("archived", "freed_bytes", "orphans", "bodies_left_out", "faults", "missing_bytes")
"""What a process counts from its start; the others are what there is now."""

Start = Callable[[], ChildProcess]
"""Starts an archiver. Raises WorkerError."""


class ArchiverSupervisor:
    """The place of the archiver. `limit` is of what waits for it."""

    def __init__(self, start: Start, limit: BacklogLimit) -> None:
        self.limit = limit
        self.restarts = 0
        self._backoff = RestartBackoff()
        self._last_error = ""
        self._start = start
        self._process: ChildProcess | None = None
        self._ready = False
        self._stopping = Event()
        self._ended = Event()
        self._now: dict[str, Any] = {}
        self._before = dict.fromkeys(TOTALS, 0)

    @property
    def component(self) -> Component:
        """How often the process was started again."""
        return Component("archiver", self.restarts, self._backoff.keeps_restarting)

    @property
    def pid(self) -> int:
        """0 while there is no process."""
        return self._process.pid if self._process is not None else 0

    @property
    def state(self) -> str:
        """As in WorkerStatus: starting means that it opens the store."""
        if self._stopping.is_set():
            return "stopping"
        if self._process is None:
            return "waiting"
        return "serving" if self._ready else "starting"

    def status(self) -> dict[str, Any]:
        """How far it is: totals since the server started, and what there is now.

        Keys are those of the archiver's status; `state`, `pid`, `restarts`, `keeps_restarting` and
        `last_error` (why a process ended, or nothing) of the process;
        `waiting_bytes`, `most_bytes`, `lost_files` and `lost_bytes` of the limit.
        """
        totals = {name: self._before[name] + self._now.get(name, 0) for name in TOTALS}
        here = {
            name: self._now.get(name, nothing)
            for name, nothing in (
                *(("behind_bytes", 0), ("open_jobs", 0)),
                *(("refused", ""), ("store_bytes", 0)),
            )
        }
        return {
            **totals,
            **here,
            "state": self.state,
            "pid": self.pid,
            "restarts": self.restarts,
            "keeps_restarting": self._backoff.keeps_restarting,
            "last_error": self._last_error,
            "most_bytes": self.limit.most_bytes,
            "waiting_bytes": self.limit.waiting_bytes,
            "lost_files": self.limit.lost_files,
            "lost_bytes": self.limit.lost_bytes,
        }

    # --- the process ----------------------------------------------------------------------------

    def run(self) -> None:
        """Keeps a process running until `stop`, and one that archives what is left then."""
        looking = gevent.spawn(self._look_after_backlog)
        try:
            self._keep()
        finally:
            looking.kill()
            self._ended.set()

    def _keep(self) -> None:
        pause_s = 0.0
        while True:
            is_last = self._stopping.wait(pause_s)
            began_mono = time.monotonic()
            try:
                told = self._follow(self._start_process())
            except errors.WorkerError as error:
                told = str(error)
            if not told or is_last:
                break
            self.restarts += 1
            self._last_error = told
            pause_s = self._backoff.pause_after(time.monotonic() - began_mono)
            LOGGER.error(
                "the archiver %s; it is started again in %.1f s, and until then finished jobs"
                " wait in the binlog",
                *(told, pause_s),
            )
        if told:
            LOGGER.error("the archiver %s; what is left is for the next start", told)

    def _start_process(self) -> ChildProcess:
        self._process = process = self._start()
        if self._stopping.is_set():
            process.channel.send(channel.STOP)
        return process

    def stop(self) -> None:
        """Lets it archive what is left, and waits for it. To be called when workers have ended."""
        self._stopping.set()
        if self._process is not None:
            self._process.channel.send(channel.STOP)  # heeded once it has opened the store
        while not self._ended.wait(STOP_LIMIT_S):
            if self._process is not None:
                LOGGER.error("the archiver has not stopped and is killed; the next one goes on")
                self._process.kill()

    def change(self, options: ServeOptions) -> None:
        """Gives the process what may change in its options; the next one gets them all."""
        self.limit.most_bytes = options.history_backlog
        if self._process is not None:  # heeded once it has opened the store
            self._process.channel.send(channel.CHANGE, options.for_archiver())

    def _follow(self, process: ChildProcess) -> str:
        """Heeds a process until it has ended; how that was, nothing if it was to."""
        heart = Heartbeat(lambda: process.channel.send(channel.PING), limit_s=HEARTBEAT_LIMIT_S)
        watch: gevent.Greenlet[[], None] | None = None
        told = ""
        ready = FdWatcher(process.channel.fileno())
        while True:
            ready.wait()
            match process.channel.receive():
                case None:
                    break
                case [channel.READY]:
                    self._ready = True
                    LOGGER.info("the archiver is ready")
                    watch = gevent.spawn(partial(_watch, process, heart))
                case [channel.PONG]:
                    heart.answered()
                case [channel.STATUS, dict(now)]:
                    self._now = now
                case [channel.FAILED, int(), str(text)]:
                    told = f"cannot go on: {text}"
                case _:
                    LOGGER.warning("the archiver sent an unknown message")
        ready.close()
        if watch is not None:
            watch.kill()
        status = reap(process)
        process.close()
        self._clear_place()
        if self._stopping.is_set() and status == EXIT_OK:
            return ""
        return told or f"(pid {process.pid}) ended with status {status}"

    def _clear_place(self) -> None:
        """Totals stay; what there was is not known any more."""
        self._before = {name: self._before[name] + self._now.get(name, 0) for name in TOTALS}
        self._now = {}
        self._process, self._ready = None, False

    # --- what waits -----------------------------------------------------------------------------

    def _look_after_backlog(self) -> None:
        failed = ""
        while True:
            try:
                self.limit.look()
                failed = ""
            except OSError as error:
                if str(error) != failed:
                    LOGGER.error("files that wait for the archiver cannot be looked at: %s", error)
                failed = str(error)
            gevent.sleep(LOOK_S)


def _watch(process: ChildProcess, heart: Heartbeat) -> None:
    heart.run()
    LOGGER.error("the archiver has not answered for %d s and is killed", HEARTBEAT_LIMIT_S)
    process.kill()
