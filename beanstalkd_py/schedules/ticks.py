"""The ticks of a schedule: the times of its cron expression in its time zone.

Times are seconds since the epoch. cronsim follows Debian's cron, also when clocks change for
daylight saving time: expressions with fixed minutes and hours run once for a skipped or repeated
hour; all others follow the wall clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

WALL_EPOCH = datetime(1970, 1, 1)
SEARCH_STEP_S = 7 * 86400
"""Less than the time between any two changes of a zone's offset."""
MOST_STEPS = 64
"""The number of ticks that `latest` visits before it bisects."""


class Ticks:
    """The ticks of one cron expression. Raises ValueError for an invalid expression or zone."""

    def __init__(self, cron: str, timezone: str) -> None:
        self._cron = cron
        self._zone = find_zone(timezone)
        try:
            simulation = CronSim(cron, datetime.fromtimestamp(0, self._zone))
        except (CronSimError, ValueError) as error:  # ValueError: a number of 5,000 digits
            raise ValueError(
                f"invalid cron expression {cron[:100]!r}: {_reason(error)}; use five fields as in"
                ' "30 2 * * MON-FRI": minute, hour, day of the month, month, day of the week'
            ) from error
        self._is_fixed = simulation.fixup_tz is not None

    def after(self, moment: int) -> int | None:
        """Return the first tick after a moment; None if there is none within 50 years."""
        return self._fixed_after(moment) if self._is_fixed else self._wall_after(moment)

    def latest(self, after: int, until: int) -> int | None:
        """Return the last tick in (after, until], or None."""
        tick = None
        for _ in range(MOST_STEPS):
            following = self.after(after if tick is None else tick)
            if following is None or following > until:
                return tick
            tick = following
        assert tick is not None
        return self._bisected(tick, until)

    def _bisected(self, low: int, until: int) -> int:
        """Return the last tick in [low, until]; `low` is a tick."""
        high = until
        while low < high:
            middle = (low + high) // 2
            following = self.after(middle)
            if following is None or following > until:
                high = middle
            else:
                low = following
        return low

    def _fixed_after(self, moment: int) -> int | None:
        for tick in CronSim(self._cron, datetime.fromtimestamp(moment, self._zone)):
            # In the second pass of a repeated hour, cronsim returns ticks of the first one.
            if (at := int(tick.timestamp())) > moment:
                return at
        return None

    def _wall_after(self, moment: int) -> int | None:
        """Match the wall clock from one change of the zone's offset to the next.

        cronsim on a datetime with a zone loses ticks if the offset changes by half an hour.
        """
        first, start, wall = moment + 1, 0, None
        while True:
            offset = self._offset(first)
            if wall is None or not start <= first + offset <= wall:
                start = first + offset
                wall = self._match(start)
                if wall is None:
                    return None
            change = self._next_change(first, wall - offset)
            if change is None:
                return wall - offset
            first = change

    def _match(self, wall: int) -> int | None:
        """Return the first match at or after a time of the wall clock, as if there were no zone."""
        start = WALL_EPOCH + timedelta(seconds=wall - 1)
        matched = next(CronSim(self._cron, start), None)
        return None if matched is None else int((matched - WALL_EPOCH).total_seconds())

    def _offset(self, moment: int) -> int:
        offset = datetime.fromtimestamp(moment, self._zone).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())

    def _next_change(self, low: int, end: int) -> int | None:
        """Return the first moment in (low, end] with another offset than `low`, or None."""
        offset = self._offset(low)
        high = min(low + SEARCH_STEP_S, end)
        while self._offset(high) == offset:
            if high == end:
                return None
            low, high = high, min(high + SEARCH_STEP_S, end)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(middle) == offset:
                low = middle
            else:
                high = middle
        return high


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone of the system or of the package tzdata. Raises ValueError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        text = f"unknown time zone {name[:100]!r}; use an IANA name such as Europe/Berlin or UTC"
        raise ValueError(text) from error


def tick_text(tick: int) -> str:
    """Return a tick as in keys and files: 2026-11-25T02:00:00Z."""
    return datetime.fromtimestamp(tick, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _reason(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].lower()}{text[1:]}"
