"""A start syncs the unsynced files of an ended process before it reads them.

tests/crash/test_power_cut.py proves that no disk image lacks them. These tests check the line in
the lock file, and each file.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from binlog.reader import files
from core import fault_injection
from core.fault_injection import Call
from core.rig import Rig

from beanstalkd_py import errors

FILE = 4096
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
OTHER_BOOT = "01234567-89ab-cdef-0123-456789abcdef"


def line(folder: Path) -> list[str]:
    return (folder / "lock").read_text().split()


def write_mark(folder: Path, number: int, boot: str = BOOT) -> None:
    assert line(folder) == ["unsynced", "from", f"binlog.{number}", "boot", boot]


def inodes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in files(folder)}


def fill(folder: Path, jobs: int = 30) -> None:
    """Fill several files, then abandon them as by a kill."""
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(jobs):
            client.put(b"x" * 500)
        write_mark(folder, rig.counters.binlog_current)


def jobs_in(folder: Path) -> int:
    with Rig(folder, file_size=FILE) as rig:
        return int(rig.counters.ready)


def test_a_kill_leaves_the_number_of_the_first_unsynced_file(folder: Path) -> None:
    fill(folder)
    current = max(int(path.suffix[1:]) for path in files(folder) if path.stat().st_size > FILE // 8)
    assert int(line(folder)[2].removeprefix("binlog.")) <= current


def test_a_stop_leaves_nothing_unsynced(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        rig.client().put()
        rig.stop()
    assert line(folder) == ["everything", "is", "synced"]
    before = inodes(folder)
    assert jobs_in(folder) == 1
    assert before.items() <= inodes(folder).items()


def test_files_from_that_number_on_are_copied_and_the_others_synced(folder: Path) -> None:
    fill(folder)
    suspect = int(line(folder)[2].removeprefix("binlog."))
    before = inodes(folder)
    synced = fault_injection.count(Call.DATASYNC)
    with Rig(folder, file_size=FILE) as rig:
        after = inodes(folder)
        assert fault_injection.count(Call.DATASYNC) - synced >= suspect - 1
        assert rig.counters.ready == 30
    assert after[f"binlog.{suspect}"] != before[f"binlog.{suspect}"]
    for number in range(1, suspect):
        assert after[f"binlog.{number}"] == before[f"binlog.{number}"]


def test_after_a_reboot_no_file_is_unsynced(folder: Path) -> None:
    fill(folder)
    text = (folder / "lock").read_text()
    (folder / "lock").write_text(text.replace(BOOT, OTHER_BOOT))
    before = inodes(folder)
    assert jobs_in(folder) == 30
    assert before.items() <= inodes(folder).items()


@pytest.mark.parametrize("text", ["", "unsynced from", "x" * 80, "unsynced from binlog.x boot y"])
def test_with_a_foreign_lock_file_all_files_are_synced_and_none_copied(
    folder: Path, text: str
) -> None:
    fill(folder)
    (folder / "lock").write_text(text)
    before = inodes(folder)
    assert jobs_in(folder) == 30
    assert before.items() <= inodes(folder).items()


def test_without_syncs_the_line_stays_for_the_next_start_that_syncs(folder: Path) -> None:
    fill(folder)
    before = (folder / "lock").read_text()
    with Rig(folder, file_size=FILE, sync_interval_ns=-1) as rig:
        rig.client().put()
        rig.stop()
    assert (folder / "lock").read_text() == before


def test_on_a_full_disk_files_are_rewritten_in_place(folder: Path) -> None:
    fill(folder)
    before = inodes(folder)
    fault_injection.fail(Call.WRITE, error=errno.ENOSPC)
    written = fault_injection.count(Call.WRITE)
    synced = fault_injection.count(Call.SYNC)
    assert jobs_in(folder) == 30
    assert (
        fault_injection.count(Call.WRITE) >= written + 2
        and fault_injection.count(Call.SYNC) > synced
    )
    assert before.items() <= inodes(folder).items()
    assert not list(folder.glob("*.new"))


@pytest.mark.parametrize("call", [Call.DATASYNC, Call.WRITE, Call.SYNC, Call.RENAME])
def test_a_failed_sync_or_copy_ends_the_start(folder: Path, call: Call) -> None:
    fill(folder)
    suspect = int(line(folder)[2].removeprefix("binlog."))
    before = {path.name: path.read_bytes() for path in files(folder)}
    fault_injection.fail(call, error=errno.EIO)
    with pytest.raises(errors.BinlogWriteError, match=r"cannot (sync|copy) binlog\.\d+ in"):
        Rig(folder, file_size=FILE)
    assert {path.name: path.read_bytes() for path in files(folder)} == before
    assert int(line(folder)[2].removeprefix("binlog.")) <= suspect
    assert jobs_in(folder) == 30


def test_a_line_that_cannot_be_written_is_only_logged(folder: Path) -> None:
    fault_injection.fail(Call.NOTE, error=errno.EIO, lasting=True)
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(30):
            client.put(b"x" * 500)
        assert len([text for text in rig.warnings() if "lock file" in text]) == 1
    fault_injection.heal()
    assert jobs_in(folder) == 30


def test_a_copy_has_the_owner_and_mode_of_its_file(folder: Path) -> None:
    fill(folder)
    path = folder / line(folder)[2]
    path.chmod(0o640)
    if os.getuid() == 0:
        os.chown(path, 4321, 4322)
    before = path.stat()
    assert jobs_in(folder) == 30
    after = path.stat()
    assert after.st_ino != before.st_ino
    assert stat.S_IMODE(after.st_mode) == 0o640
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)


def test_copying_skips_bytes_that_cannot_be_read(folder: Path) -> None:
    """Recovery reads the rest of the file, as it does after a stop."""
    fill(folder)
    fault_injection.fail(Call.READ, error=errno.EIO)
    with Rig(folder, file_size=FILE) as rig:
        assert rig.counters.ready == 30
