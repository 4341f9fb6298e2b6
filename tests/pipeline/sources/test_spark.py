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

from beanstalkd_py import pipeline
from beanstalkd_py.cli.pipeline.output import INCOMPLETE, damage_status
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.binlogs.table import COLUMNS
from beanstalkd_py.pipeline.damage_count import DamageCount, read_counted
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
@pytest.mark.timeout(600)
def test_two_executors_give_the_same_rows(hosts, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CLUSTER)
    actual = []
    for master in ("local[2]", "local-cluster[2,1,1024]"):
        done = subprocess.run(
            [sys.executable, str(script), master, f"{hosts.name}/*"],
            capture_output=True,
            text=True,
            cwd=hosts.parent,  # executors have working folders of their own
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        actual += done.stdout.splitlines()[-2:]
    assert len(actual) == 4 and len(set(actual)) == 1


@pytest.mark.parametrize("way", ["function", "source"])
def test_a_job_without_its_files_fails(spark, tmp_path, way):
    """As on an executor whose machine does not have the files."""
    with Rig(tmp_path, file_size=4096) as rig:
        client = rig.client()
        for _ in range(60):
            client.put(b"x" * 200)
    numbers = sorted(int(path.name.partition(".")[2]) for path in files(tmp_path))

    def planned():
        if way == "function":
            frame = pipeline.read_binlog(spark, str(tmp_path), minPartitions=2)
        else:
            source = spark.read.format("beanstalkd_binlog").option("minPartitions", 2)
            frame = source.load(str(tmp_path))
        assert frame.rdd.getNumPartitions() == 2  # Spark asks the source for its files
        return frame.rdd

    planned_rows = planned()
    (tmp_path / "binlog.1").unlink()
    removed = [row for row in planned_rows.collect() if row._corrupt_record]
    assert [(row.file, row.id) for row in removed] == [("binlog.1", None)]
    assert "it was removed before it was read" in removed[0]._corrupt_record
    planned_rows = planned()
    for number in numbers[1:]:
        (tmp_path / f"binlog.{number}").unlink()
    with pytest.raises(Exception, match=r"PipelineUsageError: host .* other file of this read"):
        planned_rows.collect()


def test_removed_files_are_counted_apart(spark, tmp_path, capsys):
    with Rig(tmp_path, file_size=4096) as rig:
        client = rig.client()
        for _ in range(60):
            client.put(b"x" * 200)
    data = bytearray((tmp_path / "binlog.2").read_bytes())
    data[400] ^= 1
    (tmp_path / "binlog.2").write_bytes(data)
    damage = DamageCount()
    paths = [str(tmp_path)]
    entries = read_counted(pipeline.read_binlog, spark, paths, ["id"], "PERMISSIVE", damage)
    (tmp_path / "binlog.1").unlink()
    assert entries.count() > 40
    assert damage.faults() == (1, 1)
    assert damage_status(*damage.faults()) == INCOMPLETE
    assert [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "skipped 1 file removed before being read",
        "skipped 1 damaged place; 'binlog verify' and 'history verify' list them",
    ]


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
    given |= {"includeHeaders": "true", "includeBody": "true"} if view == "messages" else {}
    whole = expected(StorePlan.of(given))
    assert len(whole) > 100
    source = spark.read.format("rocketmq_store").options(**given)
    assert collected(source.load()) == whole
    more = {"includeHeaders": True, "includeBody": True} if view == "messages" else {}
    frame = pipeline.read_store(spark, str(folder), view, **more)
    assert collected(frame) == whole
    through = pipeline.read_store(spark, "viewfs://test/remote/store", view, **more)
    assert collected(through.drop("host")) == collected(frame.drop("host"))
    if view == "messages":
        assert frame.where("properties['UNIQ_KEY'] = 'u7'").count() == 1
