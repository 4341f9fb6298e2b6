"""Streaming queries that are killed while files grow."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from binlog.reader import files
from history.stores import opened, some_messages
from pipeline.drivers import Driver, kill_repeatedly, repeating, working_server
from pipeline.plain import dumped
from pipeline.sources.test_spark import collected, expected
from pyspark.errors import StreamingQueryException

from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.stores.plan import StorePlan

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = 2
BUSY = "Python worker failed to connect back"
QUERY = """
kind, path, out, option = sys.argv[1:]
rows = spark.readStream.format(kind).option(option, "true").option("maxOffsetsPerTrigger", 300)
writer = rows.load(path).writeStream.option("checkpointLocation", out + ".checkpoint")
while True:
    query = writer.trigger(processingTime="0 seconds").format("parquet").start(out)
    while query.isActive and not query.recentProgress:
        time.sleep(0.05)
    if query.isActive:
        print("begun", flush=True)
    try:
        query.awaitTermination()
    except Exception as error:
        if "{BUSY}" not in str(error):
            raise
""".replace("{BUSY}", BUSY)


def last_of(folder: Path) -> int:
    """Return the last batch in a folder of a checkpoint."""
    return max((int(each.name) for each in folder.iterdir() if each.name.isdigit()), default=-1)


def in_a_batch(checkpoint: Path) -> bool:
    return last_of(checkpoint / "offsets") > last_of(checkpoint / "commits")


def killed_queries(start: Callable[[], Driver], checkpoint: Path, seed: int) -> None:
    """Fail unless some queries are killed within a batch."""
    moments = [lambda: in_a_batch(checkpoint)] * KILLS
    killed = [in_a_batch(checkpoint) for _ in kill_repeatedly(start, moments, seed, most_s=0.3)]
    assert any(killed)


def take_the_rest(spark, kind: str, path: Path, out: Path, option: str) -> None:
    rows = spark.readStream.format(kind).option(option, "true").load(str(path))
    writer = rows.writeStream.option("checkpointLocation", f"{out}.checkpoint").format("parquet")
    while True:
        query = writer.trigger(availableNow=True).start(str(out))
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as error:
            assert BUSY in str(error)


def test_a_killed_query_over_a_busy_server(spark, folder, tmp_path):
    out = tmp_path / "out"
    how = ("beanstalkd_binlog", folder, out, "includeBody")
    with working_server(folder, seed=1):
        killed_queries(lambda: Driver(QUERY, *how), tmp_path / "out.checkpoint", seed=1)
    take_the_rest(spark, *how)
    whole = expected(BinlogPlan.of({"path": str(folder), "includeBody": "true"}))
    found = spark.read.parquet(str(out))
    assert collected(found) == whole
    actual = [
        (path.name, row["offset"], row["id"])
        for path in files(folder)
        for row in dumped(path, tmp_path / "scratch")
    ]
    place = found.select("file", "offset", "id").collect()
    assert sorted(map(tuple, place)) == sorted(actual)
    assert len(files(folder)) > 3


def test_a_killed_query_over_a_growing_store(spark, tmp_path):
    out, numbers = tmp_path / "out", itertools.count()
    how = ("rocketmq_store", tmp_path / "store", out, "includeHeaders")
    with opened(tmp_path / "store") as store:

        def append() -> None:
            number = next(numbers)
            store.append(some_messages(number, 1 + number % 9, first=10 * number))

        for _ in range(40):
            append()
        with repeating(append, pause_s=0.5):
            killed_queries(lambda: Driver(QUERY, *how), tmp_path / "out.checkpoint", seed=2)
        store.flush()
        take_the_rest(spark, *how)
        plan = StorePlan.of({"path": str(tmp_path / "store"), "includeHeaders": "true"})
        whole = expected(plan)
    assert collected(spark.read.parquet(str(out))) == whole
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 3
