"""The worker's event loop.

It has three greenlets: one runs the core, one reads the channel, one does periodic work.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
from gevent.event import AsyncResult

from beanstalkd_py import errors
from beanstalkd_py.core.core import Core, Run
from beanstalkd_py.core.events import Event, EventKind
from beanstalkd_py.core.limits import Limits
from beanstalkd_py.core.tube_policy import TubePolicy
from beanstalkd_py.server.logging.lines import LogSource
from beanstalkd_py.server.logging.setup import LOGGER, exit_on_error, set_up_logging
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_BINLOG, EXIT_OK
from beanstalkd_py.server.process.fd_wait import FdWatcher
from beanstalkd_py.server.process.memory_trim import MemoryTrimmer
from beanstalkd_py.server.stats import connection_list, tube_stats
from beanstalkd_py.server.stats.stats_reply import StatsReply
from beanstalkd_py.server.worker.tracing import log_trace, trace_level
from beanstalkd_py.server.worker.upcalls import UpcallHandler

# Plain ints, because operators of an IntFlag take longer than everything else between two rounds.
EVENTS, UPCALLS, MORE = int(Run.EVENTS), int(Run.UPCALLS), int(Run.MORE)
EXTERNAL, FATAL = int(Run.EXTERNAL), int(Run.FATAL)

BUDGET_NS = 50_000_000
"""How long the core may run, including its wait for input, before other greenlets run."""
PERIOD_S = 0.25
FINISH_BUDGET_NS = 1_000_000
"""The budget after FINISH, because the stop waits for the other greenlets."""
FINISH_CHECK_S = 0.002
FINISH_LIMIT_S = 2.0
"""How long a stop waits for clients that read their replies slowly."""
STALL_LIMIT_S = 0.5
"""How long it waits while no client reads."""


class WorkerLoop:
    """Runs one worker's core until the parent sends STOP or ends."""

    def __init__(
        self,
        core: Core,
        upcalls: UpcallHandler,
        parent: channel.Channel,
        stats: StatsReply,
        source: LogSource,
        memory: MemoryTrimmer,
    ) -> None:
        self._core = core
        self._source = source
        self._upcalls = upcalls
        self._parent = parent
        self._stats = stats
        self._memory = memory
        # The keys are the names of WorkerSupervisor's requests. Results fit into one message.
        self._admin_requests: dict[str, Callable[..., tuple[Any, ...]]] = {
            "compact": core.compact,
            "truncate": core.truncate,
            "connections": partial(connection_list.read_page, core),
            "tube_stats": partial(tube_stats.read_page, core),
        }
        self._stopped = False
        self._budget_ns = BUDGET_NS

    def run(self) -> int:
        """Serve clients; return the exit status of the worker."""
        end: AsyncResult[int] = AsyncResult()
        loops = (self._run_rounds, self._read_channel, self._work_periodically)
        tasks = [gevent.spawn(partial(exit_on_error, loop, "worker")) for loop in loops]
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
                wants = core.run(self._budget_ns, linger=True)
                if wants & EVENTS:
                    self._handle_events()
                if wants & FATAL:
                    LOGGER.error("%s", core.error)
                    return EXIT_BINLOG
                if wants & EXTERNAL or wants == MORE:
                    gevent.sleep(0)
                if wants & UPCALLS:
                    # Run the core again at once, so that it writes and sends the results.
                    self._upcalls.handle_all()
                    wants |= MORE

    def handle_pending_messages(self) -> None:
        """Handle the messages that have arrived, so that READY implies links to all peers."""
        while not self._stopped and select.select([self._parent], [], [], 0)[0]:
            self._handle_message()

    def _read_channel(self) -> int:
        ready = FdWatcher(self._parent.fileno())
        while not self._stopped:
            ready.wait()
            self._handle_message()
        return EXIT_OK

    def _work_periodically(self) -> int:
        while True:
            gevent.sleep(PERIOD_S)
            self._upcalls.fail_slow_listings()
            self._memory.check()

    def _handle_message(self) -> None:
        message, fd = self._parent.receive_with_fd()
        match message:
            case None:
                LOGGER.error("the parent process ended; stopping")
                self._stopped = True
            case [channel.STOP]:
                self._stopped = True
            case [channel.FINISH]:
                self._core.end_commands()
                self._budget_ns = FINISH_BUDGET_NS
                gevent.spawn(partial(exit_on_error, self._report_finished, "worker"))
            case [channel.PING]:
                self._parent.send(channel.PONG)
            case [channel.CHANGE, dict(values)]:
                self._change(ServeOptions(**values))
            case [channel.ASK, int(number), str(name), list(arguments)]:
                result = self._admin_requests[name](*arguments)
                self._parent.send(channel.ANSWER, number, result)
            case [channel.PEER, int(shard)] if fd is not None:
                self._upcalls.add_peer(shard, fd)
            case _:
                LOGGER.warning("ignored an unknown message of the parent")

    def _report_finished(self) -> None:
        """Report to the parent when all replies have left, or when no client reads the others."""
        begin_mono = progress_mono = now_mono = time.monotonic()
        last = 0
        while (unsent := self._core.unsent()) > 0:
            now_mono = time.monotonic()
            if unsent != last:
                last, progress_mono = unsent, now_mono
            if now_mono - begin_mono > FINISH_LIMIT_S or now_mono - progress_mono > STALL_LIMIT_S:
                break
            gevent.sleep(FINISH_CHECK_S)
        self._parent.send(channel.FINISHED)

    def _change(self, options: ServeOptions) -> None:
        self._core.change(options.max_job_size, options.sync_interval_ns)
        self._stats.max_job_size = options.max_job_size
        try:
            set_limits(self._core, options)
        except errors.CoreError as error:
            LOGGER.error("cannot change the tube policies: %s; the old ones stay", error)
        set_up_logging(options.verbosity, options.log_format, self._source)

    def _handle_events(self) -> None:
        for event in self._core.events():
            if event.kind == EventKind.STATS:
                self._core.answer(event.session, self._stats.render(self._core.roles()))
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
        self._parent.send(channel.STOPPED)
        return EXIT_OK


def set_limits(core: Core, options: ServeOptions) -> None:
    """Set the limits, the tube policies, and what the core logs."""
    core.limit(
        Limits(
            memory=options.max_memory,
            tubes=options.max_tubes,
            output=options.output_limit,
            idle_timeout_ns=options.idle_timeout_ns,
            send_timeout_ns=options.send_timeout_ns,
            output_timeout_ns=options.output_timeout_ns,
            replicate_timeout_ns=options.replicate_timeout_ns,
        )
    )
    core.set_policies([TubePolicy._make(one) for one in options.policies])
    core.trace(trace_level(options.verbosity), options.slow_ns)


def log_events(core: Core) -> None:
    """Log the core's events outside the loop: after recovery and after the stop."""
    for event in core.events():
        if event.kind != EventKind.STATS:
            _log(event)


def _log(event: Event) -> None:
    if event.kind == EventKind.LOG:
        LOGGER.log(event.level, "%s", event.text)
    else:
        log_trace(event)
