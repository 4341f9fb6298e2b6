"""Files that this user may not open are not damaged: the start fails and changes nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog.damaged_folders import snapshot
from cli.commands import refusal
from core.rig import Rig

from beanstalkd_py import errors
from beanstalkd_py.binlog.layout import Layout
from beanstalkd_py.binlog.reshard import reshard

NOBODY = 65534


@pytest.fixture
def foreign_folder() -> Iterator[Path]:
    """A folder owned by user nobody with jobs; one file is readable by root only."""
    with tempfile.TemporaryDirectory(prefix="permission-") as parent:
        Path(parent).chmod(0o755)
        folder = Path(parent) / "binlog"
        folder.mkdir()
        with Rig(folder, file_size=4096) as rig:
            client = rig.client()
            for tube in range(12):
                client.use(b"tube-%d" % tube)
                client.put(b"x" * 900)
            rig.stop()
        yield folder


def change_owner(folder: Path, *kept: Path) -> None:
    """Change the owner of everything except `kept` to user nobody."""
    for path in [folder, *folder.rglob("*")]:
        if path not in kept:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    for path in kept:
        path.chmod(0o600)


def state(folder: Path) -> object:
    """Return everything that a refused start must not change."""
    modes = {
        str(path): (path.lstat().st_mode, path.lstat().st_uid, path.lstat().st_ino)
        for path in [folder, *folder.rglob("*")]
    }
    return snapshot(folder), modes


# Import first what user nobody may not read of the Python installation.
_AS_NOBODY = """
import contextlib, os, sys
from beanstalkd_py.cli import main
sample, user, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    with contextlib.suppress(SystemExit):
        main.main([*words[:-1], sample])
os.setgroups([])
os.setgid(user)
os.setuid(user)
main.main(words)
"""


def as_nobody(*words: str | Path) -> tuple[int, str]:
    """Run a command on the folder, its last word, as user nobody; return status and output."""
    with tempfile.TemporaryDirectory() as parent:
        sample = Path(parent) / "sample"
        sample.mkdir()
        with Rig(sample) as rig:
            rig.client().put()
        with (sample / "binlog.1").open("r+b") as file:
            file.seek(90)
            file.write(b"damaged, so that there is something to repair")
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, str(sample), str(NOBODY), *map(str, words)],
            capture_output=True,
            timeout=60,
            check=False,
        )
    return done.returncode, (done.stdout + done.stderr).decode()


def assert_reports(text: str, path: Path) -> None:
    (line,) = [line for line in text.splitlines() if "Permission denied" in line]
    assert f"cannot open {path}: Permission denied to user nobody" in line
    assert "it belongs to user root with mode 0600" in line
    assert f'run "chown nobody {path}"' in line


@pytest.mark.parametrize("lock_too", [False, True])
def test_serve_refuses_with_status_10(foreign_folder: Path, lock_too: bool) -> None:
    (foreign_folder / "lock").unlink()
    change_owner(foreign_folder, foreign_folder / "binlog.2")
    if lock_too:
        (foreign_folder / "lock").touch(0o600)
        (foreign_folder / "binlog.2").chmod(0o644)
    before = state(foreign_folder)
    line = refusal(10, "-p0", "-u", "nobody", "-b", foreign_folder)
    assert_reports(line, foreign_folder / ("lock" if lock_too else "binlog.2"))
    assert_reports(
        refusal(10, "-p0", "-u", "nobody", "-b", foreign_folder, "--workers", "2"),
        foreign_folder / ("lock" if lock_too else "binlog.2"),
    )
    assert state(foreign_folder) == before


def test_serve_rejects_an_unreadable_file_of_a_shard(foreign_folder: Path) -> None:
    reshard(foreign_folder, Layout(2), 4096)
    kept = foreign_folder / "shard-001" / "binlog.1"
    change_owner(foreign_folder, kept)
    before = state(foreign_folder)
    for workers in ("2", "1", "3"):
        line = refusal(10, "-p0", "-u", "nobody", "-b", foreign_folder, "--workers", workers)
        assert_reports(line, kept)
    assert state(foreign_folder) == before


@pytest.mark.parametrize(
    "command", ["verify", "dump", "stats", "compact", "repair", "reshard --workers 2"]
)
@pytest.mark.parametrize("divided", [False, True])
def test_tools_refuse_with_status_2(foreign_folder: Path, command: str, divided: bool) -> None:
    if divided:
        reshard(foreign_folder, Layout(3), 4096)
    kept = foreign_folder / ("shard-002/binlog.1" if divided else "binlog.1")
    change_owner(foreign_folder, kept)
    before = state(foreign_folder)
    status, reported = as_nobody("binlog", *command.split(), foreign_folder)
    assert status == 2, reported
    assert_reports(reported, kept)
    assert state(foreign_folder) == before
    assert len(list(foreign_folder.parent.iterdir())) == 1


@pytest.mark.costly
def test_a_folder_that_may_not_be_entered(foreign_folder: Path) -> None:
    reshard(foreign_folder, Layout(2), 4096)
    change_owner(foreign_folder)
    os.chown(foreign_folder / "shard-000", 0, 0)
    (foreign_folder / "shard-000").chmod(0o700)
    before = state(foreign_folder)
    line = refusal(10, "-p0", "-u", "nobody", "-b", foreign_folder, "--workers", "2")
    assert re.search(r"shard-000.*Permission denied to user nobody", line)
    for command in ("verify", "dump", "stats", "compact", "repair"):
        status, reported = as_nobody("binlog", command, foreign_folder)
        assert (status, "Traceback" in reported) == (2, False), reported
    assert state(foreign_folder) == before


def test_the_core_rejects_unreadable_files_itself(foreign_folder: Path) -> None:
    """Even if the earlier check passed, because a file's owner may change in between."""
    change_owner(foreign_folder, foreign_folder / "binlog.2")
    before = state(foreign_folder)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(errors.CoreError, match=r"cannot open .*binlog\.2: Permission denied"):
            Rig(foreign_folder)
    finally:
        os.seteuid(0)
    assert state(foreign_folder) == before


def test_read_only_files_are_sufficient(foreign_folder: Path) -> None:
    """C beanstalkd creates read-only files."""
    for path in foreign_folder.glob("binlog.*"):
        path.chmod(0o400)
    change_owner(foreign_folder)
    assert as_nobody("binlog", "verify", foreign_folder)[0] == 0
    assert as_nobody("binlog", "compact", foreign_folder)[0] == 0
