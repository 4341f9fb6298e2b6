"""The sink `beanstalkd` by Spark, also with killed drivers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter as Multiset
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pipeline.sink.tubes import Job, address, jobs, total_jobs
from processes import eventually
from pyspark.sql import SparkSession
from servers import Server, ours, reference

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

BODIES = (b"", b"\r\n", b"a\r\nput 0 0 1 0\r\n", bytes(range(256)), b"x" * 60000)


def sink(frame, server: Server, **options):
    writer = frame.write.format("beanstalkd").mode("append")
    return writer.options(addr=address(server), **options)


@pytest.mark.parametrize("start", [ours, reference])
def test_a_batch(spark, start):
    rows = [
        Job(f"t{number % 7}", number % 3, number % 2 * 3600, 1 + number % 9, body)
        for number in range(300)
        for body in BODIES
    ]
    frame = spark.createDataFrame(
        [tuple(row) for row in rows],
        "tube string, priority long, delay int, ttr short, body binary",
    )
    with start() as server:
        sink(frame.repartition(5), server).save()
        assert Multiset(jobs(server)) == Multiset(rows)


def test_options_are_defaults_of_rows(spark):
    frame = spark.sql("select 'text' body union all select 'more'")
    with ours("--workers", "2") as server:
        sink(frame, server).save()
        sink(frame, server, tube="other", PRIORITY="7", delay="3600", ttr="5").save()
        sink(frame.limit(0), server).save()
        assert Multiset(jobs(server, workers=2)) == Multiset(
            Job(*terms, body)
            for terms in (("default", 65536, 0, 60), ("other", 7, 3600, 5))
            for body in (b"text", b"more")
        )


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("1 body", {}, "column body is int, not binary or string; cast it"),
        ("'x' body, '1' priority", {}, "column priority is string, not a whole number"),
        ("'x' body, 1.5D delay", {}, "column delay is double, not a whole number"),
        ("'x' body, 1 pri", {}, "no column 'pri'; there are body, tube, priority, delay, ttr"),
        ("'x' tube", {}, "no column body"),
        ("'x' body", {"pri": "1"}, "no option 'pri'; there are addr, .*delay"),
        ("'x' body", {"ttr": "-1"}, "ttr '-1' is not a whole number from 0 to 4294967295"),
        ("'x' body", {"tube": "a b"}, "tube: 'a b' is not a tube name"),
        ("'x' body", {"timeout": "0"}, "timeout '0' is not a number of seconds"),
        ("'x' body", {"timeout": "1000001"}, "timeout '1000001' is not a number of seconds"),
        ("'x' body", {"addr": "host:x"}, "address 'host:x': invalid port number 'x'"),
        ("'x' body", {"maxRetries": "x"}, "maxRetries 'x' is not a whole number"),
        ("'x' body", {"tlsKey": "/key"}, "tlsKey needs tlsCert"),
        ("'x' body", {"tlsCa": "/nosuch/ca.pem"}, "tlsCa is for TLS, and addr .* is without; give"),
        ("'x' body", {"addr": ""}, "addr is empty; give a value, or leave it out"),
        ("'x' body", {"priority": ""}, "priority is empty"),
        ("'x' body", {"tube": " "}, "tube is empty"),
        ("'x' body", {"maxRetries": ""}, "maxRetries is empty"),
        ("'x' body", {"mode": ""}, "no option 'mode'"),
    ],
)
def test_invalid_options_put_nothing(spark, columns, options, message):
    frame = spark.sql(f"select {columns}")
    with ours() as server:
        with pytest.raises(Exception, match=f"PipelineUsageError: {message}"):
            sink(frame, server).options(**options).save()
        assert total_jobs(server) == 0


def test_jobs_are_not_overwritten_and_have_no_path(spark):
    frame = spark.sql("select 'x' body")
    with ours() as server:
        with pytest.raises(Exception, match="jobs cannot be overwritten; use the mode append"):
            sink(frame, server).mode("overwrite").save()
        with pytest.raises(Exception, match="jobs have no path"):
            sink(frame, server).save("/jobs")
        assert total_jobs(server) == 0


def test_the_format_does_not_read(spark):
    for reading in (spark.read, spark.readStream):
        with pytest.raises(Exception, match=r"format beanstalkd only writes: .*take_jobs"):
            reading.format("beanstalkd").option("addr", "127.0.0.1:11300").load()


def test_a_failed_task_names_the_row_and_the_jobs_that_stay(spark):
    frame = spark.range(0, 30000, 1, 2).selectExpr(
        "if(id = 29000, repeat('x', 70000), 'x') body", "concat('t', id % 3) tube"
    )
    with ours() as server:
        with pytest.raises(
            Exception,
            match="PipelineUsageError: a row for tube t2 has a body of 70000 bytes, and the server"
            r" takes 65535; .*; \d+0000 rows of this task put before, which stay",
        ):
            sink(frame, server).save()
        assert total_jobs(server) >= 10000


STREAM = """
import sys
from pyspark.sql import SparkSession
source, checkpoint, addr = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
rows = spark.readStream.schema("body string, tube string").option("maxFilesPerTrigger", 2)
writer = rows.parquet(source).writeStream.format("beanstalkd")
writer = writer.option("checkpointLocation", checkpoint).option("addr", addr)
writer.trigger(availableNow=True).start().awaitTermination()
"""
FILES = 12
FILE_ROWS = 3000


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """Write files with a distinct body for each row."""
    folder = tmp_path_factory.mktemp("stream")
    for number in range(FILES):
        ids = range(number * FILE_ROWS, (number + 1) * FILE_ROWS)
        rows = {"body": [str(row) for row in ids], "tube": [f"t{row % 5}" for row in ids]}
        pyarrow.parquet.write_table(pa.table(rows), folder / f"{number:03}.parquet")
    return folder


class Stream:
    def __init__(self, source: Path, folder: Path, server: Server) -> None:
        script = folder / "stream.py"
        script.write_text(STREAM)
        self.checkpoint = folder / "checkpoint"
        self._source, self._address = source, address(server)
        paths = map(str, (script, source, self.checkpoint))
        self._command = [sys.executable, *paths, self._address]

    def kill_at(self, moment: Callable[[], bool]) -> None:
        with subprocess.Popen(
            self._command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        ) as process:
            try:
                assert eventually(lambda: moment() or process.poll() is not None, 240)
                ended = process.poll()
            finally:
                os.killpg(process.pid, signal.SIGKILL)
            _, err = process.communicate()
            assert ended is None, err[-3000:]

    def finish(self, spark: SparkSession) -> int:
        """Put the rest from the session of the tests; return the number of rows."""
        rows = spark.readStream.schema("body string, tube string").option("maxFilesPerTrigger", 2)
        writer = rows.parquet(str(self._source)).writeStream.format("beanstalkd")
        writer = writer.options(checkpointLocation=str(self.checkpoint), addr=self._address)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(150)
        return sum(each.sink.numOutputRows for each in query.recentProgress)


def in_tubes(server: Server, workers: int = 1) -> Multiset[bytes]:
    """Return the bodies of all jobs ever put."""
    found = Multiset(job.body for job in jobs(server, workers))
    assert found.total() == total_jobs(server)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_repeatedly_killed_stream_puts_every_row(spark, source, tmp_path):
    with ours() as server:
        stream = Stream(source, tmp_path, server)
        for turn in range(2):
            least = total_jobs(server) + 2 * FILE_ROWS * turn
            stream.kill_at(lambda least=least: total_jobs(server) > least)
        stream.finish(spark)
        found = in_tubes(server)
        assert found.keys() == {b"%d" % row for row in range(FILES * FILE_ROWS)}
        assert found.total() > len(found)


def test_a_batch_that_spark_repeats_is_put_again(spark, source, tmp_path):
    """As after a crash between the commits of the sink and of Spark."""
    rows = FILES * FILE_ROWS
    with ours() as server:
        stream = Stream(source, tmp_path, server)
        assert stream.finish(spark) == rows
        assert total_jobs(server) == rows
        last = FILES // 2 - 1
        for name in (str(last), f".{last}.crc"):
            (stream.checkpoint / "commits" / name).unlink()
        stream.finish(spark)
        assert total_jobs(server) == rows + 2 * FILE_ROWS


CLUSTER = """
import sys
from pyspark.sql import SparkSession
addr, = sys.argv[1:]
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
rows = spark.range(0, 20000, 1, 4).selectExpr("cast(id as string) body", "concat('t', id % 5) tube")
writer = rows.write.format("beanstalkd").mode("append").option("addr", addr)
writer.save()
"""


@pytest.mark.slow
def test_two_executors_put_each_row_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CLUSTER)
    with ours("--workers", "2") as server:
        done = subprocess.run(
            [sys.executable, str(script), address(server)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found = in_tubes(server, workers=2)
    assert found == Multiset(b"%d" % row for row in range(20000))
