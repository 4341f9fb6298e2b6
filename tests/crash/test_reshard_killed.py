"""Kill resharding, or let it fail, at every step: each job is there once afterwards."""

from __future__ import annotations

import errno
import itertools
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog.generations import (
    Contents,
    bring_to,
    check_settled,
    divided_as,
    fails_at,
    fill,
    killed_at,
    settled,
)
from binlog.reader import files, read_file

from beanstalkd_py.binlog import reshard
from beanstalkd_py.binlog.layout import WHOLE, Layout

pytestmark = pytest.mark.slow

MEMORY = Path("/dev/shm")
CHANGES = [
    (WHOLE, Layout(3)),
    (Layout(3), Layout(2, b"-")),
    (Layout(2), Layout(4)),
    (Layout(3), WHOLE),
]
change = pytest.mark.parametrize(("old", "new"), CHANGES, ids=lambda layout: str(layout))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reshard, "PIECE_BYTES", 2000)


@pytest.fixture
def folder() -> Iterator[Path]:
    parent = MEMORY if MEMORY.is_dir() else None
    path = Path(tempfile.mkdtemp(prefix="reshard-test-", dir=parent))
    yield path / "jobs"
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def original(folder: Path) -> Path:
    """A folder with jobs; each attempt copies it."""
    path = folder.with_name("original")
    path.mkdir()
    fill(path, steps=60)
    corrupt_one_entry(path)
    return path


def corrupt_one_entry(path: Path) -> None:
    """Add a file with an unreadable entry, whose job is lost before any resharding."""
    first = files(path)[0]
    entry = read_file(first)[2]
    data = bytearray(first.read_bytes())
    data[entry.offset + 30] ^= 1
    first.write_bytes(data)


def fresh(original: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder, symlinks=True)
    return folder


def prepare(original: Path, old: Layout) -> Contents:
    """Read the folder once, so that damage is reported and set aside, then return its jobs."""
    bring_to(original, Layout(5))
    if old != Layout(5):
        bring_to(original, old)
    return settled(original)


@change
def test_killed_at_every_step(folder: Path, original: Path, old: Layout, new: Layout) -> None:
    before = prepare(original, old)
    for nth in itertools.count(1):
        if not killed_at(fresh(original, folder), new, nth):
            break
        check_settled(folder, before, new)
    assert nth > 20, "too few steps"
    assert divided_as(folder, new) == before


@change
@pytest.mark.slow
def test_killed_again_during_recovery_from_the_first_kill(
    folder: Path, original: Path, old: Layout, new: Layout
) -> None:
    before = prepare(original, old)
    dice = random.Random(str((old, new)))
    for _ in range(40):
        fresh(original, folder)
        for _ in range(dice.randrange(2, 5)):
            killed_at(folder, dice.choice([new, old, Layout(2)]), dice.randrange(1, 50))
        check_settled(folder, before, new)


@change
def test_every_step_fails_once(folder: Path, original: Path, old: Layout, new: Layout) -> None:
    before = prepare(original, old)
    for nth in itertools.count(1):
        if not fails_at(fresh(original, folder), new, nth, errno.EIO):
            break
        check_settled(folder, before, new)
    assert nth > 20


def test_a_damaged_file_is_there_after_every_kill(folder: Path, original: Path) -> None:
    """Find the file under its own name or set aside, byte for byte."""
    damaged = files(original)[0].read_bytes()
    for nth in itertools.count(1):
        killed = killed_at(fresh(original, folder), Layout(3), nth)
        kept = [path for path in folder.glob("binlog.*") if path.read_bytes() == damaged]
        assert kept
        bring_to(folder, Layout(3))
        assert any(".bad" in path.name for path in kept) or list(folder.glob("*.bad"))
        if not killed:
            break
