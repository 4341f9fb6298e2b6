"""Changes of the export log, killed at every step."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from pipeline.jobs.killing import Killed, killed_at

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs.export.files import File, Files
from beanstalkd_py.pipeline.jobs.export.log import ExportLog, Record, Run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def log_at(spark, top: str) -> ExportLog:
    return ExportLog(Files(spark, top), "data", "_own")


def content(top: Path) -> list[str]:
    """Return the contents of the data set, a word for each file."""
    return sorted(path.read_text() for path in (top / "data").rglob("*.parquet"))


def stage(log: ExportLog, files: Files, *words: str) -> str:
    staged = log.staging()
    for place, word in enumerate(words):
        files.write(f"{staged}/date=d/tube=a%2Fb/part-{place}.parquet", word)
    files.write(f"{staged}/_SUCCESS", "")
    return staged


def changes(spark, top: str) -> None:
    """Apply the missing ones of three changes: two words, two more, and all four in one file."""
    log = log_at(spark, top)
    log.recover()
    files = Files(spark, top)
    run = Run(log.new_run(), 1)
    if log.last.number == 0:
        log.change(Record(position={"in": 1}, runs=(run,)), stage(log, files, "a", "b"))
    if log.last.number == 1:
        log.change(Record(position={"in": 2}, runs=(run,)), stage(log, files, "c", "d"))
    if log.last.number == 2:
        old = files.below("data")
        words = "".join(files.read(file.name) for file in old)
        log.change(Record(position={"in": 2}), stage(log, files, words), old)


@pytest.mark.parametrize(("where", "stride"), [("here", 1), ("elsewhere", 7)])
def test_changes_killed_at_every_step(spark, remote, where, stride, monkeypatch):
    steps = 0
    for step in range(0, 100, stride):
        top = remote / f"log-{where}-{step}"
        path = str(top) if where == "here" else f"viewfs://test/remote/{top.name}"
        with killed_at("", step, monkeypatch) as taken:
            try:
                changes(spark, path)
            except Killed:
                steps += 1
        if len(taken) < step:
            break
        # Before the kill is mended: no word twice, and none out of thin air.
        seen = "".join(content(top)) if top.exists() else ""
        assert len(set(seen)) == len(seen) and set(seen) <= set("abcd")
        log = log_at(spark, path)
        log.recover()
        left = {0: [], 1: ["a", "b"], 2: ["a", "b", "c", "d"], 3: ["abcd"]}
        assert content(top) == left[log.last.number]
        assert log.last.position.get("in", 0) == (0, 1, 2, 2)[log.last.number]
        changes(spark, path)
        assert content(top) == ["abcd"]
        names = Files(spark, path).names("_own/log")
        assert "000000000003.done" in names
        assert not any(name.endswith((".draft", ".pending")) for name in names)
        assert Files(spark, path).below("_own/staging") == []
    assert steps > 30 / stride


def test_a_recovery_that_is_killed(spark, tmp_path, monkeypatch):
    with killed_at("rename", 4, monkeypatch), pytest.raises(Killed):
        changes(spark, str(tmp_path))
    killed = 0
    for number in range(4):  # each goes on where the one before was killed, until nothing is left
        with killed_at("", number, monkeypatch), suppress(Killed):
            killed += 1
            log_at(spark, str(tmp_path)).recover()
            killed -= 1
    assert killed > 1
    changes(spark, str(tmp_path))
    assert content(tmp_path) == ["abcd"]


def test_a_rename_that_copies_and_is_killed(spark, tmp_path, monkeypatch):
    """On object stores a file may have both names."""
    with killed_at("rename", 1, monkeypatch), pytest.raises(Killed):
        changes(spark, str(tmp_path))
    [staged] = (tmp_path / "_own" / "staging").rglob("part-0.parquet")
    place = tmp_path / "data" / "date=d" / "tube=a%2Fb"
    place.mkdir(parents=True, exist_ok=True)
    (place / "000000000001-00000.parquet").write_bytes(staged.read_bytes())
    log = log_at(spark, str(tmp_path))
    assert log.recover() is not None
    assert content(tmp_path) == ["a", "b"]


def test_a_missing_staged_file_is_an_error(spark, tmp_path, monkeypatch):
    with killed_at("rename", 1, monkeypatch), pytest.raises(Killed):
        changes(spark, str(tmp_path))
    next((tmp_path / "_own" / "staging").rglob("part-1.parquet")).unlink()
    with pytest.raises(PipelineUsageError, match=r"part-1\.parquet is gone"):
        log_at(spark, str(tmp_path)).recover()


def test_recovery_deletes_files_without_a_record(spark, tmp_path):
    log, files = log_at(spark, str(tmp_path)), Files(spark, str(tmp_path))
    log.recover()
    runs = [log.new_run() for _ in range(2)]
    for name in runs:
        files.write(f"{log.folder_of(name)}/part-0.parquet", "x")
    log.change(Record(position={"in": 1}, runs=(Run(runs[1], 1),)), stage(log, files, "a"))
    stage(log, files, "never recorded")
    again = log_at(spark, str(tmp_path))
    assert again.recover() is None
    assert files.names("_own/open_jobs") == [runs[1]]
    assert files.names("_own/staging") == []
    assert again.last == again.look() and again.last.size == 1
    assert files.below("data") == [File("data/date=d/tube=a%2Fb/000000000001-00000.parquet", 1)]
