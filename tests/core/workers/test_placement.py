"""Placement is even, and adding workers moves as few tubes as possible."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.core.placement import shard_of

NAMES = [b"tube-%d" % i for i in range(20_000)]
names = st.from_regex(rb"[a-z0-9+/;.$_()][-a-z0-9+/;.$_()]{0,199}", fullmatch=True)
workers = st.integers(1, 255)

PLACED_AMONG_8 = [1, 0, 2, 1, 3]


@given(names, workers)
def test_a_shard_is_one_of_the_workers(name: bytes, count: int) -> None:
    assert 0 <= shard_of(name, count) < count


@given(names, st.integers(1, 254))
def test_a_tube_stays_or_moves_to_the_added_worker(name: bytes, count: int) -> None:
    before, after = shard_of(name, count), shard_of(name, count + 1)
    assert after in (before, count)


@pytest.mark.parametrize("count", [2, 3, 4, 8, 16])
def test_shards_have_the_same_number_of_tubes(count: int) -> None:
    sizes = Counter(shard_of(name, count) for name in NAMES)
    fair = len(NAMES) / count
    assert len(sizes) == count
    # Six standard deviations of a fair throw.
    assert all(abs(size - fair) < 6 * fair**0.5 for size in sizes.values())


@pytest.mark.parametrize("count", [2, 4])
def test_no_more_tubes_move_than_must(count: int) -> None:
    moved = sum(shard_of(name, count) != shard_of(name, count + 1) for name in NAMES)
    assert moved / len(NAMES) == pytest.approx(1 / (count + 1), rel=0.1)


def test_where_a_tube_is_never_changes() -> None:
    """Folders on disk depend on these results: a change would need a reshard."""
    placed = [shard_of(name, 8) for name in (b"default", b"mail", b"tube-1", b"tube-2", b"x" * 200)]
    assert placed == PLACED_AMONG_8


@given(names, names, workers)
def test_tubes_with_the_same_beginning_are_colocated(
    first: bytes, second: bytes, count: int
) -> None:
    shared = b"customer:"  # ':' is in no name the strategy makes, so this is the first
    one = shard_of(shared + first, count, b":")
    assert one == shard_of(shared + second, count, b":") == shard_of(b"customer", count)


@given(names, workers)
def test_a_name_without_the_separator_counts_whole(name: bytes, count: int) -> None:
    assert shard_of(name, count, b":") == shard_of(name, count)
    assert shard_of(b":" + name, count, b":") == shard_of(b":" + name, count)
