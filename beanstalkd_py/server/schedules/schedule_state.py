"""The progress of one schedule: which tick is due, and what was put. No I/O; times are arguments.

A tick is completed when its job is on disk. All ticks up to `last` are completed, or are not to be
caught up. Invariants:

S1  `last` rises, except when the wall clock was set back by more than MAX_STEP_BACK_S. A smaller
    step back waits until the clock reaches `last` again, as Debian's cron does.
S2  `highest` is the highest `last` ever. When the clock reaches it, all ticks up to it are
    completed, so a clock that was wrong for a while repeats no tick.
S3  At most one put of a schedule is under way.
"""

from __future__ import annotations

from dataclasses import dataclass

from beanstalkd_py.schedules.schedule import CATCH_UP_ALL, CATCH_UP_NONE, Schedule
from beanstalkd_py.schedules.ticks import Ticks
from beanstalkd_py.server.schedules.progress_file import Progress

MAX_STEP_BACK_S = 3 * 3600
FIRST_RETRY_S = 0.1
MAX_RETRY_S = 10.0


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """The progress since the server started. Times are epochs; 0 and "" mean none."""

    schedule: Schedule
    last_put: int
    """The last tick whose job was put, also before this start."""
    next_tick: int
    puts: int
    errors: int
    """Failed attempts to put a job."""
    error: str
    """The failure of the last attempt, until one succeeds."""


class ScheduleState:
    """The progress of one schedule from `progress` on, or from `now` on without it."""

    def __init__(self, schedule: Schedule, progress: Progress | None, now: int) -> None:
        self.schedule = schedule
        self.error = ""
        self.under_way = False
        self._ticks = Ticks(schedule.cron, schedule.timezone)
        known = progress is not None and (progress.cron, progress.timezone) == self._source
        self._last = progress.last if known and progress is not None else now
        self._highest = progress.highest if known and progress is not None else now
        self._next = self._ticks.after(self._last)
        self._last_put = progress.last_put if progress is not None else 0
        self._puts = 0
        self._errors = 0
        self._retry_s = FIRST_RETRY_S
        self._retry_mono = 0.0
        if schedule.catch_up == CATCH_UP_NONE:
            self.skip(now)

    @property
    def _source(self) -> tuple[str, str]:
        return self.schedule.cron, self.schedule.timezone

    @property
    def progress(self) -> Progress:
        return Progress(*self._source, self._last, self._highest, self._last_put)

    def status(self) -> ScheduleStatus:
        return ScheduleStatus(
            self.schedule, self._last_put, self._next or 0, self._puts, self._errors, self.error
        )

    def change(self, schedule: Schedule, now: int) -> None:
        """Continue with other settings. Other ticks start now."""
        source = self._source
        self.schedule = schedule
        if self._source != source:
            self._ticks = Ticks(schedule.cron, schedule.timezone)
            self._last = self._highest = now
            self._next = self._ticks.after(now)

    def due(self, now: float, now_mono: float) -> int | None:
        """Return the tick whose job is to be put now, or None."""
        if self.under_way or now_mono < self._retry_mono or self._next is None or self._next > now:
            return None
        if self.schedule.catch_up == CATCH_UP_ALL:
            return self._next
        return self._ticks.latest(self._last, int(now))

    def wait_s(self, now: float, now_mono: float) -> float:
        """Return the time until `due` can return a tick, if the wall clock is not set."""
        if self.under_way or self._next is None:
            return float("inf")
        return max(self._next - now, self._retry_mono - now_mono, 0.0)

    def clock_set(self, now: int) -> bool:
        """Follow the wall clock if it was set; return whether ticks are put again from now on."""
        if now < self._last - MAX_STEP_BACK_S:
            self._move_to(now)
            return True
        if self._last < self._highest <= now:
            self._move_to(self._highest)
        return False

    def skip(self, now: int) -> bool:
        """Regard the ticks up to now as completed; return whether there was one."""
        if self._next is None or self._next > now:
            return False
        self._move_to(max(self._last, now))
        return True

    def completed(self, tick: int) -> None:
        """Record that the job of this tick is on disk, and that earlier ticks need none."""
        self.put_succeeded()
        self._last_put = tick
        self._retry_mono = 0.0
        self._retry_s = FIRST_RETRY_S
        self.error = ""
        if tick > self._last:
            self._move_to(tick)

    def put_succeeded(self) -> None:
        self._puts += 1

    def failed(self, error: str, now_mono: float) -> bool:
        """Retry later; return whether this is the first failure since the last success."""
        is_first = not self.error
        self.error = error
        self._errors += 1
        self._retry_mono = now_mono + self._retry_s
        self._retry_s = min(2 * self._retry_s, MAX_RETRY_S)
        return is_first

    def _move_to(self, last: int) -> None:
        self._last = last
        self._highest = max(self._highest, last)
        self._next = self._ticks.after(last)
