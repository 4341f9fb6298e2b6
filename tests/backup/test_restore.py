"""Damaged backups, folders that are refused, and commands that are killed."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
from backup.clients import killed_at_every_step
from binlog.workload import Actor, check, run_steps
from cli.commands import run
from core.rig import SECOND, Rig
from servers import ours
from shards import TWO

from beanstalkd_py import errors
from beanstalkd_py.backup import create as creating
from beanstalkd_py.backup.create import create
from beanstalkd_py.backup.restore import restore, verify
from beanstalkd_py.backup.target import Backup, Target
from beanstalkd_py.replication.replica_state import ReplicaState, save_replica

FILE = 4096
KILLED = 77


@pytest.fixture
def actor(folder: Path) -> Actor:
    one = Actor("restore")
    with Rig(folder, file_size=FILE) as rig:
        run_steps(one, rig.client(), 200)
    return one


def chunks(target: Target) -> list[Path]:
    return sorted(Path(target.url, "chunks").iterdir())


def test_damage_is_found_and_not_restored(
    folder: Path, actor: Actor, target: Target, tmp_path: Path
) -> None:
    backup = create(folder, target, "one").backup
    for path in chunks(target):
        whole = path.read_bytes()
        for damaged in (None, whole[:-1], bytes([whole[0] ^ 1]) + whole[1:], b""):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            assert len(list(verify(backup, target))) == 1
            with pytest.raises(errors.PipelineError):
                restore(backup, target, tmp_path / "restored")
            assert not (tmp_path / "restored").exists()
            path.write_bytes(whole)
    restore(backup, target, tmp_path / "restored")
    with Rig(tmp_path / "restored", file_size=FILE) as rig:
        check([actor], rig)


def test_the_folder_of_a_standby_is_refused(folder: Path, actor: Actor, target: Target) -> None:
    """It may have few of the jobs, and bytes that the primary never had."""
    for is_primary in (False, True):
        save_replica(folder, ReplicaState("identity", is_primary=is_primary))
        if is_primary:
            assert create(folder, target, "one").backup
        else:
            done = run("backup", "create", "-b", folder, "--to", target.url)
            assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done
            assert "is the copy of a standby" in done.stderr
            assert target.names() == []


def test_the_next_backup_writes_removed_chunks_again(
    folder: Path, actor: Actor, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creating, "SETTLED_S", -1.0)
    create(folder, target, "one")
    for path in chunks(target)[::2]:
        path.unlink()
    target = Target(target.url)
    assert list(verify(create(folder, target, "two").backup, target)) == []
    restore(target.load("one"), target, tmp_path / "restored")
    with Rig(tmp_path / "restored", file_size=FILE) as rig:
        check([actor], rig)


@pytest.mark.parametrize("bits", range(0, 64, 7))
def test_a_damaged_manifest_is_refused_or_names_other_files(
    folder: Path, actor: Actor, target: Target, tmp_path: Path, bits: int
) -> None:
    create(folder, target, "one")
    path = Path(target.url, "one.json")
    data = bytearray(path.read_bytes())
    for at in range(bits, 8 * len(data), 64):
        data[at // 8] ^= 1 << at % 8
        path.write_bytes(data)
        try:
            backup = target.load("one")
        except errors.PipelineError:
            continue
        finally:
            data[at // 8] ^= 1 << at % 8
        assert all(".." not in file.path and file.path[0] != "/" for file in backup.files)


def test_only_empty_folders_are_written_to(
    folder: Path, actor: Actor, target: Target, tmp_path: Path
) -> None:
    backup = create(folder, target, "one").backup
    used = tmp_path / "used"
    used.mkdir()
    (used / "binlog.1").write_bytes(b"jobs")
    with pytest.raises(errors.ToolUsageError, match="not empty"):
        restore(backup, target, used)
    with pytest.raises(errors.ToolUsageError, match="no directory"):
        restore(backup, target, tmp_path / "missing" / "folder")
    assert [path.name for path in used.iterdir()] == ["binlog.1"]
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o750)
    restore(backup, target, empty)
    assert empty.stat().st_mode & 0o777 == 0o750
    with Rig(empty, file_size=FILE) as rig:
        check([actor], rig)


def test_killed_at_every_step_of_a_restore(
    folder: Path, actor: Actor, target: Target, tmp_path: Path
) -> None:
    backup = create(folder, target, "one").backup
    to = tmp_path / "restored"
    kills = 0
    for _ in killed_at_every_step(lambda steps: restore(backup, target, to, steps=steps)):
        kills += 1
        if to.exists():
            break  # only the sync of its parent is left
    assert kills > len(backup.files)
    with Rig(to, file_size=FILE) as rig:
        check([actor], rig)


def test_a_killed_command_leaves_no_backup(folder: Path, actor: Actor, target: Target) -> None:
    """The chunks that it has written serve the next backup."""
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from beanstalkd_py.backup.create import create\n"
        "from beanstalkd_py.backup.target import Target\n"
        "Target.save = lambda self, backup: os._exit(77)\n"
        "create(Path(sys.argv[1]), Target(sys.argv[2]), 'killed')\n"
    )
    command = [sys.executable, "-c", script, str(folder), target.url]
    assert subprocess.run(command, check=False).returncode == KILLED
    assert target.names() == [] and chunks(target)
    assert create(folder, target, "next").written == 0


def test_removed_backups(folder: Path, target: Target, tmp_path: Path) -> None:
    """The others keep their chunks, and those of a killed command go."""
    moments: dict[str, Actor] = {}
    with Rig(folder, file_size=FILE) as rig:
        client, acting = rig.client(), Actor("prune")
        for name in ("1", "2", "3"):
            run_steps(acting, client, 100)
            rig.advance(SECOND)
            create(folder, target, name)
            moments[name] = copy.deepcopy(acting)
    target.put_chunk(b"of a killed command")
    count = len(chunks(target))
    assert 1 < target.remove(["1", "2"]) < count
    assert target.names() == ["3"] and target.remove([]) == 0
    assert list(verify(target.load("3"), target)) == []
    restore(target.load("3"), target, tmp_path / "restored")
    with Rig(tmp_path / "restored", file_size=FILE) as rig:
        check([moments["3"]], rig)


def test_chunks_that_are_removed_during_a_backup(
    folder: Path, actor: Actor, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Target.save

    def save(self: Target, backup: Backup) -> None:
        chunks(target)[0].unlink()
        real(self, backup)

    monkeypatch.setattr(Target, "save", save)
    with pytest.raises(errors.PipelineError, match="were removed"):
        create(folder, target, "one")
    assert target.names() == []


def test_a_divided_folder_is_guarded_again(folder: Path, target: Target, tmp_path: Path) -> None:
    """C beanstalkd refuses to start in it, and a server with other workers reshards it."""
    to = tmp_path / "restored"
    with ours("-b", folder, *TWO) as server, server.connect() as client:
        for number in range(20):
            client.ask(b"use tube-%d\r\n" % number)
            client.put(b"x")
    restore(create(folder, target, "one").backup, target, to)
    assert (to / "lock").is_symlink() and not (to / "lock").exists()
    with ours("-b", to, "--workers", "3") as server, server.connect() as client:
        assert b"current-jobs-ready: 20\n" in client.ask(b"stats\r\n")


@pytest.mark.costly
def test_the_commands(folder: Path, actor: Actor, tmp_path: Path) -> None:
    backups, to = tmp_path / "backups", tmp_path / "restored"
    done = run("backup", "create", "-b", folder, "--to", backups, "--name", "one")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.startswith("one: ")
    again = run("backup", "create", "-b", folder, "--to", backups, "--name", "one")
    assert again.returncode == 2 and "there is a backup one" in again.stderr
    assert run("backup", "list", backups).stdout.startswith("one  20")
    assert "undamaged" in run("backup", "verify", backups).stderr
    done = run("backup", "restore", backups, "-b", to)
    assert done.returncode == 0 and done.stderr.startswith("beanstalkd-py: restored one of ")
    with Rig(to, file_size=FILE) as rig:
        check([actor], rig)
    pruned = run("backup", "prune", backups, "--keep", "1", "--json")
    assert json.loads(pruned.stdout) == {"removed": [], "chunks_removed": 0}
    chunks(Target(str(backups)))[0].write_bytes(b"")
    damaged = run("backup", "verify", backups, "one")
    assert damaged.returncode == 1 and "binlog." in damaged.stdout
    refused = run("backup", "restore", backups, "-b", tmp_path / "other")
    assert refused.returncode == 1 and "another hash" in refused.stderr


@pytest.mark.costly
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("create", "-b", "/missing", "--to", "TARGET"), "does not exist"),
        (("create", "-b", "FOLDER", "--to", "TARGET", "--name", "../x"), "cannot be the name"),
        (("create", "-b", "FOLDER", "--to", "/tmp/*"), "wildcards"),
        (("create", "-b", "FOLDER", "--to", "nothing://x/y"), "cannot open"),
        (("verify", "TARGET"), "there is no backup in"),
        (("verify", "TARGET", "one"), "there is no backup one"),
        (("restore", "TARGET", "-b", "FOLDER"), "there is no backup in"),
        (("create", "-b", "FOLDER", "--to", "TARGET", "--history", "FOLDER"), "is no history"),
        (("prune", "TARGET", "--keep", "0"), "--keep"),
    ],
)
def test_mistakes(
    folder: Path, actor: Actor, tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    places = {"FOLDER": str(folder), "TARGET": str(tmp_path / "backups")}
    done = run("backup", *(places.get(word, word) for word in words))
    assert done.returncode == 2 and reason in done.stderr, done
    assert len(done.stderr.splitlines()) == 1
