"""Binlogs in an object store and on a file system of fsspec, read by Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pyspark
import pytest
from pipeline.binlogs.test_ship import serving, with_jobs
from pipeline.plain import rows
from processes import eventually

from beanstalkd_py import pipeline
from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.binlogs.ship import ship
from beanstalkd_py.pipeline.jobs.export.job import export, read_export

VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def there(spark, bucket) -> str:
    """A folder in the object store, which Spark's workers can open."""
    names = [name for name in os.environ if name.startswith("AWS_")]
    spark.sparkContext.environment.update({name: os.environ[name] for name in names})
    pipeline.register(spark)
    return f"{bucket}/{uuid.uuid4().hex}"


def places(frame) -> Counter:
    return Counter(tuple(row) for row in frame.select("host", "file_number", "offset").collect())


def expected(target: str) -> Counter:
    found = rows(BinlogPlan.of({"path": f"{target}/*"}))
    return Counter((row["host"], row["file_number"], row["offset"]) for row in found)


def ship_of_two_hosts(folder: Path, target: str) -> None:
    with serving(folder) as rig:
        with_jobs(rig, 40)
    for host in ("ann", "bob"):
        ship(folder, target, host)


def test_source_and_function_read_the_same(spark, folder, there):
    ship_of_two_hosts(folder, there)
    source = spark.read.format("beanstalkd_binlog").load(f"{there}/*")
    assert places(source) == expected(there)
    assert places(pipeline.read_binlog(spark, f"{there}/*")) == expected(there)
    one = pipeline.read_binlog(spark, f"{there}/ann", host="ann")
    assert places(one) == Counter(place for place in expected(there) if place[0] == "ann")


def test_a_file_system_of_fsspec(spark, folder, tmp_path):
    pipeline.register(spark)
    target = f"local://{tmp_path}"
    ship_of_two_hosts(folder, target)
    assert places(spark.read.format("beanstalkd_binlog").load(f"{target}/*")) == expected(target)


def test_a_bounded_batch_and_missing_files(spark, folder, there):
    ship_of_two_hosts(folder, there)
    start = f'{{"{there}/ann": {{"file": 2, "offset": 0}}}}'
    end = f'{{"{there}/ann": {{"file": 4, "offset": 0}}}}'
    reader = spark.read.format("beanstalkd_binlog").option("startingOffsets", start)
    found = places(reader.option("endingOffsets", end).load(f"{there}/ann"))
    assert {number for _, number, _ in found} == {2, 3}
    with pytest.raises(PipelineUsageError, match=r"does not exist|has no binlog files"):
        pipeline.read_binlog(spark, f"{there}/nobody/*")


@pytest.mark.skipif(VERSION < (4, 2), reason="streams need Spark 4.2")
def test_a_stream_has_every_shipped_entry_once(spark, folder, there, tmp_path):
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def start(**trigger):
        source = spark.readStream.format("beanstalkd_binlog").option("maxFilesPerTrigger", 2)
        entries = source.load(f"{there}/*")
        writer = entries.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        return writer.trigger(**trigger).start(out)

    with serving(folder) as rig:
        for _ in range(3):
            with_jobs(rig, 20)
            ship(folder, there, "ann")
            query = start(availableNow=True)
            assert query.awaitTermination(120) and query.exception() is None
    query = start(processingTime="0 seconds")
    try:
        ship(folder, there, "ann")
        count = sum(expected(there).values())
        assert eventually(lambda: spark.read.parquet(out).count() == count, 60)
    finally:
        query.stop()
    assert places(spark.read.parquet(out)) == expected(there)


def test_an_export_follows_shipped_files(spark, folder, there, tmp_path):
    tables = str(tmp_path / "tables")
    added = 0
    with serving(folder) as rig:
        for _ in range(3):
            with_jobs(rig, 20)
            ship(folder, there, "ann")
            added += export(spark, f"{there}/*", tables).rows
    assert export(spark, f"{there}/*", tables).rows == 0
    assert places(read_export(spark, tables)) == expected(there)
    assert added == sum(expected(there).values())


def test_commands_read_an_object_store(folder, bucket):
    target = f"{bucket}/commands"
    ship_of_two_hosts(folder, target)
    words = ["run", "timelines", "--input", f"{target}/*", "--json", "--limit", "none"]
    command = [sys.executable, "-m", "beanstalkd_py", "pipeline", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 80
