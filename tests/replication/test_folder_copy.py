"""The copy of a stream in a folder, whose removed files an archiver still reads."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.replication.folder_copy import CopyState, FolderCopy, bytes_between
from beanstalkd_py.replication.piece import Piece


class Stream:
    """Makes the messages of a stream. `first` is the oldest file of the primary."""

    def __init__(self) -> None:
        self.messages: list[Piece] = []
        self.first = 1

    def add(self, file: int, data: bytes, offset: int = 0) -> None:
        self.messages.append(Piece(1, self.first, file, offset, data))

    def apply_to(self, copy: FolderCopy, begin: int = 0) -> None:
        """Apply the messages behind those that the copy has, or from `begin` on after a purge."""
        for sequence, piece in enumerate(self.messages, 1):
            if sequence > max(copy.state.sequence, begin):
                copy.apply(piece, sequence)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("binlog.*")}


@pytest.fixture
def stream() -> Stream:
    made = Stream()
    for number in range(1, 4):
        made.add(number, b"%d" % number)
    return made


@pytest.mark.parametrize("keeps_done", [False, True])
def test_files_that_the_primary_has_removed(
    stream: Stream, tmp_path: Path, keeps_done: bool
) -> None:
    copy = FolderCopy(tmp_path, CopyState(), keeps_done)
    stream.first = 3
    stream.add(4, b"4")
    stream.apply_to(copy)
    done = {"binlog.1.done": b"1", "binlog.2.done": b"2"} if keeps_done else {}
    assert contents(tmp_path) == {**done, "binlog.3": b"3", "binlog.4": b"4"}


def test_later_files_are_synced_before_one_is_removed(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut the jobs of a removed file are in the later ones that have them."""
    copy = FolderCopy(tmp_path, CopyState())
    synced: dict[str, bytes] = {}
    sync, remove = copy.sync, copy._remove

    def synced_now() -> CopyState:
        synced.update(contents(tmp_path))
        return sync()

    def removed(path: Path) -> None:
        assert {name: data for name, data in contents(tmp_path).items() if name != path.name} == {
            name: data for name, data in synced.items() if name != path.name
        }
        del synced[path.name]
        remove(path)

    monkeypatch.setattr(copy, "sync", synced_now)
    monkeypatch.setattr(copy, "_remove", removed)
    stream.first = 3
    stream.add(4, b"4")
    stream.apply_to(copy)
    assert list(contents(tmp_path)) and "binlog.1" not in contents(tmp_path)


def test_a_removal_is_synced_without_bytes(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = FolderCopy(tmp_path, CopyState(), keeps_done=True)
    stream.apply_to(copy)
    copy.sync()
    stream.first = 3
    stream.messages.append(Piece(2, 3, 3, 1))
    stream.apply_to(copy)
    assert "binlog.2.done" in contents(tmp_path)
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
    )
    copy.sync()
    assert tmp_path in synced


@pytest.mark.parametrize("begins_again", [False, True])
def test_bytes_that_never_reached_the_stream_are_not_archived(
    stream: Stream, tmp_path: Path, begins_again: bool
) -> None:
    """A former primary has written them, and missed a purge of what the next one has written."""
    before = FolderCopy(tmp_path, CopyState(), keeps_done=True)
    stream.apply_to(before)
    (tmp_path / "binlog.3").write_bytes(b"3 and more")
    (tmp_path / "binlog.4").write_bytes(b"never stored")
    (tmp_path / "binlog.5").write_bytes(b"never stored")
    copy = FolderCopy(tmp_path, before.state, keeps_done=True)
    if begins_again:
        copy.begin_again()
    for number in (4, 5, 6):
        stream.add(number, b"new %d" % number)
    stream.first = 5
    stream.add(7, b"new 7")
    stream.apply_to(copy, begin=5)
    kept = {"binlog.1.done": b"1", "binlog.2.done": b"2", "binlog.3.done": b"3"}
    assert contents(tmp_path) == {**kept, "binlog.6": b"new 6", "binlog.7": b"new 7"}


def test_a_file_that_the_stream_skips_is_not_archived(stream: Stream, tmp_path: Path) -> None:
    copy = FolderCopy(tmp_path, CopyState(), keeps_done=True)
    stream.apply_to(copy)
    (tmp_path / "binlog.4").write_bytes(b"never stored")
    stream.first = 5
    stream.add(5, b"5")
    stream.apply_to(copy)
    assert "binlog.4.done" not in contents(tmp_path)
    assert contents(tmp_path)["binlog.3.done"] == b"3"


def test_a_short_file_is_not_filled_with_zeros(stream: Stream, tmp_path: Path) -> None:
    copy = FolderCopy(tmp_path, CopyState(), keeps_done=True)
    stream.add(3, b" long", offset=1)
    stream.apply_to(copy)
    (tmp_path / "binlog.3").write_bytes(b"3")
    copy.begin_again()
    stream.first = 6
    stream.add(6, b"6")
    stream.apply_to(copy, begin=4)
    assert contents(tmp_path)["binlog.3.done"] == b"3"


def test_a_cut_keeps_files_that_the_primary_has_removed(stream: Stream, tmp_path: Path) -> None:
    """A power cut may have undone the renames."""
    copy = FolderCopy(tmp_path, CopyState(), keeps_done=True)
    stream.first = 3
    stream.add(4, b"4")
    stream.apply_to(copy)
    (tmp_path / "binlog.2.done").rename(tmp_path / "binlog.2")
    (tmp_path / "binlog.4").write_bytes(b"4 and more")
    (tmp_path / "binlog.5").write_bytes(b"never stored")
    FolderCopy(tmp_path, copy.state, keeps_done=True).cut()
    assert contents(tmp_path) == {
        "binlog.1.done": b"1",
        "binlog.2.done": b"2",
        "binlog.3": b"3",
        "binlog.4": b"4",
    }


def test_a_message_costs_the_same_with_many_files() -> None:
    """A queue of 100 GB has 10,000 files, and its standby has to keep up."""

    def cost_s(files: int) -> float:
        state = CopyState()
        for number in range(1, files + 1):
            state.add(Piece(1, 1, number, 0, b"x"), number)
        begun = time.perf_counter()
        for number in range(1000):
            state.add(Piece(1, 0, files, 1 + number, b"x"), files + 1 + number)
        return time.perf_counter() - begun

    assert min(cost_s(10_000) for _ in range(3)) < 5 * min(cost_s(2) for _ in range(3))


@pytest.mark.parametrize(
    ("begin", "end", "count"),
    [
        ((2, 10), (2, 70), 60),
        ((2, 70), (2, 10), 0),
        ((0, 0), (2, 70), 100 + 70),
        ((1, 10), (4, 70), 90 + 200 + 70),
        ((3, 10), (4, 70), 70),
        ((4, 10), (2, 70), 0),
    ],
)
def test_bytes_between_positions(
    tmp_path: Path, begin: tuple[int, int], end: tuple[int, int], count: int
) -> None:
    for number, size in ((1, 100), (2, 200), (4, 400)):
        (tmp_path / f"binlog.{number}").write_bytes(bytes(size))
    assert bytes_between(tmp_path, BinlogPosition(*begin), BinlogPosition(*end)) == count
