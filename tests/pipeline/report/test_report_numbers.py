"""Formatted numbers and windows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.report import numbers
from beanstalkd_py.pipeline.report.page import write_report
from beanstalkd_py.pipeline.report.span import MOST_WINDOWS, moment_of, span_of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, numbers.NONE),
        (0, "0 s"),
        (0.00034, "340 µs"),
        (0.0125, "12.5 ms"),
        (0.9999, "1 s"),
        (3.2, "3.2 s"),
        (59.97, "1 min"),
        (250, "4 min 10 s"),
        (3599.7, "1 h"),
        (7500, "2 h 5 min"),
        (86399, "1 d"),
        (273600, "3 d 4 h"),
        (86400 * 4000, "4k d"),
        (-2, "-2 s"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert numbers.duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, numbers.NONE),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1.5 * 2**20, "1.5 MiB"),
        (240 * 2**20, "240 MiB"),
        (1023.9 * 2**20, "1 GiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_sizes(size: float | None, text: str) -> None:
    assert numbers.size(size) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0 %"),
        (1, 10**6, "< 0.1 %"),
        (1, 3, "33.3 %"),
        (999_999, 10**6, "> 99.9 %"),
        (10, 10, "100 %"),
        (1, 0, numbers.NONE),
    ],
)
def test_shares(part: int, whole: int, text: str) -> None:
    assert numbers.share(part, whole) == text


@pytest.mark.parametrize(
    ("number", "span_s", "text"),
    [
        (581, 10, "58.1/s on average"),
        (20_400, 10, "2.04k/s on average"),
        (300, 600, "30/min on average"),
        (36, 36_000, "3.6/h on average"),
        (36, 4000 * 36, "21.6/day on average"),
        (3, 1.5, "2/s on average"),
        (3, 0.5, "in 500 ms"),
        (1, 30, "in 30 s"),
        (2, 3000, "in 50 min"),
    ],
)
def test_mean_rates(number: int, span_s: float, text: str) -> None:
    """Only in a unit of time that is not longer than the whole time."""
    assert numbers.mean_rate(number, span_s) == text


def test_bounds() -> None:
    assert numbers.between(3, 3) == "3"
    assert numbers.between(12, 13) == "12\N{EN DASH}13"


@given(st.integers(0, 2**50), st.integers(0, 10**15))
def test_the_window_depends_on_the_time_shown(first: int, length: int) -> None:
    span = span_of(first, first + length)
    assert span.begin <= first < span.begin + span.window
    assert span.end - span.window <= first + length < span.end
    assert span.begin % span.window == 0
    assert span.windows <= 121
    if length > 120_000:
        assert span.windows >= 40


def test_too_short_windows_are_rejected_with_a_suggestion() -> None:
    with pytest.raises(PipelineUsageError, match=r"give one of 3\.6036 seconds or longer"):
        span_of(0, 3600_000_000, 1_000_000)
    assert span_of(0, 3600_000_000, 3_603_604).windows <= MOST_WINDOWS


def test_times_keep_their_microseconds() -> None:
    assert moment_of(1_795_348_800_000_001) == datetime(2026, 11, 22, 12, 0, 0, 1, tzinfo=UTC)
    assert moment_of(None) is None


def test_an_invalid_output_is_reported_before_reading(tmp_path: Path) -> None:
    for place, wrong in ((tmp_path / "none" / "a.html", "does not exist"), (tmp_path, "a folder")):
        with pytest.raises(PipelineUsageError, match=wrong):
            write_report(None, [], place)  # type: ignore[arg-type]
