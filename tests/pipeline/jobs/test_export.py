"""`export` against a plain reading of the inputs, also with killed runs."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from binlog.reader import files as binlog_files
from binlog.workload import Actor, run_steps
from core.rig import SECOND, Rig, put_line
from history.stores import opened, some_messages
from pipeline.jobs.killing import Killed, killed_at
from pipeline.plain import Row, rows
from servers import ours

from beanstalkd_py.errors import DataLossError, MalformedError, PipelineUsageError
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.jobs.export.compaction import similar
from beanstalkd_py.pipeline.jobs.export.files import File, Files, locked
from beanstalkd_py.pipeline.jobs.export.job import (
    COLUMNS,
    ExportResult,
    compact,
    export,
    log_of,
    read_export,
)
from beanstalkd_py.pipeline.stores.plan import StorePlan

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

DAY = 86_400 * SECOND
FILE = 4096


def plain(output: Path, name: str = "entries") -> list[Row]:
    """Read a data set as other programs do: the Parquet files of its folder."""
    if not (output / name).exists():
        return []
    types = pa.schema([("date", pa.string()), ("tube", pa.string())])
    partitioning = ds.partitioning(types, flavor="hive")
    found = ds.dataset(output / name, format="parquet", partitioning=partitioning)
    return found.to_table().to_pylist()


def wanted(path: Path, bodies: bool = False) -> list[Row]:
    """Return the expected rows with dates and tubes."""
    names = [*COLUMNS, *(["body"] if bodies else [])]
    whole = rows(BinlogPlan.of({"path": str(path)}, names))
    tubes = {(r["host"], r["id"], r["created_at_ns"]): r["tube"] for r in whole if r["tube"]}
    for row in whole:
        moment = row["event_time"]
        row["date"] = None if moment is None else moment.astimezone(UTC).date().isoformat()
        if row["tube"] is None:
            row["tube"] = tubes.get((row["host"], row["id"], row["created_at_ns"]))
    return whole


def place(row: Row) -> tuple[Any, ...]:
    return row["host"], row["shard"], row["file_number"], row["offset"]


def in_order(found: list[Row]) -> list[Row]:
    return [dict(sorted(row.items())) for row in sorted(found, key=place)]


def parquet_files(output: Path, name: str = "entries") -> list[Path]:
    return sorted((output / name).rglob("*.parquet"))


def test_each_run_adds_new_entries(spark, folder, tmp_path):
    """Jobs of earlier runs continue, and their short entries have tubes."""
    output, total = tmp_path / "out", ExportResult()
    dice = random.Random(5)
    with Rig(folder, file_size=FILE) as rig:
        client, actor = rig.client(), Actor("export", put_share=0.5)
        for size in (1 << 30, 4096, 1 << 30):
            run_steps(actor, client, 25 + dice.randrange(20))
            rig.advance(DAY // 2)
            total += export(spark, str(folder), str(output), bodies=True, batch_bytes=size)
        assert export(spark, str(folder), str(output), bodies=True) == ExportResult()
        whole = in_order(wanted(folder, bodies=True))
    found = plain(output)
    assert in_order(found) == whole
    assert total.rows == len(whole) and total.batches > 3
    assert len({row["date"] for row in found}) > 1 and len({row["tube"] for row in found}) > 1
    assert sum(row["kind"] == "short" for row in found) > 10
    made = parquet_files(output)
    assert total.files == len(made) and total.size == sum(path.stat().st_size for path in made)
    by_spark = read_export(spark, str(output))
    assert by_spark.count() == len(whole)
    assert dict(by_spark.dtypes)["date"] == "date" and dict(by_spark.dtypes)["tube"] == "string"


def test_open_jobs_are_removed_after_their_end(spark, folder, tmp_path):
    output = tmp_path / "out"
    with Rig(folder) as rig:
        client = rig.client()
        for first in range(1, 41, 10):
            for _ in range(10):
                client.put(b"x")
            for number in range(first, first + 9):
                client.ask(b"delete %d\r\n" % number)
            export(spark, str(folder), str(output))
        client.send(b"".join(b"delete %d\r\n" % number for number in range(10, 41, 10)))
        export(spark, str(folder), str(output))
        assert in_order(plain(output)) == in_order(wanted(folder))
    record = log_of(Files(spark, str(output)), "entries").look()
    assert record is not None and record.runs == ()


def assert_no_row_twice(output: Path) -> None:
    found = Counter(place(row) for row in plain(output))
    assert [each for each, times in found.items() if times > 1] == []


@pytest.mark.slow
def test_an_export_killed_at_important_steps(spark, folder, tmp_path, monkeypatch):
    """Each run is killed; the next one completes its change first."""
    output, killed = tmp_path / "out", 0
    with Rig(folder) as rig:
        client = rig.client()
        for moment in (
            ("write", 0),  # half of its record is written
            ("rename", 0),  # which does not have its name yet
            ("rename", 1),  # no file is in its place
            ("rename", 2),  # one is
            ("rename", 3),  # all files are, but the record does not list them
            ("count", 0),  # the record lists them, but the run returned no result
        ):
            for tube in (b"a", b"b"):
                client.send(b"use %s\r\n" % tube + put_line(b"x"))
            client.send(b"delete 1\r\n" if killed == 4 else b"")
            with killed_at(*moment, monkeypatch), pytest.raises(Killed):
                export(spark, str(folder), str(output), compact_at=None)
            killed += 1
            assert_no_row_twice(output)
        export(spark, str(folder), str(output), compact_at=None)
        assert in_order(plain(output)) == in_order(wanted(folder))


@pytest.mark.slow
def test_a_compaction_killed_at_many_steps(spark, folder, tmp_path, monkeypatch):
    output, killed = tmp_path / "out", 0
    with Rig(folder) as rig:
        client = rig.client()
        for turn in range(3):
            for tube in (b"a/b", b"007"):
                client.send(b"use %s\r\n" % tube + put_line(b"%d" % turn))
            export(spark, str(folder), str(output), compact_at=None)
        whole = in_order(wanted(folder))
    assert len(parquet_files(output)) == 6
    for step in range(2, 60, 3):
        with killed_at("", step, monkeypatch):
            try:
                compact(spark, str(output))
                break
            except Killed:
                killed += 1
        assert_no_row_twice(output)
    assert killed > 4
    assert in_order(plain(output)) == whole
    assert len(parquet_files(output)) == 2
    assert compact(spark, str(output)) == 0
    assert {row.tube for row in read_export(spark, str(output)).collect()} == {"a/b", "007"}


def test_export_compacts_touched_folders(spark, folder, tmp_path):
    output, compacted = tmp_path / "out", 0
    with Rig(folder) as rig:
        client = rig.client()
        for _ in range(5):
            client.put(b"x")
            compacted += export(spark, str(folder), str(output), compact_at=4).compacted
        assert in_order(plain(output)) == in_order(wanted(folder))
    assert compacted == 4
    assert len(parquet_files(output)) == 2


def sizes(*given: int) -> list[File]:
    return [File(str(place), size) for place, size in enumerate(given)]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ((1, 1, 1), ()),
        ((1, 1, 1, 1), (1, 1, 1, 1)),
        ((1, 1, 1, 1, 90), (1, 1, 1, 1)),
        ((1, 1, 1, 1, 4, 8), (1, 1, 1, 1, 4, 8)),
        ((1, 1, 1, 90), (1, 1, 1)),
        ((1, 90, 1000, 20000), (1, 90)),
    ],
)
def test_a_large_file_waits_for_small_ones_to_add_up(given, taken):
    assert tuple(file.size for file in similar(sizes(*given), 4)) == taken


def test_tube_names_are_escaped_in_folders(spark, folder, tmp_path):
    tubes = ["a/b", "1", "01", "x;y(z)$+", "/" * 120, "n" * 200]
    output = tmp_path / "out"
    with Rig(folder) as rig:
        client = rig.client()
        for tube in tubes:
            client.send(b"use %s\r\n" % tube.encode() + put_line(b"x"))
        export(spark, str(folder), str(output))
        there = {row["tube"] for row in wanted(folder)}
    found = [row["tube"] for row in plain(output)]
    assert len(found) == len(there) == len(set(found))
    [changed] = set(found) - there
    assert there - set(found) == {"/" * 120}
    assert changed.startswith("/" * 60 + "~") and len(changed) == 93
    assert {row.tube for row in read_export(spark, str(output)).collect()} == set(found)


def test_damage_and_unknown_jobs(spark, folder, tmp_path):
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(40):
            client.put(b"x" * 200)
        for number in range(1, 41):
            client.ask(b"reserve\r\n")
            client.ask(b"bury %d 0\r\n" % number)
    first, second = binlog_files(folder)[:2]
    first.unlink()
    data = bytearray(second.read_bytes())
    data[300] ^= 1
    second.write_bytes(data)
    export(spark, str(folder), str(tmp_path / "out"))
    found = plain(tmp_path / "out")
    assert in_order(found) == in_order(wanted(folder))
    nobody = [row for row in found if row["tube"] is None]
    assert {row["kind"] for row in nobody} == {None, "short"}
    assert [row["date"] for row in nobody if row["kind"] is None] == [None]
    with pytest.raises(MalformedError, match=r"binlog\.2:\d+: unreadable entry"):
        export(spark, str(folder), str(tmp_path / "fail"), mode="FAILFAST")


def test_stores_and_binlogs_of_several_hosts(spark, tmp_path):
    for host in ("ann", "bob"):
        (tmp_path / host / "binlog").mkdir(parents=True)
        with Rig(tmp_path / host / "binlog") as rig:
            rig.client().put(host.encode())
    output, before = tmp_path / "out", 0
    with opened(tmp_path / "ann" / "history") as store:
        for turn in range(3):
            store.append(some_messages(turn, 30, first=100 * turn))
            done = export(spark, [f"{tmp_path}/*/*"], str(output), batch_bytes=2048)
            assert done.rows == 30 + (2 if turn == 0 else 0)
            assert len(plain(output, "messages")) == before + 30
            before += 30
        plan = StorePlan.of(
            {"path": f"{tmp_path}/*/history", "includeHeaders": "true", "includeBody": "false"}
        )
        whole = rows(plan)
    found = plain(output, "messages")
    key = "physicalOffset"
    assert sorted(row[key] for row in found) == sorted(row[key] for row in whole)
    by_place = {row[key]: row for row in whole}
    for row in found:
        assert row.pop("date") == row["storeTimestamp"].date().isoformat()
        assert row == by_place[row[key]]
    assert {row["host"] for row in found} == {"ann"}
    assert sorted(row["host"] for row in plain(output)) == ["ann", "bob"]
    assert read_export(spark, str(output), "messages").count() == 90


def test_an_output_on_another_file_system(spark, folder, remote):
    output = remote / "exported"
    with Rig(folder) as rig:
        client = rig.client()
        for _ in range(3):
            client.put(b"x")
            export(spark, str(folder), "viewfs://test/remote/exported")
        assert compact(spark, "viewfs://test/remote/exported") == 3
        assert in_order(plain(output)) == in_order(wanted(folder))
    assert len(parquet_files(output)) == 1
    assert read_export(spark, "viewfs://test/remote/exported").count() == 3


def test_incomplete_rows_are_not_in_the_data_set(spark, folder, tmp_path, monkeypatch):
    output = tmp_path / "out"
    with Rig(folder) as rig:
        rig.client().put(b"x")

        def no_record(*given: Any) -> None:
            raise Killed

        monkeypatch.setattr(Files, "write", no_record)
        with pytest.raises(Killed):
            export(spark, str(folder), str(output))
        monkeypatch.undo()
        assert plain(output) == [] and list((output / "_export").rglob("*.parquet"))
        assert export(spark, str(folder), str(output)).rows == 1
    staged = [path for path in (output / "_export").rglob("*.parquet") if "staging" in str(path)]
    assert staged == [] and pq.read_metadata(parquet_files(output)[0]).num_rows == 1


def test_spellings_of_a_path_are_the_same_folder(spark, folder, tmp_path, monkeypatch):
    output, link = str(tmp_path / "out"), tmp_path / "link"
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(20):
            client.put(b"x" * 200)
        link.symlink_to(folder)
        assert export(spark, str(link), output).rows == 20
    monkeypatch.chdir(folder.parent)
    ways = [str(folder), f"{folder}/../{folder.name}/", folder.name, f"file://{folder}", str(link)]
    assert export(spark, ways, output) == ExportResult()
    for way in ways:
        assert export(spark, way, output) == ExportResult(), way


def test_removed_files_are_a_loss(spark, folder, tmp_path, caplog):
    output = str(tmp_path / "out")
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        client.put(b"x" * 200)
        export(spark, str(folder), output)
        for _ in range(100):
            client.do(b"delete %d" % client.put(b"x" * 200), b"DELETED")
        rig.core.commit(rig.now)
        assert not (folder / "binlog.1").exists() or len(list(folder.glob("binlog.*"))) > 3
        for number in (1, 2):
            (folder / f"binlog.{number}").unlink(missing_ok=True)
        with pytest.raises(DataLossError, match=r"--allow-loss of an export, to read the rest"):
            export(spark, str(folder), output)
        caplog.clear()
        assert export(spark, str(folder), output, allow_loss=True).rows > 10
        assert "was removed before it was read" in caplog.text
        assert export(spark, str(folder), output) == ExportResult()


@pytest.mark.parametrize(("before", "after"), [(2, 3), (1, 2), (2, 1)])
def test_a_resharded_folder_is_a_loss_or_exported_again(spark, tmp_path, before, after):
    """The new files have the names of exported ones."""
    folder, output = tmp_path / "binlog", str(tmp_path / "out")
    folder.mkdir()

    def serve(workers: int, tube: str) -> None:
        with (
            ours("-b", folder, "-s", "16384", f"--workers={workers}") as server,
            server.connect() as client,
        ):
            for number in range(120):
                client.ask(b"use %s-%d\r\n" % (tube.encode(), number % 8))
                client.put(b"x" * 900)

    serve(before, "old")
    assert export(spark, str(folder), output).rows == 120
    serve(after, "new")
    with pytest.raises(DataLossError, match=r"was begun anew, binlog|binlog(/shard-00\d)? is gone"):
        export(spark, str(folder), output)
    export(spark, str(folder), output, allow_loss=True)
    tubes = [row["tube"] for row in read_export(spark, output).where("kind = 'full'").collect()]
    assert sum(tube.startswith("new") for tube in tubes) == 120
    assert export(spark, str(folder), output) == ExportResult()


def test_invalid_exports_are_rejected(spark, folder, tmp_path):
    output = str(tmp_path / "out")
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        client.put(b"x" * 200)
        with pytest.raises(PipelineUsageError, match="no input"):
            export(spark, [], output)
        with pytest.raises(PipelineUsageError, match="does not exist"):
            export(spark, f"{folder}/none", output)
        with pytest.raises(PipelineUsageError, match=r"cannot make output .*/proc/none"):
            export(spark, str(folder), "/proc/none")
        with pytest.raises(PipelineUsageError, match="on another file system"):
            export(spark, "viewfs://test/remote", output)
        with pytest.raises(PipelineUsageError, match="no mode 'LOOSE'"):
            export(spark, str(folder), output, mode="LOOSE")
        with pytest.raises(PipelineUsageError, match="has no exported entries"):
            read_export(spark, output)
        with pytest.raises(PipelineUsageError, match="is not the output of an export"):
            compact(spark, str(tmp_path))
        export(spark, str(folder), output)
        with pytest.raises(
            PipelineUsageError, match="exported without bodies, and this run is with"
        ):
            export(spark, str(folder), output, bodies=True)
        with (
            locked(Files(spark, output), "_export"),
            pytest.raises(PipelineUsageError, match="another export writes to"),
        ):
            export(spark, str(folder), output)
        for _ in range(60):
            client.put(b"x" * 200)
        (folder / "binlog.1").unlink()
        with pytest.raises(DataLossError, match="removed before it was read"):
            export(spark, str(folder), output)
        assert export(spark, str(folder), output, allow_loss=True).rows > 0
