"""The sources as streams, which need Spark 4.2."""

from __future__ import annotations

import pyspark
import pytest
from binlog.reader import files
from core.rig import Rig
from history.stores import opened, some_messages
from pipeline.plain import rows
from pipeline.sources.test_spark import collected, expected
from processes import eventually

from beanstalkd_py import pipeline
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.stores.plan import StorePlan

VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
streams = pytest.mark.skipif(VERSION < (4, 2), reason="streams need Spark 4.2")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.mark.skipif(VERSION >= (4, 2), reason="this Spark has streams")
def test_an_old_spark_reports_what_it_lacks(spark, folder, tmp_path):
    Rig(folder).close()
    for source in ("beanstalkd_binlog", "rocketmq_store"):
        with pytest.raises(Exception, match=r"streams need Spark 4\.2 or newer, and this is 4\.1"):
            frame = spark.readStream.format(source).load(str(folder))
            writer = frame.writeStream.option("checkpointLocation", str(tmp_path / source))
            writer.format("noop").start().awaitTermination(60)


@streams
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


@streams
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


@streams
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


@streams
def test_a_store_as_a_stream(spark, tmp_path):
    shown = {"includeHeaders": "true", "includeBody": "true"}

    def run() -> None:
        source = spark.readStream.format("rocketmq_store").options(**shown)
        frame = source.option("maxOffsetsPerTrigger", 15).load(str(tmp_path / "store"))
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).format("parquet").start(str(tmp_path / "out"))
        assert query.awaitTermination(120) and query.exception() is None

    with opened(tmp_path / "store") as store:
        for turn in range(2):
            store.append(some_messages(turn, 40, first=100 * turn))
            run()
        whole = expected(StorePlan.of({"path": str(tmp_path / "store"), **shown}))
    assert collected(spark.read.parquet(str(tmp_path / "out"))) == whole
    assert len(whole) == 80
