"""Shipping binlogs: each file once, and what a reader of the target finds."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from binlog.reader import files
from binlog.workload import Actor, run_steps
from core.rig import SECOND, START, Rig
from fsspec.implementations.local import LocalFileSystem
from pipeline.plain import Row, rows
from pipeline.sources.test_following import follow, taken

from beanstalkd_py.archiver.shipped_files import unshipped_from
from beanstalkd_py.binlog import folders
from beanstalkd_py.binlog.layout import HIGHEST_NUMBER, HISTORY_ID
from beanstalkd_py.core.clocks import Now
from beanstalkd_py.errors import DataLossError, PipelineError, PipelineUsageError
from beanstalkd_py.pipeline.binlogs import ship as shipping
from beanstalkd_py.pipeline.binlogs.follower import BinlogFollower
from beanstalkd_py.pipeline.binlogs.manifest import Manifest, MissingFiles, ShippedFile
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.binlogs.ship import Shipment, ship
from beanstalkd_py.pipeline.sources import remote
from beanstalkd_py.pipeline.sources.follower import UNLIMITED, Budget, Position
from beanstalkd_py.pipeline.sources.remote import RemotePath, list_files

FILE = 4096
DAY = 86_400 * SECOND


@contextlib.contextmanager
def serving(folder: Path, now: Now = START) -> Iterator[Rig]:
    """A server in this process, whose own lock a process does not see."""
    with Rig(folder, file_size=FILE, now=now) as rig, pytest.MonkeyPatch.context() as patch:
        patch.setattr(folders, "holder_of", lambda lock: 1)
        yield rig


def plan_of(target: str) -> BinlogPlan:
    return BinlogPlan.of({"path": f"{target}/*", "includeBody": "true"})


def follower_of(target: str) -> BinlogFollower:
    return BinlogFollower(plan_of(target), fail_on_loss=True, wait=lambda seconds: None)


def without_place(found: list[Row]) -> list[Row]:
    """Rows without host and path, which differ at the target."""
    return [{**row, "host": None, "path": None} for row in found]


def manifest_of(target: str, host: str = "here") -> Manifest:
    return Manifest.load(RemotePath.of(f"{target}/{host}"))


def names_at(target: str) -> list[str]:
    return sorted(url.rpartition("/")[2] for url, _ in list_files(target))


def with_jobs(rig: Rig, count: int) -> None:
    """Put jobs, six of which fill a file."""
    client = rig.client()
    for _ in range(count):
        client.put(b"x" * 500)
    rig.advance(SECOND)


def written(folder: Path) -> list[Path]:
    return [path for path in files(folder) if any(path.read_bytes()[4:])]


def archive(folder: Path) -> None:
    """Link complete files as a server does, also those that it will remove."""
    for path in written(folder)[:-1]:
        kept = folder / (path.name + ".done")
        if not kept.exists():
            kept.hardlink_to(path)


def test_every_file_is_copied_once_and_every_entry_follows(folder, target):
    dice = random.Random(target)
    position: Position = {}
    found: list[Row] = []
    shipments: list[Shipment] = []
    with serving(folder) as rig:
        client, actor = rig.client(), Actor("ship", put_share=0.5)
        for _ in range(12):
            run_steps(actor, client, dice.randrange(30))
            archive(folder)
            rig.advance(SECOND)
            shipments.append(ship(folder, target, "here"))
            if not any(each.files for each in shipments):
                continue
            budget = dice.choice([UNLIMITED, Budget(files=1), Budget(rows=5), Budget(size=700)])
            end = follower_of(target).after(position, budget)
            found += taken(follower_of(target), position, end)
            position = end
    shipments.append(ship(folder, target, "here"))
    end = follower_of(target).after(position, UNLIMITED)
    found += taken(follower_of(target), position, end)
    expected = without_place(rows(follow(folder)._plan))
    assert without_place(found) == expected and len(expected) > 100
    assert without_place(rows(plan_of(target))) == expected
    manifest = manifest_of(target)
    numbers = [line.file for line in manifest.lines if isinstance(line, ShippedFile)]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 5
    assert sum(each.files for each in shipments) == len(numbers) == len(manifest.lines)
    assert names_at(target) == sorted(["_manifest.jsonl", *(f"binlog.{n}" for n in numbers)])
    assert follower_of(target).after(end, UNLIMITED) == end


def test_the_file_that_is_written_to_waits_for_the_next_run_or_the_stop(folder, tmp_path):
    target = str(tmp_path / "target")
    with serving(folder) as rig:
        with_jobs(rig, 20)
        last = written(folder)[-1].name
        first = ship(folder, target, "here")
        assert first.files > 2 and last not in names_at(target)
        assert ship(folder, target, "here").files == 0
    assert ship(folder, target, "here").files == 1
    assert last in names_at(target)
    with serving(folder) as rig:
        with_jobs(rig, 20)
        assert ship(folder, target, "here").files > 2
    ship(folder, target, "here")
    assert without_place(rows(plan_of(target))) == without_place(rows(follow(folder)._plan))


def test_a_run_that_failed_before_its_manifest_is_repeated(folder, target, monkeypatch):
    with serving(folder) as rig:
        with_jobs(rig, 30)
    write, calls = RemotePath.write, []

    def failing(path: RemotePath, data: Any) -> None:
        calls.append(path.path)
        if len(calls) == 4 or path.path.endswith("_manifest.jsonl"):
            raise OSError("no network")
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(RemotePath, "write", failing)
        with pytest.raises(OSError, match="no network"):
            ship(folder, target, "here")
    assert "_manifest.jsonl" not in names_at(target) and len(names_at(target)) == 3
    shipment = ship(folder, target, "here")
    assert shipment.files == len(written(folder)) and not shipment.missing
    assert without_place(rows(plan_of(target))) == without_place(rows(follow(folder)._plan))


def test_what_was_copied_before_an_error_is_in_the_manifest(folder, target, monkeypatch):
    with serving(folder) as rig:
        with_jobs(rig, 30)
    write = RemotePath.write

    def failing(path: RemotePath, data: Any) -> None:
        if path.path.endswith("binlog.4"):
            raise OSError("no network")
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(RemotePath, "write", failing)
        with pytest.raises(OSError, match="no network"):
            ship(folder, target, "here")
    assert [line.file for line in manifest_of(target).files("")] == [1, 2, 3]
    assert ship(folder, target, "here").files == len(written(folder)) - 3


def test_the_archiver_keeps_files_from_the_start_of_the_first_run(folder, target, monkeypatch):
    with serving(folder) as rig:
        with_jobs(rig, 10)
    (folder / HISTORY_ID).write_text("folder-a\n")
    assert unshipped_from(folder, "folder-a") > HIGHEST_NUMBER
    kept = []
    write = RemotePath.write

    def looking(path: RemotePath, data: Any) -> None:
        kept.append(unshipped_from(folder, "folder-a"))
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(RemotePath, "write", looking)
        ship(folder, target, "here")
    assert kept and set(kept) == {1}
    assert unshipped_from(folder, "folder-a") == len(written(folder)) + 1


def test_a_file_is_never_there_in_part(folder, tmp_path, monkeypatch):
    """A kill while a file is written leaves only a name that readers ignore."""
    target = str(tmp_path / "target")
    with serving(folder) as rig:
        with_jobs(rig, 10)

    def killed(descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            ship(folder, target, "here")
    assert all(name.startswith("_") for name in names_at(target))
    ship(folder, target, "here")
    assert without_place(rows(plan_of(target))) == without_place(rows(follow(folder)._plan))


def test_removed_files_are_reported_once(folder, target):
    with serving(folder) as rig:
        with_jobs(rig, 12)
        ship(folder, target, "here")
        last = manifest_of(target).last("")
        with_jobs(rig, 24)
        for number in (last.file + 1, last.file + 2):
            (folder / f"binlog.{number}").unlink()
        shipment = ship(folder, target, "here")
        assert shipment.missing == (
            f"binlog.{last.file + 1} to binlog.{last.file + 2} of {folder}",
        )
        gap = MissingFiles("", (last.file + 1, last.file + 2))
        assert gap in manifest_of(target).lines
        assert ship(folder, target, "here").missing == ()
    with pytest.raises(DataLossError, match=rf"binlog.{last.file + 1} of {target}/here is gone"):
        follower_of(target).after({}, UNLIMITED)
        start: Position = {f"{target}/here": {"file": last.file, "offset": 0}}
        follower_of(target).after(start, UNLIMITED)


def test_a_folder_that_was_begun_anew_gets_a_folder_of_its_own(folder, target):
    made: list[Row] = []
    for day in range(3):
        with serving(folder, Now(START.mono, START.wall + day * DAY)) as rig:
            with_jobs(rig, 12)
        assert ship(folder, target, "here").files > 1
        assert ship(folder, target, "here").files == 0
        made += without_place(rows(follow(folder)._plan))
        shutil.rmtree(folder)
        folder.mkdir()
    found = rows(plan_of(target))
    assert {row["host"] for row in found} == {"here", "here~2", "here~3"}
    assert without_place(found) == made


def test_a_damaged_manifest_is_not_replaced(folder, target):
    with serving(folder) as rig:
        with_jobs(rig, 12)
    ship(folder, target, "here")
    place = RemotePath.of(f"{target}/here/_manifest.jsonl")
    line = place.read().splitlines()[0]
    for damaged in (
        b'{"shard": "", "fi',
        b"\xff\n",
        b"[" * 100_000,
        line.replace(b'"file": 1', b'"file": "1"'),
        line.replace(b'"file": 1', b'"file": 1.5'),
        line.replace(b'"file": 1', b'"file": -1'),
        line.replace(b'"identity": ""', b'"identity": null'),
        line.replace(b'"shard": ""', b'"shard": 1'),
        b'{"shard": "", "missing": [9, 4]}',
        b'{"shard": "", "missing": [4, 99999999999999999999]}',
    ):
        place.write(damaged)
        with pytest.raises(PipelineError, match="is not a manifest"):
            ship(folder, target, "here")
        assert place.read() == damaged


def test_files_of_a_server_that_starts_meanwhile_are_not_complete(folder, tmp_path, monkeypatch):
    target = str(tmp_path / "target")
    with serving(folder) as rig:
        with_jobs(rig, 20)
    inspect, calls = shipping.inspect_files, list[bool]()
    rigs: list[Rig] = []
    with contextlib.ExitStack() as stack:

        def starting(top: Path) -> folders.Folder:
            found = inspect(top)
            calls.append(found.live)
            if len(calls) == 2:
                rigs.append(stack.enter_context(serving(folder)))
                with_jobs(rigs[0], 1)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(shipping, "inspect_files", starting)
            ship(folder, target, "here")
        assert calls == [False, False]
        with_jobs(rigs[0], 20)
    ship(folder, target, "here")
    assert without_place(rows(plan_of(target))) == without_place(rows(follow(folder)._plan))


def test_a_lock_that_cannot_be_read_is_refused(folder, tmp_path, monkeypatch):
    """Otherwise a running server would be taken for stopped, and its current file for complete."""
    with serving(folder) as rig:
        with_jobs(rig, 10)
    access = os.access

    def without_lock(path: Path, *mode: int, **more: Any) -> bool:
        return path != folder / "lock" and access(path, *mode, **more)

    monkeypatch.setattr("os.access", without_lock)
    with pytest.raises(PipelineUsageError, match=r"cannot open .*/lock to see whether a server"):
        ship(folder, str(tmp_path / "target"), "here")


@pytest.mark.parametrize("name", ["q[1]", "q*", "q{a,b}", "q?"])
def test_the_name_of_a_folder_is_not_a_glob(tmp_path, name):
    target = str(tmp_path / "target")
    for number, each in enumerate((name, "q1", "qa"), 1):
        (tmp_path / each).mkdir()
        with serving(tmp_path / each) as rig:
            with_jobs(rig, 10 * number)
    ship(tmp_path / name, target, "here")
    assert [row["kind"] for row in rows(plan_of(target))].count("full") == 10


def test_a_failed_write_leaves_nothing(folder, tmp_path, monkeypatch):
    """Otherwise the retries of each minute fill a file system."""
    target = str(tmp_path / "target")
    with serving(folder) as rig:
        with_jobs(rig, 10)

    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with monkeypatch.context() as patch:
        patch.setattr(remote, "_sync", full)
        Path(target, "here").mkdir(parents=True)
        with pytest.raises(OSError, match="No space left"):
            ship(folder, target, "here")
    assert names_at(target) == []


class _SftpLike(LocalFileSystem):  # type: ignore[misc]
    """Renames as fsspec's SFTPFileSystem does, whose method takes two arguments."""

    protocol = "sftplike"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("sftplike://").rstrip("/")

    def mv(self, old: str, new: str) -> None:
        Path(old).replace(new)


def test_a_rename_of_sftp_takes_two_paths(folder, tmp_path):
    fsspec.register_implementation("sftplike", _SftpLike)
    target = f"sftplike://{tmp_path}/target"
    for _ in range(2):
        with serving(folder) as rig:
            with_jobs(rig, 10)
        assert ship(folder, target, "here").files > 1
    assert without_place(rows(plan_of(target))) == without_place(rows(follow(folder)._plan))


def test_new_folders_are_synced(folder, tmp_path, monkeypatch):
    """Otherwise a power cut takes files that the server has removed."""
    with serving(folder) as rig:
        with_jobs(rig, 10)
    synced = []
    monkeypatch.setattr(remote, "_sync", lambda path: synced.append(path))
    ship(folder, str(tmp_path / "new" / "target"), "here")
    assert {str(tmp_path), str(tmp_path / "new"), str(tmp_path / "new" / "target")} < set(synced)


def test_the_folder_of_one_worker_is_no_binlog_folder(tmp_path):
    (tmp_path / "shard-000").mkdir()
    with serving(tmp_path / "shard-000") as rig:
        with_jobs(rig, 10)
    with pytest.raises(PipelineUsageError, match="give the folder above it"):
        ship(tmp_path / "shard-000", str(tmp_path / "target"), "here")


@pytest.mark.parametrize("target", ["", "s3://queues/binlogs/*", "/tmp/a[1]", "/tmp/{a,b}"])
def test_a_target_has_no_wildcard(folder, target):
    Rig(folder).close()
    with pytest.raises(PipelineUsageError, match="is not the path of a folder"):
        ship(folder, target, "here")


@pytest.mark.parametrize(
    "host", ["", "a/b", "_hidden", "..", "shard-001", "binlog.5", "h*", "h[1]", "h\n", "h\0"]
)
def test_a_host_has_to_be_the_name_of_a_folder(folder, tmp_path, host):
    with pytest.raises(PipelineUsageError, match="cannot be the name of a folder"):
        ship(folder, str(tmp_path), host)


def test_one_run_at_a_time(folder, tmp_path):
    Rig(folder).close()
    with (
        shipping._locked(folder),
        pytest.raises(PipelineUsageError, match="is being shipped by another process"),
    ):
        ship(folder, str(tmp_path / "target"), "here")


def test_an_unknown_file_system_and_a_path_without_binlogs(folder, bucket):
    Rig(folder).close()
    with pytest.raises(PipelineUsageError, match=r"cannot open nosuch://place/: .* of fsspec"):
        ship(folder, "nosuch://place/x", "here")
    with pytest.raises(PipelineUsageError, match=r"has no binlog files; give the folder of a host"):
        plan_of(f"{bucket}/nothing").find()


def test_an_unreachable_store_is_no_damage(folder, bucket, monkeypatch):
    """Another try of the task may read the file."""
    target = f"{bucket}/unreachable"
    with serving(folder) as rig:
        with_jobs(rig, 20)
    ship(folder, target, "here")
    plan = plan_of(target)
    tasks = plan.tasks(1)

    def refuse(*_: object) -> bytes:
        raise OSError("no network")

    monkeypatch.setattr(RemotePath, "read", refuse)
    with pytest.raises(OSError, match="no network"):
        list(plan.read(tasks[0]))


def test_a_cut_file_is_damage_if_a_later_one_was_shipped(folder, target):
    with serving(folder) as rig:
        with_jobs(rig, 20)
    ship(folder, target, "here")
    cut = RemotePath.of(f"{target}/here/binlog.2")
    cut.write(cut.read().rstrip(b"\0")[:-300])
    faults = [row["_corrupt_record"] for row in rows(plan_of(target)) if row["_corrupt_record"]]
    assert len(faults) == 1 and faults[0].startswith("unreadable entry: ")
