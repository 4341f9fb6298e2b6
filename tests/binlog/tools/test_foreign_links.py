"""The owner of a folder replaces parts of it by symbolic links while root works there.

Root must not create, rename or remove anything in the target of such a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from binlog.reader import files, number_of
from cli.commands import FOLDER, refusal, run
from core.rig import Rig
from history.stores import BY_HAND, SMALL
from servers import free_port, ours

from beanstalkd_py import errors, symlinks
from beanstalkd_py.binlog.done_files import list_done_files, remove_files
from beanstalkd_py.binlog.folders import locked_folder
from beanstalkd_py.binlog.layout import FileLock, Layout
from beanstalkd_py.binlog.reshard import reshard
from beanstalkd_py.binlog.steps import Steps
from beanstalkd_py.core.binlog_reader import Reader
from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.shared_memory import new_shared
from beanstalkd_py.history.files import layout as store_layout
from beanstalkd_py.history.files.index import IndexFile
from beanstalkd_py.history.options import Options
from beanstalkd_py.history.store import Message, Store
from beanstalkd_py.regular_file import open_regular

pytestmark = pytest.mark.timeout(60)

OWNER = 64321
FILE_SIZE = 4096
TRIES = 300
SECRET = b"root:$6$secret:19000:0:::\n" * 20


def own(path: Path) -> None:
    for each in (path, *path.rglob("*")):
        os.chown(each, OWNER, OWNER, follow_symlinks=False)


def link(path: Path, target: Path, owner: int = OWNER) -> None:
    path.symlink_to(target)
    os.chown(path, owner, owner, follow_symlinks=False)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's folders."""
    assert os.geteuid() == 0, "only root can make links of other users"
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two shards and some jobs."""
    folder = tmp_path_factory.mktemp("binlog")
    with ours("-b", folder, "--workers", "2") as server, server.connect() as client:
        for number in range(10):
            client.ask(b"use tube-%d\r\n" % number)
            client.put()
    return folder


@pytest.fixture
def top(place: Path, filled: Path) -> Path:
    """A folder of another user with the same files."""
    folder = shutil.copytree(filled, place / "binlog", symlinks=True)
    folder.chmod(0o755)
    own(folder)
    return folder


@pytest.fixture
def victim(place: Path) -> Iterator[Path]:
    """A folder of root with the files of a queue; the test fails if it changes."""
    folder = place / "of-root"
    folder.mkdir()
    for name in ("binlog.1", "binlog.2.done", "other"):
        (folder / name).write_bytes(b"of root")
    before = seen(folder)
    yield folder
    assert seen(folder) == before


def seen(folder: Path) -> list[tuple[str, bytes]]:
    return sorted((path.name, path.read_bytes()) for path in folder.iterdir())


def replaced(folder: Path, target: Path, owner: int = OWNER) -> Path:
    """Replace the folder by a link to the target, and return its new place."""
    aside = folder.with_name(f"{folder.name}.aside")
    folder.rename(aside)
    link(folder, target, owner)
    return aside


# --- binlogs --------------------------------------------------------------------------------------


def refused_text(path: Path) -> str:
    kind = "file" if path.name.startswith("binlog.") else "folder"
    return (
        f"{path} is a symbolic link of user {OWNER}; put the {kind} itself there, or make the link"
        " as root"
    )


@pytest.mark.costly
def test_a_start_refuses_a_linked_shard(top: Path, victim: Path) -> None:
    replaced(top / "shard-001", victim)
    for workers in ("2", "3", "1"):
        reported = refusal(FOLDER, "serve", "-p", str(free_port()), "-b", top, "--workers", workers)
        assert reported.endswith(
            f"cannot read binlog folder {top}: {refused_text(top / 'shard-001')}"
        )


@pytest.mark.parametrize(
    "command", [("compact",), ("repair",), ("reshard", "--workers", "1"), ("verify",)], ids=str
)
def test_tools_refuse_a_linked_shard(top: Path, victim: Path, command: tuple[str, ...]) -> None:
    replaced(top / "shard-001", victim)
    done = run("binlog", *command, top)
    assert done.returncode in (1, 2, FOLDER), done
    assert refused_text(top / "shard-001") in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.costly
def test_a_start_and_tools_refuse_a_linked_file(owned: Path, secret: Path) -> None:
    with Rig(owned, file_size=FILE_SIZE) as rig:
        rig.client().put()
        rig.stop()
    link(owned / "binlog.9", secret)
    text = refused_text(owned / "binlog.9")
    before = sorted(owned.iterdir())
    message = refusal(FOLDER, "serve", "-p", str(free_port()), "-b", owned)
    assert message.endswith(f"cannot read binlog folder {owned}: {text}")
    for command in ("verify", "compact"):
        done = run("binlog", command, owned)
        assert done.returncode in (2, FOLDER), done
        assert text in done.stderr and len(done.stderr.splitlines()) == 1
    assert sorted(owned.iterdir()) == before
    with (
        pytest.raises(errors.CoreError, match=r"binlog\.9: it is a symbolic link of another user"),
        Rig(owned),
    ):
        pass


def test_a_start_copies_no_target_of_a_link(owned: Path, secret: Path) -> None:
    """A copy belongs to the folder's owner until it gets the original's owner."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (owned / "lock").write_text(f"unsynced from binlog.{1:<10} boot {boot}".ljust(79) + "\n")
    link(owned / "binlog.3", secret)
    refused = "binlog.3: it is a symbolic link of another user"
    with pytest.raises(errors.CoreError, match=re.escape(refused)), Rig(owned):
        pass
    assert sorted(path.name for path in owned.iterdir()) == ["binlog.3", "lock"]
    assert (owned / "binlog.3").is_symlink()


@pytest.mark.costly
def test_links_of_root_are_followed(top: Path) -> None:
    """Operators put shards on several disks, and use links to folders."""
    elsewhere = top.parent / "disk2"
    elsewhere.mkdir()
    (top / "shard-001").rename(elsewhere / "shard-001")
    link(top / "shard-001", Path("../disk2/shard-001"), 0)
    given = top.parent / "given"
    link(given, Path("binlog"), 0)
    for folder in (top, given):
        with ours("-b", folder, "--workers", "2") as server, server.connect() as client:
            assert all(
                client.ask(b"peek %d\r\n" % job).startswith(b"FOUND") for job in range(1, 11)
            )
        for command in ("compact", "verify"):
            done = run("binlog", command, folder)
            assert done.returncode == 0, done


@pytest.mark.costly
@pytest.mark.parametrize("below", ["", "binlog"])
def test_root_refuses_a_link_of_another_user_in_the_given_path(top: Path, below: str) -> None:
    """The parent folder can be the other user's, such as a service's /var/lib/NAME."""
    given = top.parent / "given"
    link(given, Path() if below else top)
    folder = given / below
    before = sorted(top.parent.rglob("*"))
    text = refused_text(given)
    for workers in ("1", "auto"):
        message = refusal(
            FOLDER, "serve", "-p", str(free_port()), "-b", folder, "--workers", workers
        )
        assert text in message
    for command in (("compact",), ("reshard", "--workers", "1"), ("verify",)):
        done = run("binlog", *command, folder)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
        assert text in done.stderr
    assert sorted(top.parent.rglob("*")) == before


def test_other_users_may_give_a_path_with_any_link(top: Path) -> None:
    given = top.parent / "given"
    link(given, top, 0)
    os.chown(given, OWNER + 1, OWNER + 1, follow_symlinks=False)
    os.seteuid(OWNER)
    try:
        assert symlinks.resolved(given) == top
        with locked_folder(given, writing=True) as folder:
            assert len(folder.shards) == 2
    finally:
        os.seteuid(0)


def test_a_link_of_the_server_user_is_followed(top: Path) -> None:
    """The server runs as the owner of the folder, whose links are trusted."""
    aside = replaced(top / "shard-001", top / "shard-001.aside")
    os.seteuid(OWNER)
    try:
        with symlinks.opened(top / "shard-001") as fd:
            assert os.path.samestat(os.fstat(fd), aside.stat())
        Reader(str(top / "shard-001"), 5).close()
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("step", ["unlink", "rename", "sync", "mkdir", "write"])
def test_a_folder_that_is_replaced_while_it_is_resharded(
    top: Path, victim: Path, step: str
) -> None:
    """At the first step in a folder below it, by a link to files of the same names."""
    swapped: list[Path] = []

    def before(text: str) -> None:
        word, _, rest = text.partition(" ")
        below = Path(rest.split(" ")[0])
        if word == step and not swapped and below.parent != top and below != top:
            folder = below if word == "sync" else below.parent
            swapped.append(replaced(folder, victim))

    with contextlib.suppress(errors.BinlogFolderError):
        reshard(top, Layout.wanted(3, None), FILE_SIZE, Steps(before))
    assert swapped


def test_done_files_that_are_replaced_before_their_removal(top: Path, victim: Path) -> None:
    folder = top / "shard-000"
    (folder / "binlog.2.done").write_bytes(b"")
    found = list_done_files(folder)
    replaced(folder, victim)
    with pytest.raises(OSError, match="is a symbolic link of user") as raised:
        remove_files(found)
    assert raised.value.errno == symlinks.UNTRUSTED


# --- replaced concurrently ------------------------------------------------------------------------


@contextlib.contextmanager
def swapping(folder: Path, target: Path) -> Iterator[None]:
    """Replace the folder continuously in another process."""
    child = os.fork()
    if child == 0:
        swap_forever(folder, target)
    try:
        yield
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def swap_forever(folder: Path, target: Path) -> None:
    try:
        os.setgroups([])
        os.setgid(OWNER)
        os.setuid(OWNER)
        aside = folder.with_name(f"{folder.name}.aside")
        while True:
            folder.rename(aside)
            folder.symlink_to(target)
            folder.unlink()
            aside.rename(folder)
    finally:
        os._exit(1)


def work_of_python(folder: Path) -> None:
    Steps().write(folder / "binlog.9", b"")
    FileLock(folder / "lock", 0).close()
    Steps().remove(folder / "binlog.1")
    Steps().rename(folder / "other", folder / "another")


def work_of_c(folder: Path) -> None:
    core = Core(CoreConfig(binlog_dir=str(folder), file_size=FILE_SIZE), new_shared())
    try:
        core.recover()
    finally:
        core.close()


@pytest.mark.parametrize("work", [work_of_python, work_of_c])
def test_a_folder_that_is_replaced_at_any_moment(
    top: Path, victim: Path, work: Callable[[Path], None]
) -> None:
    refused = 0
    with swapping(top / "shard-000", victim):
        tries, until = 0, time.monotonic() + 20
        while tries < TRIES or (not refused and time.monotonic() < until):
            tries += 1
            try:
                work(top / "shard-000")
            except (OSError, errors.BeanstalkdError) as error:
                refused += "symbolic link" in str(error)
    assert refused > 0


# --- single files ---------------------------------------------------------------------------------


@pytest.fixture
def secret(place: Path) -> Iterator[Path]:
    """A file that only root may read; its contents, owner and link count must not change."""
    path = place / "secret"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    yield path
    status = path.stat()
    assert (path.read_bytes(), status.st_uid, status.st_mode & 0o777) == (SECRET, 0, 0o600)


@pytest.fixture
def owned(place: Path) -> Path:
    folder = place / "owned"
    folder.mkdir()
    own(folder)
    return folder


@pytest.mark.parametrize("hard_links", [True, False])
def test_the_duplicate_of_a_link_is_a_link(
    owned: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, hard_links: bool
) -> None:
    link(owned / "binlog.1", secret)
    if not hard_links:
        monkeypatch.setattr(os, "link", not_supported)
    Steps().duplicate(owned / "binlog.1", owned / "binlog.1.bad")
    assert secret.stat().st_nlink == 1
    assert (owned / "binlog.1.bad").is_symlink()


def not_supported(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def test_a_damaged_file_that_becomes_a_link_while_it_is_resharded(top: Path, secret: Path) -> None:
    damaged = min((top / "shard-000").glob("binlog.*"))
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    replaced_files: list[Path] = []

    def before(text: str) -> None:
        if text.startswith("link ") and not replaced_files:
            replaced_files.append(replaced(damaged, secret))

    with contextlib.suppress(errors.BinlogFolderError):
        reshard(top, Layout.wanted(1, None), FILE_SIZE, Steps(before))
    assert replaced_files
    assert secret.stat().st_nlink == 1


def write_by_steps(path: Path) -> None:
    Steps().write(path, b"of the server")


def copy_by_steps(path: Path) -> None:
    source = path.with_name("source")
    source.write_bytes(b"of the server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", not_supported)
        Steps().duplicate(source, path.with_name(path.name.removesuffix(".copying")))


def write_of_a_store(path: Path) -> None:
    store_layout.write_file(path.with_name(path.name.removesuffix(".new")), b"of the server")


def index_of_a_store(path: Path) -> None:
    IndexFile.create(path.with_name(path.name.removesuffix(".new")), SMALL).close()


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("lock.new", write_by_steps),
        ("binlog.1.bad.copying", copy_by_steps),
        ("state.new", write_of_a_store),
        ("20260101000000000.new", index_of_a_store),
    ],
)
@pytest.mark.parametrize("make", [os.link, os.symlink])
def test_an_unfinished_file_that_is_a_link(
    owned: Path, secret: Path, name: str, work: Callable[[Path], None], make: Callable[..., None]
) -> None:
    make(secret, owned / name)
    work(owned / name)


def test_the_next_binlog_is_not_made_of_a_hard_link(owned: Path, secret: Path) -> None:
    with Rig(owned, file_size=FILE_SIZE) as rig:
        client = rig.client()
        client.put(b"x" * 900)
        ahead = max(map(number_of, files(owned))) + 2  # the next one may be in preparation
        for number in range(ahead, ahead + 4):
            (owned / f"binlog.{number}.new").hardlink_to(secret)
        for _ in range(40):
            client.put(b"x" * 900)
        assert rig.counters.binlog_current > ahead


def test_a_copy_of_an_unsynced_file_is_not_written_to_a_hard_link(
    owned: Path, secret: Path
) -> None:
    """The folder's owner makes the links repeatedly while a start copies the files."""
    with Rig(owned, file_size=FILE_SIZE) as rig:
        client = rig.client()
        for _ in range(60):
            client.put(b"x" * 900)
    copies = [path.with_name(f"{path.name}.new") for path in owned.glob("binlog.*")]
    for path in owned.iterdir():
        path.chmod(0o600)
    with linking(secret, copies):
        for _ in range(20):
            with contextlib.suppress(errors.BeanstalkdError), Rig(owned, file_size=FILE_SIZE):
                pass


@contextlib.contextmanager
def linking(target: Path, names: list[Path]) -> Iterator[None]:
    child = os.fork()
    if child == 0:
        while True:
            for name in names:
                with contextlib.suppress(OSError):
                    name.hardlink_to(target)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("opening", ["C", "Python"])
def test_a_lock_that_is_a_hard_link_to_a_file_of_another_user(
    owned: Path, secret: Path, opening: str
) -> None:
    (owned / "lock").hardlink_to(secret)
    with pytest.raises(errors.BeanstalkdError, match="lock: it is a hard link to a file of an"):
        if opening == "C":
            with Rig(owned):
                pass
        else:
            FileLock(owned / "lock")
    (owned / "lock").unlink()
    (owned / "lock").touch()
    own(owned)
    (owned / "copy").hardlink_to(owned / "lock")  # as with "cp -al"
    FileLock(owned / "lock").close()
    with Rig(owned):
        pass


# --- rules shared by Python and C -----------------------------------------------------------------


def by_python(path: Path) -> int:
    try:
        with symlinks.opened(path):
            return 0
    except OSError as error:
        assert error.filename == str(path)
        return error.errno or -1


def by_c(path: Path) -> int:
    try:
        Reader(str(path), 5).close()
    except OSError as error:
        return error.errno or -1
    return 0


@pytest.mark.parametrize("opening", [by_python, by_c])
def test_which_links_are_followed(
    tmp_path: Path, opening: Callable[[Path], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "file").touch()
    link(tmp_path / "root's", Path("a"), 0)
    link(tmp_path / "absolute", folder, 0)
    link(tmp_path / "up", Path("a/b/../../root's/b"), 0)
    link(tmp_path / "owner's", Path("a"))
    link(tmp_path / "over", Path("owner's/b"), 0)
    link(tmp_path / "round", Path("round"), 0)
    link(tmp_path / "nowhere", Path("not there"), 0)
    monkeypatch.chdir(tmp_path)
    expected = {
        "a/b": 0,
        "./a//b/": 0,
        "a/b/..": 0,
        "root's/b": 0,
        "absolute": 0,
        "up": 0,
        "owner's": errno.EREMCHG,
        "owner's/b": errno.EREMCHG,
        "over": errno.EREMCHG,
        "a/../over": errno.EREMCHG,
        "round": errno.ELOOP,
        "nowhere": errno.ENOENT,
        "a/c": errno.ENOENT,
        "a/b/file": errno.ENOTDIR,
        "a/b/file/c": errno.ENOTDIR,
        "a/" + "x" * 300: errno.ENAMETOOLONG,
        "/": 0,
        ".": 0,
    }
    assert {path: opening(Path(path)) for path in expected} == expected
    assert {path: opening(tmp_path / path) for path in expected} == expected


def file_by_python(path: Path) -> int:
    try:
        os.close(open_regular(path))
    except OSError as error:
        assert error.filename == str(path)
        return error.errno or -1
    return 0


def file_by_c(path: Path) -> int:
    reader = Reader(str(path.parent), 5)
    try:
        reader.open(int(path.suffix[1:]), path.name)
    except OSError as error:
        return error.errno or -1
    finally:
        reader.close()
    return 0


@pytest.mark.parametrize("opening", [file_by_python, file_by_c])
def test_which_links_to_files_are_followed(place: Path, opening: Callable[[Path], int]) -> None:
    (place / "folder").mkdir()
    (place / "file").write_bytes(b"\7\0\0\0")
    link(place / "owner's folder", Path())
    link(place / "root's folder", place, 0)
    link(place / "owner's file", Path("file"))
    link(place / "root's file", Path("folder/../file"), 0)
    targets = [
        ("file", 0, 0),
        (place / "file", 0, 0),
        ("root's folder/root's file", 0, 0),
        ("folder/../file", 0, 0),
        ("file", OWNER, errno.EREMCHG),
        ("owner's file", 0, errno.EREMCHG),
        ("owner's folder/file", 0, errno.EREMCHG),
        ("nowhere", 0, errno.ENOENT),
        ("nowhere/file", 0, errno.ENOENT),
        ("folder", 0, errno.EMEDIUMTYPE),
        ("folder/", 0, errno.EMEDIUMTYPE),
        ("/", 0, errno.EMEDIUMTYPE),
    ]
    for number, (target, owner, _) in enumerate(targets, 1):
        link(place / f"binlog.{number}", Path(target), owner)
    found = [opening(place / f"binlog.{number}") for number in range(1, len(targets) + 1)]
    assert found == [expected for _, _, expected in targets]


def test_a_link_to_a_file_of_the_same_user_is_followed(place: Path) -> None:
    (place / "file").write_bytes(b"\7\0\0\0")
    link(place / "binlog.1", Path("file"))
    (place / "file").chmod(0o644)
    os.seteuid(OWNER)
    try:
        assert file_by_python(place / "binlog.1") == 0
        assert file_by_c(place / "binlog.1") == 0
    finally:
        os.seteuid(0)


# --- histories ------------------------------------------------------------------------------------

PARTS = ["commitlog", "index", "consumequeue", "consumequeue/mails", "consumequeue/mails/0"]


@pytest.fixture
def store(place: Path) -> Path:
    folder = place / "history"
    with Store.open(folder, BY_HAND) as made:
        made.append([Message(topic="mails", body=b"one", properties={"KEYS": "1"})])
        made.dispatch()
    own(folder)
    return folder


@pytest.mark.parametrize("part", PARTS)
def test_a_store_with_a_link(store: Path, place: Path, part: str) -> None:
    """Even a link to copies of the same files; the copies are not changed."""
    of_root = place / "of-root"
    shutil.copytree(store / part, of_root)
    before = {path: path.stat().st_mtime_ns for path in of_root.rglob("*")}
    replaced(store / part, of_root)
    with pytest.raises(errors.StoreUsageError) as raised:
        Store.open(store, BY_HAND)
    assert str(raised.value) == (f"cannot open history store {store}: {refused_text(store / part)}")
    assert {path: path.stat().st_mtime_ns for path in of_root.rglob("*")} == before


@pytest.mark.parametrize("part", PARTS[:3])
def test_a_start_refuses_a_history_with_a_link(
    top: Path, store: Path, victim: Path, part: str
) -> None:
    replaced(store / part, victim)
    reported = refusal(FOLDER, "serve", "-p", str(free_port()), "-b", top, "--history", store)
    assert reported.endswith(f"cannot use history folder {store}: {refused_text(store / part)}")


def test_expiry_refuses_a_history_with_a_link(store: Path, victim: Path) -> None:
    replaced(store / "index", victim)
    done = run("history", "--store", store, "expire", "--before", "0s")
    assert done.returncode not in (0, -11) and len(done.stderr.splitlines()) == 1, done
    assert refused_text(store / "index") in done.stderr


@pytest.mark.parametrize("part", ["index", "consumequeue/other"])
def test_a_store_whose_folder_is_replaced_while_it_is_open(
    store: Path, victim: Path, part: str
) -> None:
    """Creating the next file fails, and so does removing one."""
    options = Options(sizes=SMALL, background=False)
    made = Store.open(store, options)
    try:
        folder = store / part
        if folder.exists():
            replaced(folder, victim)
        else:
            link(folder, victim)
        with pytest.raises(errors.StoreFailedError, match="is a symbolic link of user"):
            for number in range(1000):
                keys = {"KEYS": str(number)}
                made.append([Message(topic="other", body=b"x", properties=keys)])
                made.dispatch()
        for start in list(made.log.segments.starts):
            replaced(store / "commitlog", victim)
            with pytest.raises(OSError, match="is a symbolic link of user"):
                made.log.segments.remove(start)
            break
    finally:
        made.abandon()


@pytest.mark.costly
@pytest.mark.parametrize("below", ["", "history"])
def test_root_refuses_a_link_of_another_user_in_the_path_of_a_store(
    top: Path, store: Path, below: str
) -> None:
    given = top.parent / "given"
    link(given, Path() if below else store)
    folders = [given / below, given / "new"] if below else [given]
    before = sorted(top.parent.rglob("*"))
    for folder in folders:
        arguments = ("-p", str(free_port()), "-b", top, "--history", folder)
        assert refused_text(given) in refusal(FOLDER, "serve", *arguments)
    for command in (("expire", "--before", "0s"), ("verify",), ("get", "1", "--body")):
        done = run("history", "--store", folders[0], *command)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
        assert refused_text(given) in done.stderr and not done.stdout
    assert sorted(top.parent.rglob("*")) == before


def test_a_store_given_by_a_link(store: Path, place: Path) -> None:
    link(place / "given", store)
    with pytest.raises(errors.StoreUsageError, match="is a symbolic link of user"):
        Store.open(place / "given", BY_HAND)
    (place / "given").unlink()
    link(place / "given", store, 0)
    with Store.open(place / "given", BY_HAND) as opened:
        assert [message.body for message in opened.query("mails", "1")] == [b"one"]
