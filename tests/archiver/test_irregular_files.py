"""FIFOs, links of other users and huge sparse files in place of the small files of a store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.commands import run
from history.stores import BY_HAND
from servers import ours

from beanstalkd_py import errors, symlinks
from beanstalkd_py.archiver.archived_position import ArchivedPositions
from beanstalkd_py.archiver.folder_identity import identity_of
from beanstalkd_py.history.files.checkpoint import Checkpoint, Dispatched
from beanstalkd_py.history.options import load_sizes
from beanstalkd_py.history.reader import StoreReader
from beanstalkd_py.history.store import Message, Store

pytestmark = pytest.mark.timeout(60)

OWNER = 64321

LOADERS: dict[str, Callable[[Path], object]] = {
    "store.json": load_sizes,
    "dispatched": lambda store: Dispatched.load(store / "dispatched"),
    "checkpoint": lambda store: Checkpoint.load(store / "checkpoint"),
    "archived": ArchivedPositions.load,
    "history.id": lambda store: identity_of(store, 0),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "history", BY_HAND) as made:
        made.append([Message(topic="mails", body=b"one")])
        made.dispatch()
    return tmp_path / "history"


@pytest.mark.parametrize("name", LOADERS)
def test_a_fifo_is_refused(store: Path, name: str) -> None:
    """Opening a FIFO would wait for a writer."""
    (store / name).unlink(missing_ok=True)
    os.mkfifo(store / name)
    with pytest.raises(OSError, match="it is not a regular file"):
        LOADERS[name](store)


@pytest.mark.parametrize("name", LOADERS)
def test_a_link_of_another_user_is_refused(store: Path, tmp_path: Path, name: str) -> None:
    """Root would copy the target's contents into a file that the owner of the folder can read."""
    (tmp_path / "secret").write_bytes(b"{}")
    (store / name).unlink(missing_ok=True)
    (store / name).symlink_to(tmp_path / "secret")
    os.chown(store / name, OWNER, OWNER, follow_symlinks=False)
    with pytest.raises(OSError, match="is a symbolic link of user") as raised:
        LOADERS[name](store)
    assert raised.value.errno == symlinks.UNTRUSTED


@pytest.mark.parametrize("name", LOADERS)
def test_a_hole_is_not_read(store: Path, name: str) -> None:
    (store / name).write_bytes(b"")
    os.truncate(store / name, 1 << 42)
    with contextlib.suppress(errors.StoreError):
        LOADERS[name](store)


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/mails/0"])
def test_a_fifo_among_the_data_is_refused(store: Path, folder: str) -> None:
    path = next((store / folder).iterdir())
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="it is not a regular file"):
        StoreReader.open(store)


@pytest.mark.parametrize("name", ["store.json", "dispatched", "archived"])
def test_commands_report_a_fifo(store: Path, name: str) -> None:
    (store / name).unlink(missing_ok=True)
    os.mkfifo(store / name)
    done = run("history", "--store", store, "verify")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    assert f"{store / name}: it is not a regular file" in done.stderr


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("history", "--store", tmp_path / "file", "verify")
    assert (done.returncode, done.stderr.count("is no history store")) == (2, 1), done


@pytest.mark.costly
@pytest.mark.parametrize("name", ["store.json", "dispatched", "history.id"])
def test_a_server_starts_and_stops_beside_a_fifo(tmp_path: Path, name: str) -> None:
    """Jobs are served; the archiver, which cannot work, is restarted."""
    folder, store = tmp_path / "binlog", tmp_path / "history"
    folder.mkdir()
    with ours("-b", folder, "--history", store):
        pass
    path = (folder if name == "history.id" else store) / name
    path.unlink()
    os.mkfifo(path)
    with ours("-b", folder, "--history", store) as server:
        with server.connect() as client:
            client.put()
            assert client.ask(b"delete 1\r\n") == b"DELETED\r\n"
        server.stop()
        assert "it is not a regular file" in server.stderr()
