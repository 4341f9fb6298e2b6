"""repair and compact are killed, or one of their system calls fails, at every step.

After an interrupted compact the folder has the same jobs as before, both for a start and for C
beanstalkd. After an interrupted repair the damaged folder is unchanged, and the new folder is
either complete or missing.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from binlog.damaged_folders import make, snapshot, start
from binlog.generations import KILLED, Countdown, bring_to, contents
from binlog.reader import files
from core import fault_injection
from core.fault_injection import Call
from servers import reference

from beanstalkd_py import errors
from beanstalkd_py.binlog import rewrite
from beanstalkd_py.binlog.compact import compact
from beanstalkd_py.binlog.folders import inspect_folder, locked_folder
from beanstalkd_py.binlog.layout import POLICIES, SCHEDULES, Layout
from beanstalkd_py.binlog.repair import Repaired, repair
from beanstalkd_py.binlog.steps import Steps
from beanstalkd_py.binlog.verify import verify

pytestmark = pytest.mark.slow

FILE = 4096
CALLS = (Call.OPEN, Call.READ, Call.WRITE, Call.DATASYNC)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "PIECE_BYTES", 2000)


@pytest.fixture
def original(folder: Path) -> Path:
    path = folder / "original"
    make("mixed", path)
    return path


def fresh(original: Path) -> Path:
    copy = original.with_name("copy")
    for path in original.parent.iterdir():
        if path != original:
            shutil.rmtree(path)
    shutil.copytree(original, copy, symlinks=True)
    return copy


def corrupt_one_entry(folder: Path) -> None:
    path = files(folder)[0]
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)


def compact_folder(folder: Path, steps: Steps | None = None) -> None:
    with locked_folder(folder, writing=True) as found:
        compact(found, FILE, steps)


def repair_folder(folder: Path, steps: Steps | None = None) -> Repaired:
    with locked_folder(folder, writing=False) as found:
        return repair(found, folder.with_name("new"), FILE, steps)


def in_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count_steps(work: Callable[[Steps], object]) -> int:
    countdown = Countdown(-1)
    work(Steps(countdown))
    return len(countdown.steps)


def test_compact_killed_at_every_step(original: Path) -> None:
    scratch = original.with_name("scratch")
    before, stored = start(original, scratch), contents([original])
    total = count_steps(lambda steps: compact_folder(fresh(original), steps))
    assert total > 20
    for nth in range(1, total + 1):
        folder = fresh(original)
        status = in_child(lambda f=folder, n=nth: compact_folder(f, Steps(Countdown(n))))
        assert status == KILLED
        after = start(folder, scratch)
        assert (after.jobs, after.buried, after.last_id) == (
            before.jobs,
            before.buried,
            before.last_id,
        )
        assert contents([folder]).keys() == stored.keys()
        compact_folder(folder)
        assert verify(inspect_folder(folder), print).clean
        assert start(folder, scratch).jobs == before.jobs
        assert not list(folder.glob("*.new"))


@pytest.mark.parametrize("nth", [3, 8, 14])
def test_c_beanstalkd_starts_after_a_killed_compact(original: Path, nth: int) -> None:
    """Old and new files are in the folder at the same time."""
    due = start(original, original.with_name("scratch"))
    folder = fresh(original)
    assert in_child(lambda: compact_folder(folder, Steps(Countdown(nth)))) == KILLED
    with reference("-b", folder) as server, server.connect() as client:
        for number, (body, _) in due.jobs.items():
            assert client.ask(b"peek %d\r\n" % number).endswith(b"\r\n%b\r\n" % body)
        stats = client.stats()
        counts = (stats[f"current-jobs-{state}"] for state in ("ready", "delayed", "buried"))
        assert sum(map(int, counts)) == len(due.jobs)


def test_repair_killed_at_every_step(original: Path) -> None:
    corrupt_one_entry(original)
    (original / POLICIES).write_text("[]\n")
    (original / SCHEDULES).write_text("{}\n")
    scratch = original.with_name("scratch")
    before = start(original, scratch)
    assert before.warnings
    total = count_steps(lambda steps: repair_folder(fresh(original), steps))
    for nth in range(1, total + 1):
        folder = fresh(original)
        unchanged = snapshot(folder)
        assert in_child(lambda f=folder, n=nth: repair_folder(f, Steps(Countdown(n)))) == KILLED
        assert snapshot(folder) == unchanged
        output = folder.with_name("new")
        if not output.exists():
            assert repair_folder(folder).output == output
        assert (output / POLICIES).read_text() == "[]\n"
        assert (output / SCHEDULES).read_text() == "{}\n"
        assert start(output, scratch).jobs == before.jobs
        assert verify(inspect_folder(output), print).clean
        assert {path.name for path in folder.parent.iterdir()} == {"original", "copy", "new"}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_every_call_fails_once(original: Path, error: int) -> None:
    """No data is lost, no file is left over, and the message has the system's error."""
    scratch = original.with_name("scratch")
    before = start(original, scratch)
    failures = 0
    for call in (Call.WRITE, Call.DATASYNC):
        for nth in range(1, 100):
            folder = fresh(original)
            unchanged = snapshot(folder)
            fault_injection.fail(call, nth=nth, error=error)
            try:
                compact_folder(folder)
            except errors.BinlogToolError as failure:
                failures += 1
                assert os.strerror(error) in str(failure)
                fault_injection.heal()
                assert snapshot(folder) == unchanged
            else:
                fault_injection.heal()
                assert start(folder, scratch).jobs == before.jobs
                break
        else:
            raise AssertionError("it never succeeds")
    assert failures > 5


def test_every_read_fails_once(original: Path) -> None:
    """An unreadable place is reported as damage with its offset, and no file is removed."""
    scratch = original.with_name("scratch")
    before = start(original, scratch)
    for call in (Call.OPEN, Call.READ):
        for nth in range(1, 200):
            folder = fresh(original)
            fault_injection.fail(call, nth=nth, error=errno.EIO)
            try:
                compact_folder(folder)
            except errors.BinlogToolError as failure:
                fault_injection.heal()
                assert os.strerror(errno.EIO) in str(failure)
                assert start(folder, scratch).jobs == before.jobs
            else:
                fault_injection.heal()
                assert start(folder, scratch).jobs == before.jobs
                break
        else:
            raise AssertionError("it never succeeds")


@pytest.mark.parametrize("seed", range(5))
def test_folders_with_shards(folder: Path, seed: int) -> None:
    """repair and compact keep the layout, and every job in its shard."""
    dice = random.Random(seed)
    top = folder / "top"
    make("ours", top)
    bring_to(top, Layout(3, b"-"))
    shards = sorted(top.glob("shard-*"))
    due = [start(shard, folder / "scratch") for shard in shards]
    compact_folder(top)
    for shard, before in zip(shards, due, strict=True):
        after = start(shard, folder / "scratch")
        assert (after.jobs, after.buried) == (before.jobs, before.buried)
    victim = dice.choice([path for shard in shards for path in files(shard)])
    data = bytearray(victim.read_bytes())
    data[dice.randrange(4, len(data))] ^= 4
    victim.write_bytes(data)
    due = [start(shard, folder / "scratch") for shard in shards]
    unchanged = snapshot(top)
    done = repair_folder(top)
    assert snapshot(top) == unchanged
    assert [each.file for each in done.damage] == [f"{victim.parent.name}/{victim.name}"]
    new = folder / "new"
    assert (new / "lock").is_symlink()
    for shard, before in zip(sorted(new.glob("shard-*")), due, strict=True):
        after = start(shard, folder / "scratch")
        assert (after.jobs, after.buried) == (before.jobs, before.buried)
        assert after.warnings == []
    verdict = verify(inspect_folder(new), print)
    assert verdict.clean and verdict.jobs == done.jobs


def test_foreign_files_beside_shards_and_missing_shards_are_damage(folder: Path) -> None:
    top = folder / "top"
    make("ours", top)
    bring_to(top, Layout(3))
    (top / "binlog.7").write_bytes(b"\7\0\0\0")
    shutil.rmtree(top / "shard-001")
    reported: list[str] = []
    verdict = verify(inspect_folder(top), lambda damage: reported.append(str(damage)))
    assert [line.partition(":")[0] for line in reported] == ["shard-001", "binlog.7"]
    done = repair_folder(top)
    assert done.jobs == verdict.jobs
    assert verify(inspect_folder(folder / "new"), print).clean
