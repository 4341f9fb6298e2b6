"""Puts the jobs of schedules at their ticks: one greenlet that waits, and one for each put.

Each put has a key of schedule and tick. So a put can be repeated, after an error, a lost connection
or a crash, and the server inserts one job only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from gevent.event import Event

from beanstalkd_py.errors import PutError
from beanstalkd_py.schedules.schedule import CATCH_UP_NONE, Schedule
from beanstalkd_py.schedules.ticks import tick_text
from beanstalkd_py.server.accept.routed_connections import Spawn
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.schedules.progress_file import Progress
from beanstalkd_py.server.schedules.schedule_state import ScheduleState, ScheduleStatus

MOST_WAIT_S = 1.0
"""The wall clock is read this often, because it may be set at any time."""

Put = Callable[[Schedule, str | None], int]
"""Puts a job, with a key if there is one; returns its id. Raises PutError."""


class ProgressStore(Protocol):
    """Keeps the progress of the schedules over restarts."""

    def wake(self) -> None:
        """Write the progress if it has changed."""

    def close(self) -> None:
        """Write the progress a last time."""


class Scheduler:
    """The schedules of one server.

    `draining` is whether puts are refused, `progress` that of earlier starts. `spawn` starts a
    greenlet.
    """

    def __init__(
        self,
        put: Put,
        draining: Callable[[], bool],
        progress: Mapping[str, Progress],
        spawn: Spawn,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._put = put
        self._draining = draining
        self._earlier = dict(progress)
        self._spawn = spawn
        self._clock = clock
        self._states: dict[str, ScheduleState] = {}
        self._changed = Event()
        self._store: ProgressStore | None = None
        self._stopping = False

    def keep_progress(self, store: ProgressStore) -> None:
        self._store = store
        store.wake()

    def progress(self) -> dict[str, Progress]:
        return {name: state.progress for name, state in self._states.items()}

    def statuses(self) -> list[ScheduleStatus]:
        return [state.status() for state in self._states.values()]

    def failing(self) -> list[str]:
        return [name for name, state in self._states.items() if state.error]

    def change(self, schedules: Iterable[Schedule]) -> None:
        """Replace the schedules; those with a known name continue. Others lose their progress."""
        now = int(self._clock())
        known, self._states = self._states, {}
        for schedule in schedules:
            state = known.get(schedule.name)
            if state is None:
                state = ScheduleState(schedule, self._earlier.get(schedule.name), now)
            elif state.schedule != schedule:
                state.change(schedule, now)
            self._states[schedule.name] = state
        self._earlier.clear()
        self._save()
        self._changed.set()

    def put_now(self, name: str) -> int:
        """Put the job of a schedule besides its ticks; return its id. Raises PutError."""
        state = self._states[name]
        job_id = self._put(state.schedule, None)
        state.put_succeeded()
        return job_id

    def run(self) -> None:
        """Put jobs until `stop`."""
        while not self._stopping:
            self.start_due()
            self._changed.wait(self._wait_s())
            self._changed.clear()

    def stop(self) -> None:
        """Start no further put. The next start repeats those that the end of the workers breaks."""
        self._stopping = True
        self._changed.set()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def start_due(self) -> None:
        """Start the put of each schedule that has a due tick."""
        now, now_mono = self._clock(), time.monotonic()
        draining = self._draining()
        moved = False
        for state in self._states.values():
            if state.clock_set(int(now)):
                moved = True
                LOGGER.warning(
                    "schedule %s: the clock was set back; ticks run from now on",
                    state.schedule.name,
                )
            if draining:
                if state.schedule.catch_up == CATCH_UP_NONE and not state.under_way:
                    moved |= state.skip(int(now))
            elif (tick := state.due(now, now_mono)) is not None:
                state.under_way = True
                self._spawn(partial(self._put_tick, state, tick))
        if moved:
            self._save()

    def _wait_s(self) -> float:
        now, now_mono = self._clock(), time.monotonic()
        if self._draining():
            return MOST_WAIT_S
        return min([MOST_WAIT_S, *(state.wait_s(now, now_mono) for state in self._states.values())])

    def _put_tick(self, state: ScheduleState, tick: int) -> None:
        schedule = state.schedule
        try:
            job_id = self._put(schedule, tick_key(schedule.name, tick))
        except PutError as error:
            if state.failed(str(error), time.monotonic()) and not self._stopping:
                LOGGER.error(
                    "schedule %s: cannot put the job of %s into tube %s: %s; retrying",
                    *(schedule.name, tick_text(tick), schedule.tube, error),
                )
        else:
            if state.error:
                LOGGER.info("schedule %s: puts succeed again", schedule.name)
            LOGGER.debug("schedule %s: job %d for %s", schedule.name, job_id, tick_text(tick))
            state.completed(tick)
            self._save()
        finally:
            state.under_way = False
            self._changed.set()

    def _save(self) -> None:
        if self._store is not None:
            self._store.wake()


def tick_key(name: str, tick: int) -> str:
    """Return the key of the job of a tick: at most 95 bytes without spaces."""
    return f"schedule:{name}:{tick_text(tick)}"
