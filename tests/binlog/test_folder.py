"""Other files of a binlog folder at start: locks, leftovers, gaps, unreadable files."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest
from binlog.disk import numbers, take, wait_until
from binlog.workload import Actor, check, run_steps
from core import fault_injection
from core.fault_injection import Call
from core.rig import Rig

from beanstalkd_py import errors

FILE = 4096
HOLD_LOCK = """
import fcntl, sys
lock = open(sys.argv[1], "a")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_the_lock_is_that_of_beanstalkd(folder: Path) -> None:
    """A write lock by fcntl on DIR/lock: if another process holds it, the start fails."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(folder / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(errors.BinlogLockedError, match="locked by another process"):
            Rig(folder)
        assert numbers(folder) == []
        holder.stdin.close()
    with Rig(folder) as rig:
        rig.client().put()


def test_the_lock_is_released_at_the_end(folder: Path) -> None:
    with Rig(folder) as rig:
        rig.stop()
        with (folder / "lock").open("w") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("missing", ["nowhere", "lock/inside"])
def test_a_missing_folder(folder: Path, missing: str) -> None:
    (folder / "lock").touch()
    with pytest.raises(errors.BinlogFolderError, match="does not exist or is no folder"):
        Rig(folder / missing)


def test_preallocated_files_and_unfinished_files_are_removed(folder: Path) -> None:
    """Preallocated files keep their numbers until used, but their zeros are freed at once."""
    with Rig(folder, file_size=FILE) as rig:
        rig.client().put(b"kept")
    (folder / "binlog.2").write_bytes(b"\x07\0\0\0" + bytes(FILE - 4))
    (folder / "binlog.3").write_bytes(b"\x07\0\0\0")
    (folder / "binlog.4").write_bytes(b"")
    (folder / "binlog.5.new").write_bytes(b"\x07\0\0\0" + bytes(17))
    with Rig(folder, file_size=FILE) as rig:
        assert rig.warnings() == []
        assert rig.client().body(1) == b"kept"
        assert all((folder / f"binlog.{n}").stat().st_size <= 4 for n in (2, 3, 4))
        rig.client().do(b"delete 1", b"DELETED")
        wait_until(lambda: min(numbers(folder)) > 4)
        rig.stop()
    assert sorted(path.name for path in folder.iterdir()) == ["binlog.5", "binlog.6", "lock"]


def test_other_files_are_ignored(folder: Path) -> None:
    names = ["binlog.x", "binlog.1~", "binlog.", "binlog.01x", "notes", "binlog.7.gz"]
    for name in names:
        (folder / name).write_bytes(b"mine")
    with Rig(folder, file_size=FILE) as rig:
        rig.client().put()
        rig.stop()
    assert all((folder / name).read_bytes() == b"mine" for name in names)


def test_a_gap_is_logged_and_skipped(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        jobs = [client.put(b"x" * 900) for _ in range(12)]
        file_of = {job: client.job(job)["file"] for job in jobs}
    (folder / "binlog.2").unlink()
    with Rig(folder, file_size=FILE) as rig:
        assert [line for line in rig.warnings() if "missing" in line]
        client = rig.client()
        for job in jobs:
            assert (client.body(job) is None) == (file_of[job] == "2")


@pytest.mark.parametrize(
    "start", [b"\x06\0\0\0", b"\x08\0\0\0", b"\0\0\0\0", b"\xff\xff\xff\xff"], ids=bytes.hex
)
def test_fault_9_a_file_of_an_unknown_version_is_renamed_to_bad(folder: Path, start: bytes) -> None:
    data = start + b"data that may be needed"
    (folder / "binlog.3").write_bytes(data)
    with Rig(folder, file_size=FILE) as rig:
        assert any(line.startswith("binlog.3:0: ") for line in rig.warnings())
        client = rig.client()
        for _ in range(40):
            client.do(b"delete %d" % client.put(b"x" * 500), b"DELETED")
        assert min(numbers(folder)) > 3
        rig.stop()
    assert (folder / "binlog.3.bad").read_bytes() == data


def test_fault_9_an_existing_bad_file_is_not_overwritten(folder: Path) -> None:
    (folder / "binlog.1.bad").write_bytes(b"kept aside long ago")
    (folder / "binlog.1").write_bytes(b"\x09\0\0\0and now this one")
    with Rig(folder, file_size=FILE) as rig:
        rig.client().put()
    kept = [path.read_bytes() for path in folder.glob("binlog.1.bad*")]
    assert sorted(kept) == [b"\x09\0\0\0and now this one", b"kept aside long ago"]


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", [Call.READ, Call.OPEN], ids=["read", "open"])
def test_read_errors_at_start_delete_nothing(folder: Path, kind: Call, nth: int) -> None:
    """Every byte is still there, under the same name or set aside."""
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(12):
            client.put(b"x" * 900)
        rig.stop()
    before = set(take(folder).values())
    # The first file opened is the lock, which is irrelevant here.
    fault_injection.fail(kind, nth=nth + (kind == Call.OPEN), error=errno.EIO)
    try:
        with Rig(folder, file_size=FILE) as rig:
            assert any("unreadable" in line for line in rig.warnings()) or nth > 3
            rig.tick()
    except errors.CoreError:
        pass  # a failed start deletes nothing either
    fault_injection.heal()
    after = {path.read_bytes() for path in folder.glob("binlog.*")}
    assert before <= after


def test_a_file_that_cannot_be_compacted_stays(folder: Path) -> None:
    """Read errors at run time: jobs stay in memory and on disk."""
    actor = Actor("no reading", put_share=0.15)
    with Rig(folder, file_size=FILE) as rig:
        fault_injection.fail(Call.READ, error=errno.EIO, lasting=True)
        run_steps(actor, rig.client(), 300)
    fault_injection.heal()
    with Rig(folder, file_size=FILE) as rig:
        check([actor], rig)


@pytest.mark.parametrize("size", [1, 100, 4095, 4096, 5000])
def test_any_file_size_works(folder: Path, size: int) -> None:
    actor = Actor(f"size {size}")
    for _ in range(2):
        with Rig(folder, file_size=size) as rig:
            check([actor], rig)
            run_steps(actor, rig.client(), 100)
    assert actor.refused == 0


def test_file_sizes_may_change_between_starts(folder: Path) -> None:
    actor = Actor("sizes", put_share=0.2)
    for size in (1 << 16, 4096, 1 << 20, 8192, 4096):
        with Rig(folder, file_size=size) as rig:
            check([actor], rig)
            run_steps(actor, rig.client(), 150)


def test_a_job_larger_than_the_current_file_size_does_not_block_compaction(folder: Path) -> None:
    """It was put with a larger -s; space must stay bounded."""
    with Rig(folder, file_size=1 << 16) as rig:
        big = rig.client().put(b"b" * 30_000)
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(2000):
            client.do(b"delete %d" % client.put(b"x" * 500), b"DELETED")
        assert client.body(big) == b"b" * 30_000
        total = sum(len(data) for data in take(folder).values())
        assert total < 10 * 30_000
