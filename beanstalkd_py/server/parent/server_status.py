"""What the server reports about itself: to its service manager, to probes and to operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import gevent

from beanstalkd_py.plural import counted
from beanstalkd_py.server.parent.systemd_notify import Notifier
from beanstalkd_py.server.parent.worker_supervisor import WorkerSupervisor
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.process.supervision import Supervisor
from beanstalkd_py.server.stats.worker_stats import Component

START_PROGRESS_S = 10.0
STATUS_S = 1.0
"""The interval of checks for components that keep restarting."""
CONSOLE_NAME = "console"


@dataclass(slots=True)
class ServerStatus:
    """`helpers` are the processes beside the workers. `faults` returns texts for the status line.

    The parent's loop sets `is_accepting` and `is_stopping`.
    """

    notifier: Notifier
    shared: SharedMemory
    workers: Sequence[WorkerSupervisor]
    helpers: Sequence[Supervisor]
    faults: Callable[[], list[str]]
    is_accepting: bool = False
    is_stopping: bool = False

    def report_start(self) -> None:
        while not self.is_accepting and not self.is_stopping:
            self.notifier.starting(self.text())
            gevent.sleep(START_PROGRESS_S)

    def report_failing(self) -> None:
        """Poll which components keep restarting or fail, because no event reports changes."""
        reported: list[str] = []
        while True:
            gevent.sleep(STATUS_S)
            failing = self._failing()
            if failing != reported:
                self.report()
            reported = failing

    def report(self) -> None:
        if self.is_accepting and not self.is_stopping:
            self.notifier.status(self.text())

    def text(self) -> str:
        """Return the status line."""
        ready, count = sum(worker.ready for worker in self.workers), len(self.workers)
        workers = counted(count, "worker")
        if not self.is_accepting:
            return f"starting: {ready} of {workers} ready, the others read their binlogs"
        doing = "draining" if self.shared.draining else "serving"
        missing = f"; {count - ready} restarting" if ready < count else ""
        return "; ".join([f"{doing} with {ready} of {workers}{missing}", *self._failing()])

    def components(self) -> list[Component]:
        return [one.component for one in (*self.workers, *self.helpers)]

    def readiness(self) -> tuple[bool, str]:
        """Return whether all workers serve and no component keeps restarting; the status line.

        The console does not count, because clients need none.
        """
        if self.is_stopping:
            return False, "stopping"
        serving = self.is_accepting and all(worker.ready for worker in self.workers)
        failing = [name for name in self._restarting() if name != CONSOLE_NAME]
        return serving and not failing, self.text()

    def _restarting(self) -> list[str]:
        return [one.name for one in self.components() if one.keeps_restarting]

    def _failing(self) -> list[str]:
        return [f"{name} keeps restarting" for name in self._restarting()] + self.faults()
