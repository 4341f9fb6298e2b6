"""A worker at work: rounds of the core, the events it cannot handle alone, and the parent's orders.

Two greenlets take turns: one runs the core when it has something to do, one reads the channel.
Knows the core through its wrapper only, and nothing of how the process was set up.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import traceback
from collections.abc import Callable

import gevent
from gevent.event import AsyncResult

from beanstalkd_py import errors
from beanstalkd_py.core.core import Core, EventKind, Run
from beanstalkd_py.server import channel
from beanstalkd_py.server.exits import EXIT_BINLOG, EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.logs import LOGGER
from beanstalkd_py.server.router import Router
from beanstalkd_py.server.statistics import Statistics
from beanstalkd_py.server.waiting import Readiness

# Plain numbers: operators of an IntFlag would cost more than all else between two rounds.
EVENTS, MAIL, MORE = int(Run.EVENTS), int(Run.MAIL), int(Run.MORE)
EXTERNAL, FATAL = int(Run.EXTERNAL), int(Run.FATAL)

BUDGET_NS = 50_000_000
"""The longest that other greenlets wait for the core, which stays that long for more to come."""


class Service:
    """One worker's core, being served until the parent says stop or goes."""

    def __init__(
        self, core: Core, router: Router, orders: channel.Channel, statistics: Statistics
    ) -> None:
        self._core = core
        self._router = router
        self._orders = orders
        self._statistics = statistics
        self._stopped = False

    def run(self) -> int:
        """Serves; the exit status of the worker."""
        end: AsyncResult[int] = AsyncResult()
        tasks = [gevent.spawn(_loudly, task) for task in (self._run_rounds, self._obey)]
        for task in tasks:
            task.link(end)
        status = end.get()
        gevent.killall(tasks)
        return status or self._stop()

    def _run_rounds(self) -> int:
        core = self._core
        ready = Readiness(core.fd)
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
                if wants & MAIL:
                    # What came of it is to be written and sent: straight back, not by the hub.
                    self._router.collect()
                    wants |= MORE

    def heed_waiting(self) -> None:
        """Takes the orders that are there already: who says READY knows the other workers."""
        while not self._stopped and select.select([self._orders], [], [], 0)[0]:
            self._heed()

    def _obey(self) -> int:
        ready = Readiness(self._orders.fileno())
        while not self._stopped:
            ready.wait()
            self._heed()
        return EXIT_OK

    def _heed(self) -> None:
        message, fd = self._orders.receive_with_fd()
        match message:
            case None:
                LOGGER.error("the parent has gone; stopping")
                self._stopped = True
            case [channel.STOP]:
                self._stopped = True
            case [channel.PING]:
                self._orders.send(channel.PONG)
            case [channel.PEER, int(shard)] if fd is not None:
                self._router.add_peer(shard, socket.socket(fileno=fd))
            case _:
                LOGGER.warning("the parent sent an unknown message")

    def _handle_events(self) -> None:
        for event in self._core.events():
            if event.kind == EventKind.STATS:
                self._core.answer(event.session, self._statistics.reply())
            elif event.kind == EventKind.LOG:
                LOGGER.log(event.level, "%s", event.text)

    def _stop(self) -> int:
        try:
            self._core.stop()
        except errors.BinlogWriteError as error:
            LOGGER.error("%s", error)
            return EXIT_BINLOG
        finally:
            log_events(self._core)
        return EXIT_OK


def _loudly(task: Callable[[], int]) -> int:
    """Runs a task; an error in it is the end of the process, whatever state that is in."""
    try:
        return task()
    except Exception:
        # At once and by itself: one task that is left would look alive to the parent.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(EXIT_ERROR)


def log_events(core: Core) -> None:
    """Logs what the core has to say while nobody is served: after recovery and after the stop."""
    for event in core.events():
        if event.kind == EventKind.LOG:
            LOGGER.log(event.level, "%s", event.text)
