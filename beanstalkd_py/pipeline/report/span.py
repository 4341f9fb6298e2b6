"""The span of time that a report shows, and the length of its windows.

Windows begin at multiples of their length since 1970 in UTC, as in tube_metrics. Times are
microseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from beanstalkd_py.errors import PipelineUsageError

MOST_WINDOWS = 1000
_CHOSEN = 120
_MS, _S = 1000, 1_000_000
_MINUTE, _HOUR, _DAY = 60 * _S, 3600 * _S, 86400 * _S
_LENGTHS = (
    *(_MS * n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(_S * n for n in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY << n for n in range(12)),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """Whole windows from the first to the last event.

    Events before `since` and from `until` on do not count, even inside a window.
    """

    begin: int
    end: int
    window: int
    since: int
    until: int

    @property
    def windows(self) -> int:
        return (self.end - self.begin) // self.window

    @property
    def window_s(self) -> float:
        return self.window / _S


def span_of(
    first: int,
    last: int,
    window: int | None = None,
    since: int | None = None,
    until: int | None = None,
) -> Span:
    """Return the windows from the first to the last event, about a hundred by default.

    `since` and `until` are the requested time. Raises PipelineUsageError for more than
    MOST_WINDOWS.
    """
    length = window or _chosen(last - first)
    begin = first - first % length
    end = last - last % length + length
    span = Span(
        begin,
        end,
        length,
        begin if since is None else max(begin, since),
        end if until is None else min(end, until),
    )
    if span.windows > MOST_WINDOWS:
        least = timedelta(microseconds=-(-(last - first) // (MOST_WINDOWS - 1)))
        raise PipelineUsageError(
            f"the window makes {span.windows} windows, more than {MOST_WINDOWS};"
            f" give one of {least.total_seconds():g} seconds or longer, or a shorter time"
        )
    return span


def _chosen(length: int) -> int:
    return next((each for each in _LENGTHS if length < each * _CHOSEN), _LENGTHS[-1])


def moment_of(time: int | None) -> datetime | None:
    return None if time is None else _EPOCH + timedelta(microseconds=time)
