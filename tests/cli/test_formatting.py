"""Widths and accuracy of short numbers and times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.cli.formatting import short_number, short_rate, short_time

UNITS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}


@given(st.integers(0, 2**63), st.integers(4, 10))
def test_numbers_fit_and_are_right(value: int, width: int) -> None:
    text = short_number(value, width)
    assert len(text) <= width
    unit = UNITS.get(text[-1], 1)
    shown = float(text.rstrip("".join(UNITS))) * unit
    # Two digits are exact, three if there is space.
    assert abs(shown - value) <= (0.05 if width < 5 else 0.006) * value


@given(st.none() | st.floats(0, 1e15))
def test_rates_fit(value: float | None) -> None:
    assert len(short_rate(value, 6)) <= 6


@given(st.floats(0, 8e9))
def test_times_fit(seconds: float) -> None:
    assert len(short_time(seconds)) <= 6


def test_examples() -> None:
    assert [short_number(n, 6) for n in (0, 999_999, 1_234_567)] == ["0", "999999", "1.23M"]
    assert [short_rate(n, 6) for n in (None, 0, 0.25, 99.94, 100)] == [
        *("-", "0", "0.2", "99.9", "100"),
    ]
    times = (None, 0, 0.25, 9, 61, 7200, 90_000, 86_400 * 100)
    assert [short_time(seconds) for seconds in times] == [
        *("-", "0s", "0.2s", "9s", "1m01s", "2h00m", "1d01h", "100d"),
    ]
