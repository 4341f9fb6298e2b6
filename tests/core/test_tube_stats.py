"""Tube statistics in batches: the age of the next job, and every tube once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from core.rig import MILLISECOND, SECOND, Rig
from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.control.tube_stats import Row, rows

SMALLEST = 1
"""Return the batches of one tube each: no batch has space for a second."""


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as rig:
        yield rig


def pieces(rig: Rig, most_bytes: int) -> Iterator[list[Row]]:
    first: int | None = 0
    while first is not None:
        packed, first = rig.core.tube_stats(first, most_bytes, rig.now)
        yield rows(packed)


def row(rig: Rig, name: str) -> Row:
    (found,) = [one for piece in pieces(rig, 1 << 16) for one in piece if one["name"] == name]
    return found


def age(rig: Rig) -> float | None:
    found: float | None = row(rig, "default")["oldest-ready-age-s"]
    return found


def test_no_job_has_no_age(rig: Rig) -> None:
    client = rig.client()
    client.put(delay=5)
    assert age(rig) is None


def test_the_age_is_that_of_the_job_reserved_next(rig: Rig) -> None:
    client = rig.client()
    client.put(pri=7)
    rig.advance(3 * SECOND)
    client.put(pri=5)
    rig.advance(250 * MILLISECOND)
    assert age(rig) == 0.25
    client.reserve()
    assert age(rig) == 3.25


def test_a_release_does_not_reset_the_age(rig: Rig) -> None:
    client = rig.client()
    job = client.put()
    rig.advance(2 * SECOND)
    client.reserve()
    client.do(b"release %d 0 0" % job, b"RELEASED")
    rig.advance(SECOND)
    assert age(rig) == 3


def test_a_delay_is_no_waiting(rig: Rig) -> None:
    client = rig.client()
    client.put(delay=60)
    rig.advance(61 * SECOND)
    assert age(rig) == 1


def test_the_age_of_a_kicked_delayed_job_starts_with_the_kick(rig: Rig) -> None:
    client = rig.client()
    client.put(delay=60)
    rig.advance(10 * SECOND)
    client.do(b"kick 1", b"KICKED 1")
    rig.advance(4 * SECOND)
    assert age(rig) == 4


def test_a_clock_that_is_set_back(rig: Rig) -> None:
    client = rig.client()
    client.put()
    rig.advance(SECOND, wall_step=-100 * SECOND)
    assert age(rig) == 0


def test_pauses_are_seconds(rig: Rig) -> None:
    client = rig.client()
    client.do(b"pause-tube default 90", b"PAUSED")
    rig.advance(500 * MILLISECOND)
    assert (row(rig, "default")["pause"], row(rig, "default")["pause-time-left"]) == (90, 89.5)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 15)), max_size=60))
def test_a_lasting_tube_is_listed_once_while_others_change(
    steps: list[tuple[bool, int]],
) -> None:
    """Between two batches a step creates a tube, or ends it."""
    with Rig() as rig:
        clients = {number: rig.client() for number in range(16)}
        lasting = rig.client()
        for number in range(5):
            lasting.do(b"watch lasting-%d" % number, b"WATCHING %d" % (number + 2))
        todo = iter(steps)
        seen: list[str] = []
        for piece in pieces(rig, SMALLEST):
            assert len(piece) <= 1
            seen += [one["name"] for one in piece]
            for makes, number in [step for step in [next(todo, None)] if step]:
                name = f"passing-{number}" if makes else "default"
                clients[number].do(b"use " + name.encode(), b"USING " + name.encode())
        assert sorted(name for name in seen if not name.startswith("passing")) == [
            "default",
            *(f"lasting-{number}" for number in range(5)),
        ]
