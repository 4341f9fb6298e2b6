"""Limit the done files that wait for a slow archiver; remove the oldest first."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.archiver.shipped_files import record_shipped
from beanstalkd_py.binlog.done_files import list_done_files
from beanstalkd_py.server.archiver.backlog_limit import RELEASE_CHECKS, BacklogLimit

BLOCK = 4096
NO_SPACE = 1 << 62
"""File size in bytes that no disk has space for."""


def fill(folder: Path, numbers: range, blocks: int = 1) -> None:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        (folder / f"binlog.{number}.done").write_bytes(b"x" * BLOCK * blocks)


def numbers(folder: Path) -> list[int]:
    return [each.number for each in list_done_files(folder)]


def test_the_oldest_files_are_removed_until_the_limit_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    fill(folders[0], range(1, 11))
    fill(folders[1], range(1, 4))
    (folders[0] / "binlog.11").write_bytes(b"x" * BLOCK)
    (folders[0] / "binlog.1.bad").write_bytes(b"x" * BLOCK)
    limit = BacklogLimit(folders, 6 * BLOCK, BLOCK, lambda index: False)
    limit.enforce()
    assert limit.waiting_bytes == 6 * BLOCK
    assert limit.lost_files == 7 and limit.lost_bytes == 7 * BLOCK
    assert numbers(folders[0]) == [8, 9, 10] and numbers(folders[1]) == [1, 2, 3]
    assert "7 binlog files" in caplog.text and "binlog.7.done" in caplog.text
    assert {path.name for path in folders[0].iterdir()} >= {"binlog.11", "binlog.1.bad"}
    caplog.clear()
    limit.enforce()
    assert not caplog.text and limit.lost_files == 7


def test_a_binlog_without_space_gets_space_from_done_files(tmp_path: Path) -> None:
    fill(tmp_path, range(1, 5))
    refusing = {0: True}
    limit = BacklogLimit([tmp_path], 1 << 30, NO_SPACE, lambda index: refusing[index])
    limit.enforce()
    limit.enforce()
    assert numbers(tmp_path) == [3, 4]
    refusing[0] = False
    limit.enforce()
    assert numbers(tmp_path) == [3, 4] and limit.lost_files == 2


@pytest.mark.parametrize("file_bytes", [BLOCK, NO_SPACE])
def test_files_first_stop_waiting_for_shipping(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file_bytes: int
) -> None:
    folders = [tmp_path / "shard-000", tmp_path / "shard-001"]
    for folder in folders:
        fill(folder, range(1, 6))
    record_shipped(tmp_path, {})
    most = (1 << 30) if file_bytes == NO_SPACE else 4 * BLOCK
    limit = BacklogLimit(folders, most, file_bytes, lambda index: index == 0)
    for _ in range(RELEASE_CHECKS):
        limit.enforce()
        assert numbers(folders[0]) == numbers(folders[1]) == [1, 2, 3, 4, 5]
    assert not (tmp_path / "shipped").exists() and limit.waiting_bytes == 10 * BLOCK
    assert caplog.text.count("no longer keeping binlog files") == 1
    limit.enforce()
    assert limit.lost_files == (1 if file_bytes == NO_SPACE else 6)


def test_no_files_are_removed_once_the_disk_has_space_again(tmp_path: Path) -> None:
    """An idle worker reports for a while that it has no space."""
    fill(tmp_path, range(1, 5))
    limit = BacklogLimit([tmp_path], 1 << 30, BLOCK, lambda index: True)
    limit.enforce()
    assert numbers(tmp_path) == [1, 2, 3, 4]


def test_a_binlog_without_space_gets_space_from_other_shards_on_its_disk(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    fill(folders[0], range(0))
    fill(folders[1], range(1, 4))
    limit = BacklogLimit(folders, 1 << 30, NO_SPACE, lambda index: index == 0)
    limit.enforce()
    assert numbers(folders[1]) == [2, 3]


@given(
    st.lists(st.lists(st.integers(1, 4), max_size=6), min_size=1, max_size=4), st.integers(0, 40)
)
def test_the_limit_holds_and_the_newest_files_stay(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[list[int]], most: int
) -> None:
    top = tmp_path_factory.mktemp("limit")
    folders = [top / str(index) for index in range(len(sizes))]
    for folder, blocks in zip(folders, sizes, strict=True):
        folder.mkdir()
        for number, size in enumerate(blocks, 1):
            fill(folder, range(number, number + 1), size)
    limit = BacklogLimit(folders, most * BLOCK, BLOCK, lambda index: False)
    limit.enforce()
    left = 0
    for folder, blocks in zip(folders, sizes, strict=True):
        kept = numbers(folder)
        assert kept == list(range(len(blocks) - len(kept) + 1, len(blocks) + 1))
        left += sum(blocks[number - 1] for number in kept)
    total = sum(map(sum, sizes))
    assert left <= most or not left
    assert left == total if total <= most else left > most - 4
    assert limit.waiting_bytes == left * BLOCK
