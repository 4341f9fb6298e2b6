"""Machines that lack the files of a read, and files that are removed before they are read."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest
from core.rig import Rig, put_line
from history.stores import opened, some_messages
from pipeline.plain import rows

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.binlogs.entries import BinlogFile
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.sources.reach import SAMPLE, sample_of
from beanstalkd_py.pipeline.stores.plan import StorePlan

HOST = socket.gethostname()


def fill(folder: Path, jobs: int) -> Path:
    folder.mkdir()
    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        for _ in range(jobs):
            client.send(put_line(b"x" * 200))
    return folder


def read(plan: BinlogPlan | StorePlan, tasks) -> list[dict]:
    """Read as the tasks of Spark do."""
    known = sample_of(tasks)
    return [
        row for files in tasks for batch in plan.read(files, known) for row in batch.to_pylist()
    ]


def test_a_relative_path_is_absolute_for_tasks(tmp_path, monkeypatch):
    fill(tmp_path / "a", 1)
    monkeypatch.chdir(tmp_path)
    for path in ("a", "./a/", "a/binlog.*"):
        plan = BinlogPlan.of({"path": path})
        monkeypatch.chdir("/")
        assert [row["id"] for row in rows(plan)] == [1]
        monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
@pytest.mark.parametrize("loss", ["folder", "files", "content", "access"])
def test_a_machine_without_the_files_fails_the_read(tmp_path, mode, loss, monkeypatch):
    """Whatever the mode: no rows and no error would be taken for an empty binlog."""
    folder = fill(tmp_path / "a", 60)
    plan = BinlogPlan.of({"path": str(folder), "mode": mode})
    tasks = plan.tasks(3)
    missing = "No such file or directory"
    match loss:
        case "folder":
            shutil.rmtree(folder)
        case "files":  # another server has its binlog there
            for path in folder.glob("binlog.*"):
                path.unlink()
            (folder / "binlog.99").write_bytes(b"\7\0\0\0")
        case "content":  # a file system that is not mounted
            shutil.rmtree(folder)
            folder.mkdir()
        case "access":  # not by chmod, which does not stop root
            missing = "Permission denied"
            monkeypatch.setattr(os, "open", refused)
    named = folder / "binlog.1" if loss == "files" else folder
    with pytest.raises(PipelineUsageError, match=f"{HOST} cannot open .*{named}.*: {missing};"):
        read(plan, tasks)


def refused(path, *args, **kwargs):
    raise PermissionError(13, "Permission denied", str(path))


def test_a_store_that_a_machine_lacks_fails_the_read(tmp_path):
    with opened(tmp_path / "store") as store:
        store.append(some_messages(seed=1, count=20))
        store.dispatch()
        store.flush()
    for view in ("messages", "queues", "index"):
        plan = StorePlan.of({"path": str(tmp_path / "store"), "view": view})
        tasks = plan.tasks(2)
        assert read(plan, tasks)
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        with pytest.raises(PipelineUsageError, match=f"host {HOST} cannot open any file in"):
            read(plan, tasks)
        (tmp_path / "elsewhere").rename(tmp_path / "store")


def test_one_of_several_folders_may_be_missing(tmp_path):
    fill(tmp_path / "a", 1)
    fill(tmp_path / "b", 1)
    plan = BinlogPlan.of({"path": f"{tmp_path}/*"})
    tasks = plan.tasks(1)
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(PipelineUsageError, match=f"cannot open any file in {tmp_path}/b, where"):
        read(plan, tasks)


def test_removed_files_are_counted_and_logged(tmp_path, caplog):
    folder = fill(tmp_path / "a", 60)
    plan = BinlogPlan.of({"path": str(folder)})
    tasks = plan.tasks(3)
    whole = read(plan, tasks)
    for number in (1, 2):
        (folder / f"binlog.{number}").unlink()
    left = read(plan, tasks)
    removed = [row for row in left if row["_corrupt_record"]]
    assert [row["file"] for row in removed] == ["binlog.1", "binlog.2"]
    assert [row for row in left if not row["_corrupt_record"]] == [
        row for row in whole if row["file_number"] > 2
    ]
    assert caplog.text.count("it was removed before it was read") == 2
    # Files that were archived meanwhile are there.
    for path in list(folder.glob("binlog.*")):
        path.rename(path.with_name(path.name + ".done"))
    assert len(read(plan, tasks)) == len(left)


def test_a_sample_spreads_over_the_read():
    def sampled(count: int) -> list[int]:
        files = [BinlogFile(f"/{n}", "h", "", n, 1) for n in range(count)]
        return [file.number for file in sample_of([files[: count // 3], files[count // 3 :]])]

    assert sampled(0) == []
    assert sampled(3) == [2, 1, 0]
    many = sampled(1000)
    assert many[0] == 999 and min(many) < 20 and len(set(many)) == len(many) <= SAMPLE
