"""The worker's event loop: rounds of the core, events for Python, messages of the parent.

Greenlets take turns: one runs the core when it has something to do, one reads the channel, one
looks after reserves that other workers keep waiting, and after memory.
Knows the core through its wrapper only, and nothing of how the process was set up.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import AsyncResult

from beanstalkd_py import errors
from beanstalkd_py.core.core import Core, Run
from beanstalkd_py.core.events import Event, EventKind
from beanstalkd_py.core.limits import Limits
from beanstalkd_py.server.logging.lines import LogSource
from beanstalkd_py.server.logging.setup import LOGGER, flush_log, set_up_logging
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_BINLOG, EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.fd_wait import FdWatcher
from beanstalkd_py.server.process.memory_trim import MemoryTrimmer
from beanstalkd_py.server.stats.stats_reply import StatsReply
from beanstalkd_py.server.worker.admin_requests import Answers
from beanstalkd_py.server.worker.tracing import log_trace, trace_level
from beanstalkd_py.server.worker.upcalls import UpcallHandler

# Plain numbers: operators of an IntFlag would cost more than all else between two rounds.
EVENTS, UPCALLS, MORE = int(Run.EVENTS), int(Run.UPCALLS), int(Run.MORE)
EXTERNAL, FATAL = int(Run.EXTERNAL), int(Run.FATAL)

BUDGET_NS = 50_000_000
"""The longest that other greenlets wait for the core, which stays that long for more to come."""


SLOW_STEP_S = 0.25


class WorkerLoop:
    """One worker's core, being served until the parent says stop or goes."""

    def __init__(
        self,
        core: Core,
        router: UpcallHandler,
        channel_: channel.Channel,
        statistics: StatsReply,
        source: LogSource,
        memory: MemoryTrimmer,
    ) -> None:
        self._core = core
        self._source = source
        self._router = router
        self._orders = channel_
        self._statistics = statistics
        self._memory = memory
        self._answers = Answers(core)
        self._stopped = False

    def run(self) -> int:
        """Serves; the exit status of the worker."""
        end: AsyncResult[int] = AsyncResult()
        jobs = (self._run_rounds, self._read_channel, self._look_after_slow)
        tasks = [gevent.spawn(_exit_on_error, job) for job in jobs]
        for task in tasks:
            task.link(end)
        status = end.get()
        gevent.killall(tasks)
        return status or self._stop()

    def _run_rounds(self) -> int:
        core = self._core
        ready = FdWatcher(core.fd)
        while True:
            ready.wait()
            wants = MORE
            while wants & MORE:
                wants = core.run(BUDGET_NS, linger=True)
                if wants & EVENTS:
                    self._handle_events()
                if wants & FATAL:
                    LOGGER.error("%s", core.error)
                    return EXIT_BINLOG
                if wants & EXTERNAL or wants == MORE:
                    gevent.sleep(0)
                if wants & UPCALLS:
                    # What came of it is to be written and sent: straight back, not by the hub.
                    self._router.collect()
                    wants |= MORE

    def heed_waiting(self) -> None:
        """Takes the channel_ that are there already: who says READY knows the other workers."""
        while not self._stopped and select.select([self._orders], [], [], 0)[0]:
            self._handle_message()

    def _read_channel(self) -> int:
        ready = FdWatcher(self._orders.fileno())
        while not self._stopped:
            ready.wait()
            self._handle_message()
        return EXIT_OK

    def _look_after_slow(self) -> int:
        while True:
            gevent.sleep(SLOW_STEP_S)
            self._router.look_after_slow()
            self._memory.look()

    def _handle_message(self) -> None:
        message, fd = self._orders.receive_with_fd()
        match message:
            case None:
                LOGGER.error("the parent has gone; stopping")
                self._stopped = True
            case [channel.STOP]:
                self._stopped = True
            case [channel.PING]:
                self._orders.send(channel.PONG)
            case [channel.CHANGE, dict(options)]:
                self._change(options)
            case [channel.ASK, int(number), dict(question)]:
                self._orders.send(channel.ANSWER, number, self._answers.answer(question))
            case [channel.PEER, int(shard)] if fd is not None:
                self._router.add_peer(shard, fd)
            case _:
                LOGGER.warning("the parent sent an unknown message")

    def _change(self, options: dict[str, Any]) -> None:
        self._core.change(options["max_job_size"], options["sync_interval_ns"])
        self._statistics.max_job_size = options["max_job_size"]
        self._core.limit(Limits(**options["limits"]))
        self._core.trace(trace_level(options["verbosity"]), options["slow_ns"])
        set_up_logging(options["verbosity"], options["log_format"], self._source)

    def _handle_events(self) -> None:
        for event in self._core.events():
            if event.kind == EventKind.STATS:
                self._core.answer(event.session, self._statistics.reply(self._core.roles()))
            else:
                _log(event)

    def _stop(self) -> int:
        try:
            self._core.stop()
        except errors.BinlogWriteError as error:
            LOGGER.error("%s", error)
            return EXIT_BINLOG
        finally:
            log_events(self._core)
        return EXIT_OK


def _exit_on_error(task: Callable[[], int]) -> int:
    """Runs a task; an error in it is the end of the process, whatever state that is in."""
    try:
        return task()
    except Exception:
        # At once and by itself: one task that is left would look alive to the parent.
        LOGGER.critical("an error of the program, which ends this worker", exc_info=True)
        flush_log()
        os._exit(EXIT_ERROR)


def log_events(core: Core) -> None:
    """Logs what the core has to say while nobody is served: after recovery and after the stop."""
    for event in core.events():
        if event.kind != EventKind.STATS:
            _log(event)


def _log(event: Event) -> None:
    if event.kind == EventKind.LOG:
        LOGGER.log(event.level, "%s", event.text)
    else:
        log_trace(event)
