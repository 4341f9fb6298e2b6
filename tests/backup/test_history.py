"""A backup with a history continues it: each job that ends is archived once."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from backup.clients import Client, at_work, contents_of, killed_at_every_step
from binlog.workload import Actor
from processes import eventually
from servers import ours
from shards import TWO, tubes_of

from beanstalkd_py import errors
from beanstalkd_py.backup import snapshot as snapshots
from beanstalkd_py.backup.create import create
from beanstalkd_py.backup.open_file import OpenFile
from beanstalkd_py.backup.restore import restore, verify
from beanstalkd_py.backup.target import Target
from beanstalkd_py.history.reader import StoreReader
from beanstalkd_py.history.verify import verify as verify_store

FILE = 20_000
BACKUPS = 8
PAUSE_S = 0.3
LIMIT_S = 60.0


def archived(store: Path) -> Counter[int]:
    """Return how often each job is in a history."""
    with StoreReader.open(store) as reader:
        assert not list(verify_store(reader).faults)
        return Counter(int(message.properties["KEYS"]) for message in reader.scan())


@pytest.mark.costly
@pytest.mark.parametrize("workers", [("--workers", "1"), TWO], ids=["one-worker", "two-workers"])
def test_every_job_is_archived_once_after_a_restore(
    folder: Path, target: Target, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    count = int(workers[1])
    tubes = (b"mail", *(next(tubes_of(worker, count)) for worker in range(count)))
    clients = [Client(Actor(f"{number}", 0.3, tubes=tubes, moves=True)) for number in range(2)]
    store = tmp_path / "history"
    ended: dict[str, tuple[set[int], set[int]]] = {}
    with ours("-b", folder, "-s", FILE, "--history", store, *workers) as server:
        assert eventually((store / "store.json").exists)
        with at_work(clients, server):
            for number in range(BACKUPS):
                time.sleep(PAUSE_S)
                before = set().union(*(each.gone() for each in clients))
                create(folder, target, str(number), store)
                after = set().union(*(each.gone() | each.changing() for each in clients))
                ended[str(number)] = before, after
    files = [{file.path for file in target.load(name).files} for name in ("0", "7")]
    assert any("binlog" in path for path in files[0] - files[1]), "no file was archived"
    messages = 0
    for name, (before, after) in ended.items():
        to, history = tmp_path / name, tmp_path / f"{name}.history"
        backup = target.load(name)
        assert list(verify(backup, target)) == []
        restore(backup, target, to, history)
        messages += (history / "commitlog").is_dir()
        present = contents_of(to).keys()
        with ours("-b", to, "--history", history, *workers):
            pass
        found = archived(history)
        assert [job for job in found if found[job] > 1] == []
        assert before - found.keys() == set()
        assert found.keys() & present == set()
        assert found.keys() - after == set()
        assert not list(to.glob("**/*.done"))
        shutil.rmtree(to)
    assert messages > 0


@pytest.mark.costly
def test_files_that_are_released_after_the_history_was_opened(
    folder: Path, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This history lacks their jobs."""
    store, history = tmp_path / "history", tmp_path / "restored.history"
    with ours("-b", folder, "-s", FILE, "--history", store) as server, server.connect() as client:
        assert eventually((store / "store.json").exists)
        jobs = [client.put(b"x" * 1000) for _ in range(100)]
        first, done = folder / "binlog.1", folder / "binlog.1.done"
        assert first.exists()
        real = snapshots.open_history

        def open_history(stack: contextlib.ExitStack, folder: Path) -> list[OpenFile]:
            files = real(stack, folder)
            for job in jobs:
                client.ask(b"delete %d\r\n" % job)
            assert eventually(lambda: not first.exists() and not done.exists(), LIMIT_S)
            return files

        monkeypatch.setattr(snapshots, "open_history", open_history)
        create(folder, target, "one", store)
    restore(target.load("one"), target, tmp_path / "restored", history)
    with ours("-b", tmp_path / "restored", "--history", history):
        pass
    assert archived(history) == dict.fromkeys(jobs, 1)


def test_history_that_is_not_restored_begins_anew(
    folder: Path, target: Target, tmp_path: Path
) -> None:
    store = tmp_path / "history"
    with ours("-b", folder, "--history", store) as server, server.connect() as client:
        assert eventually((store / "store.json").exists)
        jobs = [client.put(b"body") for _ in range(3)]
        client.ask(b"delete %d\r\n" % jobs[0])
        create(folder, target, "one", store)
        create(folder, target, "without")
    restore(target.load("one"), target, tmp_path / "restored")
    assert not (tmp_path / "restored" / "history.id").exists()
    with pytest.raises(errors.ToolUsageError, match="has no history"):
        restore(target.load("without"), target, tmp_path / "other", tmp_path / "other.history")
    assert not (tmp_path / "other").exists()
    with pytest.raises(errors.ToolUsageError, match="is no history"):
        create(folder, target, "two", tmp_path)
    with pytest.raises(errors.ToolUsageError, match="is not empty"):
        restore(target.load("one"), target, tmp_path / "other", store)
    other = tmp_path / "other"
    for history in (other, other / "history", tmp_path):
        with pytest.raises(errors.ToolUsageError, match="are not apart"):
            restore(target.load("one"), target, other, history)
    assert not other.exists()


def test_a_history_that_begins_during_a_backup(
    folder: Path, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages need the identity that the folder gets then."""
    store, history = tmp_path / "history", tmp_path / "restored.history"
    with ours("-b", folder) as server, server.connect() as client:
        job = client.put(b"body")
        client.put(b"kept, so that its file stays")
    real = snapshots.open_history
    starts: list[int] = []

    def open_history(stack: contextlib.ExitStack, folder: Path) -> list[OpenFile]:
        if not starts:
            with ours("-b", binlog, "--history", store) as server, server.connect() as client:
                client.ask(b"delete %d\r\n" % job)
            starts.append(job)
        return real(stack, folder)

    binlog = folder
    monkeypatch.setattr(snapshots, "open_history", open_history)
    create(folder, target, "one", store)
    restore(target.load("one"), target, tmp_path / "restored", history)
    with ours("-b", tmp_path / "restored", "--history", history):
        pass
    assert archived(history) == {job: 1}


def test_killed_at_every_step_of_a_restore(folder: Path, target: Target, tmp_path: Path) -> None:
    """The binlog folder appears last, so no server can begin a new history beside the old one."""
    store, to, history = tmp_path / "history", tmp_path / "to", tmp_path / "to.history"
    with ours("-b", folder, "--history", store) as server, server.connect() as client:
        job = client.put(b"body")
        client.ask(b"delete %d\r\n" % job)
        names = ("store.json", "commitlog")
        assert all(eventually((store / name).exists) for name in names)
        backup = create(folder, target, "one", store).backup
    kills = 0
    for _ in killed_at_every_step(lambda steps: restore(backup, target, to, history, steps)):
        kills += 1
        if to.exists():
            break  # only the sync of its parent is left
        if history.exists():
            with pytest.raises(errors.ToolUsageError, match="is not empty"):
                restore(backup, target, to, history)
            shutil.rmtree(history)
    assert kills > len(backup.files)
    with ours("-b", to, "--history", history):
        pass
    assert archived(history) == {job: 1}
