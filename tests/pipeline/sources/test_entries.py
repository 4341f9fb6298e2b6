"""Rows of binlog files against `binlog dump` and the independent reader."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog.damaged_folders import DATA, KINDS, make, spoil
from binlog.reader import files, number_of, read_file
from binlog.workload import LONG
from core.rig import SECOND, Rig, put_line
from pipeline.plain import as_dumped, binlog_plan, dumped, of_dump, of_entries, rows

from beanstalkd_py.errors import MalformedError
from beanstalkd_py.pipeline.sources import columns


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    parent = tmp_path_factory.mktemp("originals")
    for kind in KINDS:
        make(kind, parent / kind)
    yield parent
    shutil.rmtree(parent)


def assert_as_dumped(folder: Path, scratch: Path) -> int:
    """Compare each file with its dump and return the number of rows."""
    count = 0
    for path in files(folder):
        if (
            not path.is_file()
            or number_of(path) >= 2**31
            or path.name != f"binlog.{number_of(path)}"
        ):
            continue
        expected = [of_dump(row) for row in dumped(path, scratch)]
        alone = scratch.with_name("alone") / path.name
        alone.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, alone)
        found = [as_dumped(row) for row in rows(binlog_plan(alone))]
        alone.unlink()
        assert found == expected, path
        count += len(found)
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_rows_match_binlog_dump(originals, tmp_path, kind):
    assert assert_as_dumped(originals / kind, tmp_path / "scratch") > 5


@pytest.mark.parametrize("name", ["v7-lifecycle.binlog.1", "v5-1.4.6.binlog.1"])
def test_files_of_c_beanstalkd_match_the_independent_reader(tmp_path, name):
    shutil.copy(DATA / name, tmp_path / "binlog.1")
    expected = of_entries(read_file(tmp_path / "binlog.1"))
    found = rows(binlog_plan(tmp_path))
    assert [{name: row[name] for name in expected[0]} for row in found] == expected
    assert {row["checksum"] for row in found} == {"none"}


def test_the_entry_of_the_highest_id_is_not_a_row(tmp_path):
    """A file begins with it if that job has ended or is in another shard."""
    for last in (4, 8, 12):
        with Rig(tmp_path, file_size=4096) as rig:
            client = rig.client()
            for _ in range(4):
                client.ask(put_line(b"x" * 900))
            assert client.ask(b"delete %d\r\n" % last) == b"DELETED\r\n"
    lines = [
        line
        for path in files(tmp_path)
        for line in dumped(path, tmp_path / "scratch", without_ids=False)
    ]
    assert sum(line["state"] == "deleted" for line in lines) > 3
    found = rows(binlog_plan(tmp_path))
    assert [row["id"] for row in found if row["state"] == "deleted"] == [4, 8, 12]


@pytest.mark.parametrize("part", range(4))
def test_damaged_files_match_the_other_readers(originals, tmp_path, part):
    faults = 0
    for seed in range(part * 15, part * 15 + 15):
        dice = random.Random(seed)
        folder = tmp_path / str(seed)
        shutil.copytree(originals / dice.choice(KINDS), folder)
        spoil(folder, dice)
        assert_as_dumped(folder, tmp_path / "scratch")
        faults += sum(row["_corrupt_record"] is not None for row in rows(binlog_plan(folder)))
    assert faults > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_many_damaged_files_match_the_other_readers(originals, tmp_path, part):
    for seed in range(1000 + part * 60, 1060 + part * 60):
        dice = random.Random(seed)
        folder = tmp_path / str(seed)
        shutil.copytree(originals / dice.choice(KINDS), folder)
        spoil(folder, dice)
        assert_as_dumped(folder, tmp_path / "scratch")
        shutil.rmtree(folder)


def test_only_the_last_file_may_be_torn(originals, tmp_path):
    """A crash leaves zeros in preallocated space; a shorter file was cut."""
    folder = tmp_path / "folder"
    shutil.copytree(originals / "c", folder)
    older, last = files(folder)[-2:]
    for path in (older, last):
        *_, row = read_file(path)
        os.truncate(path, row.offset + 30)
    strict = binlog_plan(folder, mode="FAILFAST", columns="file,id")
    with pytest.raises(MalformedError, match=f"{older.name}:.*: unreadable entry: it is cut"):
        rows(strict)
    faults = [row for row in rows(binlog_plan(folder)) if row["_corrupt_record"] is not None]
    assert [row["file"] for row in faults] == [older.name, last.name]
    assert faults[1]["_corrupt_record"] == "the last entry was not written to its end"
    os.truncate(last, 4)  # no file follows now
    rows(strict)


def test_read_modes(originals, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(originals / "ours", folder)
    whole = rows(binlog_plan(folder))
    victim = files(folder)[1]
    data = bytearray(victim.read_bytes())
    spoilt = whole[len(read_file(files(folder)[0])) + 1]
    data[spoilt["offset"] + 30] ^= 1
    victim.write_bytes(data)

    permissive = rows(binlog_plan(folder))
    (fault,) = [row for row in permissive if row["_corrupt_record"] is not None]
    assert (fault["file"], fault["offset"]) == (victim.name, spoilt["offset"])
    assert fault["_corrupt_record"].startswith("unreadable entry: its checksum is wrong")
    assert fault["id"] is None and fault["host"] == spoilt["host"]
    dropped = rows(binlog_plan(folder, mode="DROPMALFORMED", columns="file,offset,id"))
    expected = [row for row in whole if row != spoilt]
    assert dropped == [{key: row[key] for key in ("file", "offset", "id")} for row in expected]
    with pytest.raises(MalformedError, match=f"{victim.name}:{spoilt['offset']}: unreadable entry"):
        rows(binlog_plan(folder, mode="failfast", columns="id"))


def test_a_torn_entry_fails_no_read(tmp_path):
    with Rig(tmp_path) as rig:
        rig.client().send(put_line(b"a") + put_line(b"b" * 50))
    path = tmp_path / "binlog.1"
    data = path.read_bytes().rstrip(b"\0")
    path.write_bytes(data[:-20])
    assert [row["id"] for row in rows(binlog_plan(path, mode="FAILFAST", columns="id"))] == [1]
    assert rows(binlog_plan(path))[1]["_corrupt_record"] == (
        "the last entry was not written to its end"
    )


def test_an_unreadable_file_is_a_row_or_an_error(tmp_path):
    with Rig(tmp_path) as rig:
        rig.client().send(put_line(b"a"))
    plan = binlog_plan(tmp_path)
    tasks = plan.tasks(1)
    (tmp_path / "binlog.1").rename(tmp_path / "binlog.1.done")
    assert [row["id"] for batch in plan.read(tasks[0]) for row in batch.to_pylist()] == [1]
    (tmp_path / "binlog.1.done").unlink()
    (row,) = [row for batch in plan.read(tasks[0]) for row in batch.to_pylist()]
    assert row["_corrupt_record"] == "unreadable file: it was removed before it was read"
    with pytest.raises(MalformedError, match="it was removed"):
        list(binlog_plan(tmp_path, mode="FAILFAST", columns="id").read(tasks[0]))


def test_batches_of_any_size_have_the_same_rows(originals, monkeypatch):
    whole = rows(binlog_plan(originals / "ours"))
    monkeypatch.setattr(columns, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(columns, "TEXT_AT_ONCE", 200)
    monkeypatch.setattr(columns, "LEAST_TEXT", 1)
    assert rows(binlog_plan(originals / "ours"), tasks=3) == whole


def test_a_body_of_many_megabytes(tmp_path):
    body = bytes(random.Random(1).randbytes(9 << 20))
    with Rig(tmp_path, file_size=32 << 20, max_job_size=16 << 20) as rig:
        rig.client().send(put_line(b"small") + put_line(body) + put_line(b"after"))
    assert [row["body"] for row in rows(binlog_plan(tmp_path))] == [b"small", body, b"after"]


def test_times_of_our_server_are_exact(tmp_path):
    with Rig(tmp_path) as rig:
        client = rig.client()
        client.send(put_line(b"now", ttr=LONG) + put_line(b"later", delay=50))
        client.read()
        put = rig.now.wall
        rig.advance(5 * SECOND)
        client.ask(b"reserve-job 1\r\n")
        rig.advance(2 * SECOND)
        client.ask(b"bury 1 9\r\n")
    found = rows(binlog_plan(tmp_path))
    assert [row["event_time_ns"] - put for row in found] == [0, 0, 7 * SECOND]
    assert {row["event_time_kind"] for row in found} == {"exact"}
    assert {row["event_time_until"] for row in found} == {None}
    assert (found[1]["deadline_at_ns"] - put, found[2]["priority"]) == (50 * SECOND, 9)


def test_times_of_c_beanstalkd_are_derived_or_bounded(originals):
    found = [row for row in rows(binlog_plan(originals / "c")) if row["_corrupt_record"] is None]
    kinds = {row["event_time_kind"] for row in found}
    assert kinds == {"derived", "bounded"}
    known: dict[str, int] = {}
    for row in found:
        if row["event_time_kind"] == "derived":
            expected = row["created_at_ns"]
            if row["state"] == "delayed":
                expected = row["deadline_at_ns"] - row["delay"] * SECOND
            assert row["event_time_ns"] == expected
        else:
            # Not before the latest earlier known time, and not after the next known time.
            assert row["event_time_ns"] >= max(row["created_at_ns"], known.get(row["file"], 0))
            until = row["event_time_until"]
            assert until is None or until >= row["event_time"]
        known[row["file"]] = max(known.get(row["file"], 0), row["event_time_ns"])
    untils = [row["event_time_until"] for row in found if row["event_time_kind"] == "bounded"]
    assert any(until is not None for until in untils)


def archived_churn(folder: Path, archive: Path) -> set[int]:
    """Return all files of a server with compaction, and the ids of the moved jobs."""
    archive.mkdir()
    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        kept = {client.put(b"k%d" % number) for number in range(6)}
        for job in sorted(kept)[:3]:
            client.bury(job)
        for _ in range(200):
            rig.advance(SECOND // 100)
            client.do(b"delete %d" % client.put(b"c" * 300), b"DELETED")
            for path in files(folder):
                there = archive / path.name
                if not there.exists():
                    there.hardlink_to(path)
        assert rig.counters.records_migrated > 0
    return kept


def test_copies_made_by_compaction_are_marked(folder, tmp_path):
    """Copies of jobs with events are marked, puts never."""
    kept = archived_churn(folder, folder.parent / f"{folder.name}-archive")
    archive = folder.parent / f"{folder.name}-archive"
    try:
        found = rows(binlog_plan(archive))
    finally:
        shutil.rmtree(archive)
    seen: set[int] = set()
    marked: set[int] = set()
    for row in found:
        if row["kind"] == "short":
            assert not row["is_copy"]
            continue
        if row["id"] not in seen:
            assert not row["is_copy"]
        elif row["buries"]:
            assert row["is_copy"] and row["state"] == "buried"
        if row["is_copy"]:
            marked.add(row["id"])
        seen.add(row["id"])
    assert marked >= set(sorted(kept)[:3])
    assert marked <= kept
