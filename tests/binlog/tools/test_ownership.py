"""Root works on the folder of another user: new files belong to the folder's owner.

So the owner can start any server on the folder afterwards. systemd/test_booted.py tests `serve -u`,
because it has a Python installation that other users may read.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.commands import run
from processes import eventually
from servers import ours, reference
from wire import Client

from beanstalkd_py import errors
from beanstalkd_py.binlog.layout import lock_top
from beanstalkd_py.binlog.ownership import creating_as_owner_of

OWNER, OTHER = 64321, 64322
MODE = 0o750
PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_GET_DUMPABLE = 1, 2, 3


@pytest.fixture
def top() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's folders."""
    assert os.geteuid() == 0, "only root can make files of other users"
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def owned(path: Path, owner: int = OWNER) -> Path:
    path.mkdir()
    path.chmod(MODE)
    os.chown(path, owner, owner)
    return path


@pytest.fixture
def folder(top: Path) -> Path:
    """A binlog folder of another user."""
    return owned(top / "binlog")


def check(folder: Path, owner: int = OWNER) -> None:
    """Check that everything belongs to the owner, and that no other user has access."""
    found = [folder, *folder.rglob("*")]
    assert len(found) > 1
    for path in found:
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == (owner, owner), path
        assert path.is_symlink() or status.st_mode & 0o007 == 0, path
        assert not path.is_dir() or status.st_mode & 0o777 == MODE, path


def put_some(client: Client, count: int = 20) -> list[int]:
    """Put jobs into several files of 8192 bytes."""
    return [client.put(b"x" * 1000) for _ in range(count)]


def has(client: Client, jobs: list[int]) -> bool:
    return all(client.ask(b"peek %d\r\n" % job).startswith(b"FOUND ") for job in jobs)


def check_with_c(folder: Path, jobs: list[int]) -> None:
    """Check that C beanstalkd opens the folder as its owner and has the jobs."""
    with reference("-b", folder, user=OWNER) as server, server.connect() as client:
        assert has(client, jobs)
        put_some(client)


@pytest.mark.costly
@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_c_beanstalkd_opens_the_folder_after_a_start_as_root(folder: Path, workers: str) -> None:
    jobs: list[int] = []
    for _ in range(2):
        server_args = ("-b", folder, "-s", "8192", "--workers", workers)
        with ours(*server_args) as server, server.connect() as client:
            assert has(client, jobs)
            jobs += put_some(client)
        check(folder)
        if workers != "1":
            done = run("binlog", "reshard", "--workers", "1", folder)
            assert done.returncode == 0, done.stderr
            check(folder)
        check_with_c(folder, jobs)


def test_root_serves_a_folder_with_files_of_root(folder: Path) -> None:
    """C beanstalkd leaves such files when root starts it on a folder of another user."""
    with reference("-b", folder) as server, server.connect() as client:
        jobs = put_some(client)
    assert (folder / "binlog.1").stat().st_uid == 0
    with ours("-b", folder) as server, server.connect() as client:
        assert has(client, jobs)


@pytest.mark.costly
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_compact_as_root(folder: Path, workers: str) -> None:
    server_args = ("-b", folder, "-s", "8192", "--workers", workers)
    with ours(*server_args) as server, server.connect() as client:
        jobs = put_some(client)
        for job in jobs[::2]:
            assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    done = run("binlog", "compact", folder)
    assert done.returncode == 0, done.stderr
    check(folder)
    if workers == "1":
        check_with_c(folder, jobs[1::2])


@pytest.mark.costly
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_repair_as_root(folder: Path, workers: str) -> None:
    with ours("-b", folder, "--workers", workers) as server, server.connect() as client:
        jobs = put_some(client)
    for file in folder.rglob("binlog.1"):
        data = file.read_bytes()
        file.write_bytes(data.replace(b"x" * 1000, b"y" * 1000, 1))
    done = run("binlog", "repair", folder)
    assert done.returncode == 0, done.stderr
    check(folder)
    check(folder.with_name("binlog.repaired"))
    if workers == "1":
        check_with_c(folder.with_name("binlog.repaired"), jobs[1:])


@pytest.mark.slow
def test_damaged_files_kept_by_root_belong_to_the_owner(folder: Path) -> None:
    with ours("-b", folder) as server, server.connect() as client:
        put_some(client)
    file = folder / "binlog.1"
    file.write_bytes(file.read_bytes().replace(b"x" * 1000, b"y" * 1000, 1))
    with ours("-b", folder, "--workers", "2"):
        pass
    assert [path for path in folder.rglob("*.bad*") if path.is_file()]
    check(folder)


def archive_one(folder: Path, history: Path, *more: str) -> None:
    with ours("-b", folder, "--history", history, *more) as server, server.connect() as client:
        job = client.put()
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        assert eventually(lambda: any(history.glob("commitlog/*")), 10)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_history_written_by_root_belongs_to_its_owner(
    top: Path, folder: Path, workers: str
) -> None:
    history = top / "history"
    archive_one(folder, history, "--workers", workers)
    check(folder)
    check(history)
    for command in (
        ("binlog", "reshard", "--workers", "3", "--history", history, folder),
        ("binlog", "compact", "--history", history, folder),
        ("history", "--store", history, "expire", "--before", "0s"),
    ):
        done = run(*command)
        assert done.returncode == 0, done.stderr
        check(folder)
        check(history)


@pytest.mark.slow
def test_a_history_of_a_third_user(top: Path, folder: Path) -> None:
    history = owned(top / "history", OTHER)
    archive_one(folder, history)
    check(folder)
    check(history, OTHER)


def test_a_lock_of_root_is_reported_to_the_owner(folder: Path) -> None:
    """Older versions left such files. The message has the command that helps."""
    lock_top(folder).close()
    os.chown(folder / "layout.lock", 0, 0)
    os.seteuid(OWNER)
    try:
        with pytest.raises(errors.BinlogFolderError) as raised:
            lock_top(folder)
    finally:
        os.seteuid(0)
    name = folder / "layout.lock"
    assert str(raised.value) == (
        f'cannot lock {name}: Permission denied; as root, run "chown -R {OWNER}:{OWNER} {folder}"'
    )


# --- the mechanism --------------------------------------------------------------------------------


def made(path: Path) -> int:
    """Create a file, and return its owner."""
    path.touch()
    return path.stat().st_uid


def test_blocks_nest_and_apply_to_new_threads(top: Path) -> None:
    one, two = owned(top / "one"), owned(top / "two", OTHER)
    with creating_as_owner_of(one):
        with creating_as_owner_of(two):
            assert made(top / "a") == OTHER
        assert made(top / "b") == OWNER
        thread = threading.Thread(target=made, args=(top / "c",))
        thread.start()
        thread.join()
        assert (top / "c").stat().st_uid == OWNER
        assert (os.geteuid(), os.getuid()) == (0, 0)
    assert made(top / "d") == 0


def test_the_end_with_the_parent_is_kept(top: Path) -> None:
    libc = ctypes.CDLL(None)
    asked = ctypes.c_int()
    assert libc.prctl(PR_SET_PDEATHSIG, signal.SIGUSR2) == 0
    try:
        dumpable = libc.prctl(PR_GET_DUMPABLE)
        with creating_as_owner_of(owned(top / "one")):
            assert libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(asked)) == 0
            assert (asked.value, libc.prctl(PR_GET_DUMPABLE)) == (signal.SIGUSR2, dumpable)
    finally:
        libc.prctl(PR_SET_PDEATHSIG, 0)


def test_without_permission_to_change_users_the_owner_of_new_files_is_logged(top: Path) -> None:
    folder = owned(top / "one")
    script = (
        "import sys, logging; logging.basicConfig(); "
        "from beanstalkd_py.binlog.ownership import create_as_owner_of; "
        "create_as_owner_of(sys.argv[1])"
    )
    drop = ["setpriv", "--bounding-set=-setuid,-setgid"]
    command = [*drop, sys.executable, "-P", "-c", script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert f"new files in {folder} will belong to uid 0 and gid 0" in done.stderr
