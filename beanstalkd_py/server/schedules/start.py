"""Creates the scheduler of a server, when it has schedules or the progress of earlier ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from beanstalkd_py.errors import PutError
from beanstalkd_py.schedules.schedule import Schedule
from beanstalkd_py.server.accept.acceptor import Receiver
from beanstalkd_py.server.accept.routed_connections import Spawn
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.schedules.job_put import put_job
from beanstalkd_py.server.schedules.progress_writer import ProgressWriter
from beanstalkd_py.server.schedules.scheduler import Scheduler

if TYPE_CHECKING:
    from beanstalkd_py.server.parent.start import ServerSetup


def start_scheduler(
    setup: ServerSetup,
    shared: SharedMemory,
    receiver: Callable[[], Receiver | None],
    spawn: Spawn,
    saved: Callable[[], object],
) -> Scheduler:
    """Start the schedules of the options.

    `receiver` waits until the workers serve, and returns None when the server stops. `saved` is
    called when the progress has been saved.
    """

    def put(schedule: Schedule, key: str | None) -> int:
        if (receiving := receiver()) is None:
            raise PutError("the server is stopping")
        return put_job(receiving, schedule, key)

    scheduler = Scheduler(put, lambda: shared.draining, setup.schedule_progress, spawn)
    scheduler.change(setup.options.schedules)
    if setup.options.binlog_dir is not None:
        writer = ProgressWriter(setup.options.binlog_dir, scheduler.progress, saved)
        scheduler.keep_progress(writer)
    spawn(scheduler.run)
    return scheduler
