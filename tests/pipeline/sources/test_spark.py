"""The sources and functions by Spark: batches, modes, SQL and streams."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from binlog.reader import files
from core.rig import Rig, put_line
from history.stores import DATA, opened, some_messages
from pipeline.plain import rows
from pipeline.sources.test_entries import archived_churn
from processes import eventually

from beanstalkd_py import pipeline
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.binlogs.table import COLUMNS
from beanstalkd_py.pipeline.stores.plan import StorePlan

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

ALL = ",".join(column.name for column in COLUMNS)


@pytest.fixture(scope="module")
def hosts(remote: Path) -> Path:
    """A host with two workers, an archived and a damaged file, and a host of C beanstalkd."""
    top = remote / "hosts"
    for number, shard in enumerate(("shard-000", "shard-001")):
        folder = top / "ann" / shard
        folder.mkdir(parents=True)
        with Rig(folder, file_size=4096) as rig:
            client = rig.client()
            client.send(b"use tube-%d\r\n" % number)
            for job in range(60):
                client.send(put_line(b"%d" % job * 20))
            client.ask(b"delete 3\r\n")
    (top / "ann" / "layout").write_text('{"format": 1, "workers": 2, "colocate": null}')
    first, second = files(folder)[:2]
    data = bytearray(second.read_bytes())
    data[400] ^= 1  # in a full entry, after the length entry
    second.write_bytes(data)
    first.rename(first.with_name(first.name + ".done"))
    (top / "bob").mkdir()
    shutil.copy(DATA.parents[1] / "binlog/data/v7-lifecycle.binlog.1", top / "bob" / "binlog.1")
    return top


def collected(frame) -> list[tuple]:
    return sorted(map(_plain, frame.collect()), key=repr)


def _plain(row) -> tuple:
    return tuple(
        value.replace(tzinfo=UTC)
        if isinstance(value, datetime)
        else bytes(value)
        if isinstance(value, bytearray)
        else value
        for value in row
    )


def expected(plan: BinlogPlan | StorePlan) -> list[tuple]:
    return sorted(
        (
            tuple(
                dict(value) if name == "properties" and value is not None else value
                for name, value in row
            )
            for row in (row.items() for row in rows(plan))
        ),
        key=repr,
    )


def test_every_way_to_read_binlogs_gives_the_same_rows(spark, hosts, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    glob = f"{hosts}/*"
    plan = BinlogPlan.of({"path": glob, "columns": ALL})
    whole = expected(plan)
    assert sum(row[-1] is not None for row in whole) == 1
    assert {row[0] for row in whole} == {"ann", "bob"}
    source = spark.read.format("beanstalkd_binlog").option("columns", ALL)
    assert collected(source.load(glob)) == whole
    assert collected(source.option("minPartitions", "7").load(glob)) == whole
    assert collected(source.load([f"{hosts}/ann", f"{hosts}/bob"]).drop("host")) == sorted(
        (row[1:] for row in whole), key=repr
    )
    frame = pipeline.read_binlog(spark, glob, columns=ALL.split(","))
    assert collected(frame) == whole
    through = pipeline.read_binlog(
        spark, "viewfs://test/remote/hosts/*", columns=ALL.split(","), minPartitions=2
    )
    assert collected(through.drop("path")) == collected(frame.drop("path"))


def test_modes(spark, hosts):
    source = spark.read.format("beanstalkd_binlog")
    good = source.load(f"{hosts}/ann").where("_corrupt_record is null").count()
    assert source.option("mode", "DROPMALFORMED").load(f"{hosts}/ann").count() == good
    for failing in (
        source.option("mode", "FAILFAST").load(f"{hosts}/ann"),
        pipeline.read_binlog(spark, f"{hosts}/ann", mode="FAILFAST"),
    ):
        with pytest.raises(Exception, match=r"binlog\.\d+:\d+: unreadable entry") as failure:
            failing.collect()
        assert "MalformedError" in str(failure.value)
    renamed = source.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", "why")
    assert renamed.load(f"{hosts}/ann").where("why is not null").count() == 1


def test_a_schema_selects_columns(spark, hosts):
    source = spark.read.format("beanstalkd_binlog").schema("tube string, id long")
    frame = source.load(f"{hosts}/ann")
    assert frame.columns == ["tube", "id"]
    assert frame.groupBy("tube").count().orderBy("tube").collect()[1:] == [
        ("tube-0", 60),
        ("tube-1", 59),
    ]
    for schema, message in (
        ("id string", "column id is bigint, not string"),
        ("id long, id long", "column id is twice in the schema"),
        ("id long not null", "column id may be null, .* leave NOT NULL"),
    ):
        with pytest.raises(Exception, match=message):
            spark.read.format("beanstalkd_binlog").schema(schema).load(f"{hosts}/ann").collect()


def test_one_frame_and_several_queries(spark, hosts):
    """No query sees the filters of another one."""
    frame = spark.read.format("beanstalkd_binlog").load(f"{hosts}/*")
    whole = rows(BinlogPlan.of({"path": f"{hosts}/*"}))
    assert frame.where("id = 2").count() == sum(row["id"] == 2 for row in whole)
    assert frame.where("id = 1 or id = 2").count() == sum(row["id"] in (1, 2) for row in whole)
    assert frame.count() == len(whole)


def test_sql_and_an_empty_folder(spark, hosts, tmp_path):
    spark.sql(
        "create or replace temporary view entries using beanstalkd_binlog"
        f" options (path '{hosts}/bob', includeBody 'true')"
    )
    assert spark.sql("select count(body) from entries").collect()[0][0] == 3
    assert spark.read.format("beanstalkd_binlog").load(str(tmp_path)).count() == 0
    assert pipeline.read_binlog(spark, str(tmp_path)).count() == 0
    with pytest.raises(Exception, match="no option 'mod'"):
        spark.read.format("beanstalkd_binlog").option("mod", "x").load(str(tmp_path))


CLUSTER = """
import sys
from pyspark.sql import SparkSession, functions as f
from beanstalkd_py import pipeline
master, path = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
for frame in (
    pipeline.read_binlog(spark, path, includeBody=True, minPartitions=4),
    spark.read.format("beanstalkd_binlog").option("includeBody", "true").load(path),
):
    hashed = frame.select(f.xxhash64(*frame.columns).cast("decimal(38)").alias("h"))
    print(*hashed.agg(f.sum("h"), f.count("h")).first())
"""


@pytest.mark.slow
def test_two_executors_give_the_same_rows(hosts, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CLUSTER)
    actual = []
    for master in ("local[2]", "local-cluster[2,1,1024]"):
        done = subprocess.run(
            [sys.executable, str(script), master, f"{hosts}/*"],
            capture_output=True,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        actual += done.stdout.splitlines()[-2:]
    assert len(actual) == 4 and len(set(actual)) == 1


def test_copies_over_all_files(spark, folder, tmp_path):
    """The first full entry of each job is its only put."""
    archive = folder.parent / f"{folder.name}-archive"
    try:
        archived_churn(folder, archive)
        found = pipeline.mark_copies(pipeline.read_binlog(spark, str(archive)))
        puts = found.where("kind = 'full' and not is_copy").select("id", "event_time").collect()
        whole = rows(BinlogPlan.of({"path": str(archive)}))
    finally:
        shutil.rmtree(archive)
    first = {}
    for row in whole:
        if row["kind"] == "full":
            first.setdefault(row["id"], row["event_time"].replace(tzinfo=None))
    assert {row.id: row.event_time for row in puts} == first
    assert len(puts) == len(first) < sum(row["kind"] == "full" for row in whole)


@pytest.mark.parametrize("view", ["messages", "queues", "index"])
def test_every_way_to_read_a_store_gives_the_same_rows(spark, remote, view):
    folder = remote / "store"
    if not folder.exists():
        with opened(folder) as store:
            store.append(some_messages(seed=9, count=200))
            store.dispatch()
            store.flush()
    given = {"path": str(folder), "view": view}
    given |= {"includeHeaders": "true"} if view == "messages" else {}
    whole = expected(StorePlan.of(given))
    assert len(whole) > 100
    source = spark.read.format("rocketmq_store").options(**given)
    assert collected(source.load()) == whole
    more = {"includeHeaders": True} if view == "messages" else {}
    frame = pipeline.read_store(spark, str(folder), view, **more)
    assert collected(frame) == whole
    through = pipeline.read_store(spark, "viewfs://test/remote/store", view, **more)
    assert collected(through.drop("host")) == collected(frame.drop("host"))
    if view == "messages":
        assert frame.where("properties['UNIQ_KEY'] = 'u7'").count() == 1


def test_a_repeatedly_stopped_stream_has_every_entry_once(spark, folder, tmp_path):
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    failed: list[int] = []

    def start(**trigger):
        source = spark.readStream.format("beanstalkd_binlog").option("includeBody", "true")
        entries = source.option("maxOffsetsPerTrigger", 40).load(str(folder))
        writer = entries.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        return writer.trigger(**trigger).start(out)

    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        for turn in range(4):
            for job in range(40):
                client.put(b"%d" % (turn * 100 + job) * 9)
            query = start(processingTime="0 seconds")
            try:
                assert eventually(lambda query=query: has_read(query), 60)
            finally:
                query.stop()
            failed += [turn] if query.exception() else []
        for path in files(folder)[:-1]:
            path.rename(path.with_name(path.name + ".done"))
        query = start(availableNow=True)
        assert query.awaitTermination(120)
        assert query.exception() is None and failed == []
        found = spark.read.parquet(out)
        whole = expected(BinlogPlan.of({"path": str(folder), "includeBody": "true"}))
        assert collected(found) == whole
        assert len(whole) == 160
        # The stream has read everything; new entries are for the next run.
        assert start(availableNow=True).awaitTermination(120)
        assert spark.read.parquet(out).count() == 160


def has_read(query) -> bool:
    progress = query.lastProgress
    return not query.isActive or (progress is not None and progress.numInputRows > 0)


def test_a_stream_reports_losses(spark, folder, tmp_path):
    def run(**options):
        source = spark.readStream.format("beanstalkd_binlog").options(**options)
        frame = source.load(str(folder)).select("id")
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).format("noop").start()
        query.awaitTermination(120)
        return query

    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        client.put(b"x")
        run()
        for _ in range(80):
            client.put(b"x" * 200)
    (folder / "binlog.1").unlink()
    with pytest.raises(Exception, match="DataLossError"):
        run()
    query = run(failOnDataLoss="false")
    assert query.exception() is None
    left = sum(1 for row in rows(BinlogPlan.of({"path": str(folder)})))
    assert sum(each.numInputRows for each in query.recentProgress) == left


def test_batches_of_a_stream_obey_all_limits_and_can_be_repeated(spark, folder, tmp_path):
    def form(reader):
        return reader.format("beanstalkd_binlog").option("includeBody", "true")

    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        for job in range(100):
            client.put(b"x" * (200 if job < 60 else 1))
    source = form(spark.readStream).option("maxFilesPerTrigger", 1)
    frame = source.option("maxOffsetsPerTrigger", 20).load(str(folder))
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).format("parquet").start(str(tmp_path / "out"))
    assert query.awaitTermination(120) and query.exception() is None
    batches = [each for each in query.recentProgress if each.numInputRows]
    assert max(each.numInputRows for each in batches) == 20  # small jobs
    whole = rows(BinlogPlan.of({"path": str(folder)}))
    in_files = {file: sum(row["file"] == file for row in whole) for file in {*map(file_of, whole)}}
    assert batches[0].numInputRows == in_files["binlog.1"] < 20  # large jobs
    assert sum(each.numInputRows for each in batches) == len(whole) == 100
    one = batches[len(batches) // 2].sources[0]
    ends = {"startingOffsets": one.startOffset, "endingOffsets": one.endOffset}
    again = form(spark.read).options(**ends).load(str(folder))
    assert again.count() == one.numInputRows
    assert collected(again) == collected(
        pipeline.read_binlog(spark, str(folder), includeBody=True, **ends)
    )
    ids = [row["id"] for row in again.collect()]
    there = spark.read.parquet(str(tmp_path / "out"))
    assert there.where(there.id.isin(ids)).count() == len(ids)
    with pytest.raises(Exception, match="startingOffsets latest leaves nothing"):
        form(spark.read).option("startingOffsets", "latest").load(str(folder)).count()


def file_of(row):
    return row["file"]


def test_a_store_as_a_stream(spark, tmp_path):
    def run() -> None:
        source = spark.readStream.format("rocketmq_store").option("includeHeaders", "true")
        frame = source.option("maxOffsetsPerTrigger", 15).load(str(tmp_path / "store"))
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).format("parquet").start(str(tmp_path / "out"))
        assert query.awaitTermination(120) and query.exception() is None

    with opened(tmp_path / "store") as store:
        for turn in range(2):
            store.append(some_messages(turn, 40, first=100 * turn))
            run()
        whole = expected(StorePlan.of({"path": str(tmp_path / "store"), "includeHeaders": "true"}))
    assert collected(spark.read.parquet(str(tmp_path / "out"))) == whole
    assert len(whole) == 80
