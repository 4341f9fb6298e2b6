"""Names of special files, and of files larger than any disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from binlog.reader import files
from cli.commands import refusal
from core.rig import Rig

from beanstalkd_py import errors
from beanstalkd_py.binlog.dump import dump
from beanstalkd_py.binlog.folders import holder_of, inspect_folder, locked_folder
from beanstalkd_py.binlog.layout import FileLock, read_layout
from beanstalkd_py.binlog.repair import repair
from beanstalkd_py.binlog.steps import Steps
from beanstalkd_py.binlog.verify import verify
from beanstalkd_py.core.binlog_reader import Selection
from beanstalkd_py.pipeline.sources.file_buffer import FileBuffer

pytestmark = pytest.mark.timeout(60)

HUGE = 100 << 30
NOT_REGULAR = "unreadable file: it is not a regular file"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def folder_of_that_name(path: Path) -> None:
    path.mkdir()


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD = [fifo, folder_of_that_name, unix_socket, device]
Odd = Callable[[Path], None]


def fill(folder: Path) -> None:
    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        for number in range(12):
            client.put(b"%d " % number + b"x" * 900)
        rig.stop()
    assert len(files(folder)) == 4


def damage_in(folder: Path) -> list[str]:
    verdict = verify(inspect_folder(folder), lambda damage: None)
    return [str(each) for each in verdict.damage]


@pytest.mark.parametrize("make", ODD)
def test_a_special_file_is_reported_and_kept(folder: Path, make: Odd) -> None:
    fill(folder)
    make(folder / "binlog.5")
    reported = f"binlog.5:0: {NOT_REGULAR}"
    assert damage_in(folder) == [reported]
    assert not dump(inspect_folder(folder), Selection(as_json=True), lambda text: None)
    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        assert rig.warnings() == [f"{reported}; it stays where it is"]
        assert rig.counters.ready == 12
        assert client.put(b"new") == 13
    before = (folder / "binlog.5").lstat()
    with Rig(folder, file_size=4096) as rig:
        assert rig.counters.ready == 13
    after = (folder / "binlog.5").lstat()
    assert (before.st_mode, before.st_ino) == (after.st_mode, after.st_ino)
    with locked_folder(folder, writing=False) as found:
        repaired = repair(found, folder / ".." / f"{folder.name}.repaired", 4096)
    assert repaired.jobs == 13
    assert repaired.output is not None
    shutil.rmtree(repaired.output)


@pytest.mark.parametrize("make", ODD)
def test_a_lock_that_is_a_special_file_is_rejected(folder: Path, make: Odd) -> None:
    make(folder / "lock")
    assert holder_of(folder / "lock") is None
    with pytest.raises(errors.CoreError, match="lock: it is not a regular file"):
        Rig(folder)
    with pytest.raises(errors.BinlogFolderError, match="lock: it is not a regular file"):
        FileLock(folder / "lock")
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_serve_reports_a_special_lock_with_status_10(folder: Path) -> None:
    os.mkfifo(folder / "lock")
    assert "it is not a regular file" in refusal(10, "-p0", "-b", folder, "--workers", "1")
    (folder / "lock").unlink()
    os.mkfifo(folder / "layout.lock")
    line = refusal(10, "-p0", "-b", folder, "--workers", "2")
    assert "layout.lock: it is not a regular file" in line
    (folder / "layout.lock").unlink()
    os.mkfifo(folder / "layout")
    with pytest.raises(errors.BinlogFolderError, match="it is not a regular file"):
        read_layout(folder)


def test_links_to_regular_files_are_followed(folder: Path) -> None:
    """As in C beanstalkd, because operators put single files on other disks."""
    fill(folder)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    shutil.move(folder / "binlog.2", elsewhere / "binlog.2")
    (folder / "binlog.2").symlink_to("elsewhere/binlog.2")
    assert damage_in(folder) == []
    link = folder.with_name(folder.name + ".link")
    link.symlink_to(folder)
    try:
        with Rig(link, file_size=4096) as rig:
            assert rig.counters.ready == 12
            assert rig.warnings() == []
    finally:
        link.unlink()


def test_a_broken_link_prevents_the_start(folder: Path) -> None:
    """If its disk is not mounted, starting without the jobs of the file would lose them."""
    fill(folder)
    shutil.move(folder / "binlog.2", folder / "away")
    (folder / "binlog.2").symlink_to("mnt/binlog.2")
    assert any(
        "binlog.2:0: unreadable file: it is a symbolic" in line for line in damage_in(folder)
    )
    with pytest.raises(errors.CoreError, match=r"cannot open .*binlog\.2: No such file"):
        Rig(folder)
    assert (folder / "binlog.2").is_symlink()


@pytest.mark.parametrize("data", ["zeros", "spare", "entries", "noise behind"])
def test_a_sparse_file_of_100_gigabytes(folder: Path, data: str) -> None:
    """It is read in little memory and time, and its zeros are not used for entries."""
    fill(folder)
    path = folder / "binlog.5"
    contents = {"zeros": b"", "entries": (folder / "binlog.3").read_bytes()}
    path.write_bytes(contents.get(data, b"\7\0\0\0"))
    os.truncate(path, HUGE)
    if data == "noise behind":
        with path.open("r+b") as file:
            file.seek(HUGE // 2)
            file.write(b"noise")
    found = damage_in(folder)
    with Rig(folder, file_size=4096) as rig:
        assert rig.counters.ready == 12
        assert rig.client().put(b"new") == 13
        assert rig.counters.binlog_current == 6
        assert [line.split(": ")[0] for line in rig.warnings()] == [
            each.split(": ")[0] for each in found
        ]
        assert (path.stat().st_size < HUGE) == (data in ("spare", "entries"))
    assert (found == []) == (data != "noise behind")


def test_the_pipeline_neither_blocks_nor_exhausts_memory(folder: Path) -> None:
    os.mkfifo(folder / "binlog.1")
    with pytest.raises(OSError, match="it is not a regular file"):
        FileBuffer().read(str(folder / "binlog.1"))
    (folder / "binlog.1").unlink()
    fill(folder)
    path = folder / "binlog.1"
    data = path.read_bytes()
    os.truncate(path, HUGE)
    read = bytes(FileBuffer().read(str(path)))
    assert read.startswith(data)
    assert len(read) < 1 << 20
    assert not any(read[len(data) :])


@pytest.mark.parametrize("name", ["lock", "binlog.1.new"])
def test_nothing_is_written_through_a_link(folder: Path, name: str) -> None:
    """The owner of a folder must not redirect a server of root to files of others."""
    target = folder.parent / f"{folder.name}-of-others"
    target.write_bytes(b"not a binlog")
    try:
        (folder / name).symlink_to(target)
        refused = pytest.raises(errors.BeanstalkdError)
        with refused if name == "lock" else contextlib.nullcontext(), Rig(folder) as rig:
            rig.client().put()
        assert target.read_bytes() == b"not a binlog"
    finally:
        target.unlink()


def test_tools_write_nothing_through_a_link(folder: Path) -> None:
    target = folder / "of-others"
    for name in ("layout.lock", "lock.new"):
        (folder / name).symlink_to(target)
    with pytest.raises(errors.BinlogFolderError):
        FileLock(folder / "layout.lock")
    Steps().write(folder / "lock.new", b"")
    assert not (folder / "lock.new").is_symlink()
    assert not target.exists()


def test_a_sparse_file_after_a_kill_takes_no_space(folder: Path) -> None:
    with Rig(folder, file_size=4096) as rig:
        rig.client().put(b"here")
    with (folder / "binlog.9").open("wb") as sparse:
        sparse.truncate(HUGE)
        sparse.seek(HUGE)
        sparse.write(b"junk")
    with Rig(folder, file_size=4096) as rig:
        assert rig.counters.ready == 1
    kept = [path for path in folder.iterdir() if path.name.startswith("binlog.9")]
    assert kept and all(path.stat().st_blocks < 1000 for path in kept)
