"""`export` against a plain reading of the inputs, also with killed runs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from binlog.reader import files as binlog_files
from binlog.workload import Actor, run_steps
from core.rig import SECOND, Rig, put_line
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from history.stores import opened, some_messages
from pipeline.jobs.killing import Killed, killed_before
from pipeline.plain import Row, rows
from servers import ours

from beanstalkd_py.errors import DataLossError, MalformedError, PipelineUsageError
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.jobs.export.job import (
    ENTRIES,
    ExportResult,
    compact,
    export,
    read_export,
)
from beanstalkd_py.pipeline.jobs.export.table import ExportTable, Storage
from beanstalkd_py.pipeline.stores.plan import StorePlan

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

DAY = 86_400 * SECOND
FILE = 4096


def plain(output: Path, name: str = "entries") -> list[Row]:
    """Read a table as other programs do."""
    try:
        return DeltaTable(output / name).to_pyarrow_table().to_pylist()
    except TableNotFoundError:
        return []


def wanted(path: Path, bodies: bool = False) -> list[Row]:
    """Return the expected rows with dates and tubes."""
    names = [*ENTRIES.columns, *(["body"] if bodies else [])]
    whole = rows(BinlogPlan.of({"path": str(path)}, names))
    tubes = {(r["host"], r["id"], r["created_at_ns"]): r["tube"] for r in whole if r["tube"]}
    for row in whole:
        moment = row["event_time"]
        row["date"] = None if moment is None else moment.astimezone(UTC).date()
        if row["tube"] is None:
            row["tube"] = tubes.get((row["host"], row["id"], row["created_at_ns"]))
    return whole


def place(row: Row) -> tuple[Any, ...]:
    return row["host"], row["shard"], row["file_number"], row["offset"]


def in_order(found: list[Row]) -> list[Row]:
    return [dict(sorted(row.items())) for row in sorted(found, key=place)]


def sizes(output: Path) -> list[int]:
    """Return the sizes of the files of the last version."""
    return [Path(path).stat().st_size for path in DeltaTable(output / "entries").file_uris()]


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
    assert total.files == len(sizes(output)) and total.size == sum(sizes(output))
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
    assert ExportTable(Storage(f"{output}/entries")).state.open_jobs == []
    assert len(list((output / "entries" / "_export").iterdir())) == 1


def assert_no_row_twice(output: Path) -> None:
    found = Counter(place(row) for row in plain(output))
    assert [each for each, times in found.items() if times > 1] == []


@pytest.mark.slow
def test_an_export_killed_at_every_step(spark, folder, tmp_path, monkeypatch):
    """Runs with a batch of new rows each; every one is killed one step later than the last."""
    output, killed = tmp_path / "out", 0
    with Rig(folder) as rig:
        client = rig.client()
        for step in range(100):
            for tube in (b"a", b"b"):
                client.ask(b"use %s\r\n" % tube)
                client.put(b"x")
            client.ask(b"delete %d\r\n" % (2 * step))
            rig.advance(DAY // 3)
            with killed_before(step, monkeypatch) as taken:
                try:
                    export(spark, str(folder), str(output), compact_at=4)
                except Killed:
                    killed += 1
            assert_no_row_twice(output)
            if len(taken) < step:
                break
        assert in_order(plain(output)) == in_order(wanted(folder))
        assert export(spark, str(folder), str(output)) == ExportResult()
    assert killed > 6


@pytest.mark.slow
def test_a_compaction_killed_at_every_step(spark, folder, tmp_path, monkeypatch):
    output, killed = tmp_path / "out", 0
    with Rig(folder) as rig:
        client = rig.client()
        for turn in range(3):
            for tube in (b"a/b", b"007"):
                client.send(b"use %s\r\n" % tube + put_line(b"%d" % turn))
            rig.advance(DAY // 2)
            export(spark, str(folder), str(output), compact_at=None)
        whole = in_order(wanted(folder))
    assert len(sizes(output)) > 2
    for step in range(60):
        with killed_before(step, monkeypatch):
            try:
                compact(spark, str(output))
                break
            except Killed:
                killed += 1
        assert in_order(plain(output)) == whole
    assert killed > 3
    assert in_order(plain(output)) == whole
    assert len(sizes(output)) == 2
    assert compact(spark, str(output)) == 0
    assert {row.tube for row in read_export(spark, str(output)).collect()} == {"a/b", "007"}


def test_export_compacts_dates_with_many_files(spark, folder, tmp_path):
    output, compacted = tmp_path / "out", 0
    with Rig(folder) as rig:
        client = rig.client()
        for _ in range(5):
            client.put(b"x")
            compacted += export(spark, str(folder), str(output), compact_at=4).compacted
        assert in_order(plain(output)) == in_order(wanted(folder))
    assert compacted == 4
    assert len(sizes(output)) == 2


def test_large_files_are_not_compacted(spark, folder, tmp_path):
    output = tmp_path / "out"
    with Rig(folder) as rig:
        client = rig.client()
        for _ in range(3):
            client.put(b"x")
            export(spark, str(folder), str(output))
    size = max(sizes(output))
    assert compact(spark, str(output), target_bytes=2 * size - 2, least=3) == 0
    assert compact(spark, str(output), target_bytes=2 * size + 2) == 2
    assert compact(spark, str(output), least=3) == 0
    assert compact(spark, str(output)) == 2
    assert len(sizes(output)) == 1


# --- concurrent exports ------------------------------------------------------------------------


@contextmanager
def overtaken_at(step: str, by: Callable[[], object]) -> Iterator[None]:
    """Run `by` completely before a step of an export, which then fails."""
    usual = getattr(ExportTable, step)

    def do(self: ExportTable, *given: Any) -> Any:
        patch.undo()
        by()
        return usual(self, *given)

    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(PipelineUsageError, match="another export writes to"),
    ):
        patch.setattr(ExportTable, step, do)
        yield


@pytest.mark.parametrize("step", ["write_open_jobs", "write", "commit"])
def test_the_slower_of_two_exports_adds_nothing(spark, folder, tmp_path, step):
    output = tmp_path / "out"

    def run() -> ExportResult:
        return export(spark, str(folder), str(output), compact_at=None)

    with Rig(folder) as rig:
        client = rig.client()
        for first in (True, False):
            client.put(b"x")
            client.put(b"y")
            if first:
                run()
                client.ask(b"delete 1\r\n")
        with overtaken_at(step, run):
            run()
        assert in_order(plain(output)) == in_order(wanted(folder))
        client.ask(b"delete 2\r\n")
        assert run().rows == 1
        assert in_order(plain(output)) == in_order(wanted(folder))


def test_an_export_opens_a_table_while_another_commits(spark, folder, tmp_path, monkeypatch):
    output, usual = tmp_path / "out", ExportTable._last_transaction

    def overtaken_once(self: ExportTable) -> int:
        version = usual(self)
        monkeypatch.undo()
        client.put(b"y")
        export(spark, str(folder), str(output))
        return version

    with Rig(folder) as rig:
        client = rig.client()
        client.put(b"x")
        export(spark, str(folder), str(output))
        monkeypatch.setattr(ExportTable, "_last_transaction", overtaken_once)
        assert export(spark, str(folder), str(output)).rows == 0
        assert in_order(plain(output)) == in_order(wanted(folder))


@pytest.mark.parametrize("other", ["export", "compact"])
def test_a_compaction_concurrent_to_another_commit_changes_nothing(spark, folder, tmp_path, other):
    output = tmp_path / "out"
    with Rig(folder) as rig:
        client = rig.client()
        for _ in range(3):
            client.put(b"x")
            export(spark, str(folder), str(output))
        client.put(b"x")
        by = {"export": lambda: export(spark, str(folder), str(output))}
        by["compact"] = lambda: compact(spark, str(output))
        with overtaken_at("commit", by[other]):
            compact(spark, str(output))
        assert_no_row_twice(output)
        export(spark, str(folder), str(output))
        assert in_order(plain(output)) == in_order(wanted(folder))


def test_any_tube_name_is_kept(spark, folder, tmp_path):
    tubes = ["a/b", "1", "01", "x;y(z)$+", "/" * 200, "n" * 200]
    output = tmp_path / "an output"
    with Rig(folder) as rig:
        client = rig.client()
        for tube in tubes:
            client.send(b"use %s\r\n" % tube.encode() + put_line(b"x"))
        for _ in range(2):
            export(spark, str(folder), str(output))
    assert sorted(row["tube"] for row in plain(output)) == sorted(tubes)
    read = read_export(spark, str(output))
    assert sorted(row.tube for row in read.collect()) == sorted(tubes)


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
        assert row.pop("date") == row["storeTimestamp"].date()
        row["properties"] = dict(row["properties"])
        by_place[row[key]]["properties"] = dict(by_place[row[key]]["properties"])
        assert row == by_place[row[key]]
    assert {row["host"] for row in found} == {"ann"}
    assert sorted(row["host"] for row in plain(output)) == ["ann", "bob"]
    assert read_export(spark, str(output), "messages").count() == 90


def test_an_output_by_url(spark, folder, tmp_path):
    output = tmp_path / "out"
    with Rig(folder) as rig:
        client = rig.client()
        for _ in range(3):
            client.put(b"x")
            export(spark, str(folder), f"file://{output}")
        assert compact(spark, f"file://{output}") == 3
        assert in_order(plain(output)) == in_order(wanted(folder))
    assert read_export(spark, f"file://{output}").count() == 3
    with pytest.raises(PipelineUsageError, match=r"cannot open output viewfs://test/out: "):
        export(spark, str(folder), "viewfs://test/out")


def test_the_output_of_an_earlier_version_is_refused(spark, folder, tmp_path):
    (tmp_path / "out" / "_export" / "entries" / "log").mkdir(parents=True)
    (tmp_path / "out" / "_export" / "lock").touch()
    output = str(tmp_path / "out")
    with Rig(folder) as rig:
        rig.client().put(b"x")
        for call in (
            lambda: export(spark, str(folder), output),
            lambda: compact(spark, output),
            lambda: read_export(spark, output),
        ):
            with pytest.raises(PipelineUsageError, match="plain Parquet of an earlier version"):
                call()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["_export"]


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
        with pytest.raises(PipelineUsageError, match="cannot open viewfs://test/"):
            export(spark, "viewfs://test/remote", output)
        with pytest.raises(PipelineUsageError, match="no mode 'LOOSE'"):
            export(spark, str(folder), output, mode="LOOSE")
        with pytest.raises(PipelineUsageError, match="has no exported entries"):
            read_export(spark, output)
        with pytest.raises(PipelineUsageError, match="is not the output of an export"):
            compact(spark, str(tmp_path))
        with pytest.raises(PipelineUsageError, match="target_bytes is 0"):
            compact(spark, str(tmp_path), target_bytes=0)
        export(spark, str(folder), output)
        with pytest.raises(
            PipelineUsageError, match="exported without bodies, and this run is with"
        ):
            export(spark, str(folder), output, bodies=True)
        for _ in range(60):
            client.put(b"x" * 200)
        (folder / "binlog.1").unlink()
        with pytest.raises(DataLossError, match="removed before it was read"):
            export(spark, str(folder), output)
        assert export(spark, str(folder), output, allow_loss=True).rows > 0
