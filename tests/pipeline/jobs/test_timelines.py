"""`timelines` by Spark gives the rows of one process."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from core.rig import SECOND, Rig
from pipeline import workloads
from pipeline.jobs.plain_timelines import entries_of, plain_timelines
from pipeline.workloads import Run
from pyspark.sql import functions as f

from beanstalkd_py import pipeline
from beanstalkd_py.core.tube_policy import DELETE, TubePolicy
from beanstalkd_py.pipeline.jobs.timeline_rows import COUNTERS, ENDS
from beanstalkd_py.pipeline.jobs.timelines import (
    COLUMNS,
    MESSAGE_COLUMNS,
    timelines,
    timelines_of_messages,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RUNS = {
    "history": ("--jobs=300", "--binlog-size=20K", "--history=HISTORY", "--truncate=1"),
    "workers": ("--jobs=300", "--binlog-size=20K", "--workers=2"),
    "c": ("--jobs=300", "--binlog-size=20K", "--server=c"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return workloads.made(tmp_path_factory.mktemp("made"), RUNS)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def read(spark: Any, path: Path | str, **options: Any) -> Any:
    return pipeline.read_binlog(spark, str(path), columns=list(COLUMNS), **options)


def collected(frame: Any) -> list[dict[str, Any]]:
    return in_order(row.asDict(recursive=True) for row in frame.collect())


def in_order(rows: Any) -> list[dict[str, Any]]:
    return sorted((_plain(row) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


@pytest.mark.parametrize("name", RUNS)
def test_spark_gives_the_timelines_of_one_process(spark, made, name):
    path = made[name].binlog
    whole = in_order(plain_timelines(entries_of(path, host="ann")))
    assert len(whole) == 300
    assert collected(timelines(read(spark, path, host="ann"))) == whole


def test_any_partitioning_gives_the_same_timelines(spark, made):
    parent = made["c"].binlog.parent
    paths = [str(made[name].binlog) for name in ("c", "workers")]
    whole = in_order(plain_timelines(entries_of(*map(Path, paths), host="ann")))
    entries = pipeline.read_binlog(spark, paths, columns=list(COLUMNS), host="ann")
    assert parent.is_dir() and len(whole) == 600
    before = {
        name: spark.conf.get(name)
        for name in ("spark.sql.shuffle.partitions", "spark.sql.execution.arrow.maxRecordsPerBatch")
    }
    try:
        for partitions, at_once in (("1", "37"), ("9", "10000")):
            spark.conf.set("spark.sql.shuffle.partitions", partitions)
            spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", at_once)
            assert collected(timelines(entries.repartition(5).orderBy(f.rand(1)))) == whole
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_the_file_size_does_not_change_timelines(spark, made, tmp_path):
    """C beanstalkd's entries do not contain their position."""
    entries = pipeline.read_binlog(
        spark, str(made["c"].binlog), columns=["path", "file_number", "offset", "size"]
    ).orderBy("file_number", "offset")
    parts = [
        Path(row.path).read_bytes()[row.offset : row.offset + row.size] for row in entries.collect()
    ]
    rng, number = random.Random(2), 0
    while parts:
        number += 1
        count = rng.choice([1, 40, 200])
        (tmp_path / f"binlog.{number}").write_bytes(b"\x07\0\0\0" + b"".join(parts[:count]))
        parts = parts[count:]
    assert number > 5

    def sure(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found_rows = []
        for row in rows:
            events = [
                {**event, "at": None, "until": None} if event["kind"] == "bounded" else event
                for event in row["events"]
                if event["event"] != "due"
            ]
            names = ("id", "tube", "state", "reserves", "touches", "complete")
            found_rows.append({**{name: row[name] for name in names}, "events": events})
        return sorted(found_rows, key=repr)

    one = sure(collected(timelines(read(spark, made["c"].binlog))))
    assert sure(collected(timelines(read(spark, tmp_path)))) == one


def test_damage_affects_its_jobs_only(spark, made, tmp_path):
    """In all modes that continue."""
    shutil.copytree(made["history"].binlog, tmp_path / "binlog")
    hit = set()
    entries = entries_of(tmp_path / "binlog")
    for file in (2, 3):
        row = [each for each in entries if each["file_number"] == file][5]
        path = tmp_path / "binlog" / f"binlog.{file}"
        if not path.exists():
            path = path.with_name(f"{path.name}.done")
        data = bytearray(path.read_bytes())
        data[row["offset"] + 40] ^= 1
        path.write_bytes(data)
        hit.add(row["id"])
    whole = collected(timelines(read(spark, made["history"].binlog, host="ann")))
    for mode in ("PERMISSIVE", "DROPMALFORMED"):
        frame = timelines(read(spark, tmp_path / "binlog", host="ann", mode=mode))
        found = collected(frame)
        assert all(row["id"] is not None for row in found)
        assert [row for row in found if row["id"] not in hit] == [
            row for row in whole if row["id"] not in hit
        ]
        assert found != whole
    with pytest.raises(Exception, match="MalformedError"):
        timelines(read(spark, tmp_path / "binlog", mode="FAILFAST")).collect()


def test_messages_give_the_timelines_of_their_entries(spark, made):
    """Except the shard, which messages of an unsharded folder lack."""
    store = pipeline.read_store(
        spark, str(made["history"].history), includeHeaders=True, host="ann"
    ).select(*MESSAGE_COLUMNS)
    of_entries = collected(timelines(read(spark, made["history"].binlog, host="ann")))
    ended = [{**row, "shard": None} for row in of_entries if row["end"]]
    of_messages = collected(timelines_of_messages(store))
    assert len(ended) > 100
    assert [row for row in of_messages if not lacks_due(row)] == [
        row for row in ended if row["id"] not in {r["id"] for r in of_messages if lacks_due(r)}
    ]


def test_ends_by_policies(spark, tmp_path: Path):
    policies = [TubePolicy("old", expires=10), TubePolicy("*", max_reserves=1, then=DELETE)]
    with Rig(tmp_path, history=True, sync_interval_ns=-1) as rig:
        rig.core.set_policies(policies, rig.now)
        client = rig.client()
        discarded, deleted = client.put(), client.put()
        client.ask(b"reserve-job %d\r\n" % discarded)
        client.do(b"release %d 0 0" % discarded, b"RELEASED")
        client.do(b"delete %d" % deleted, b"DELETED")
        client.use(b"old")
        expired = client.put()
        rig.advance(11 * SECOND)
    rows = collected(timelines(read(spark, tmp_path)))
    ends = {discarded: "discarded", deleted: "deleted", expired: "expired"}
    assert {row["id"]: row["end"] for row in rows} == ends


def test_tags_of_messages(spark):
    """An unknown tag and none count as a delete."""
    tags = {None: "deleted", "other": "deleted", **{end: end for end in ENDS}}
    known = dict.fromkeys(("pri", "ttr", *COUNTERS), "0")
    known |= {"UNIQ_KEY": "i-0-1-4", "timeline": "put@1000000000,pri=0;delete@2000000000"}
    rows = [
        ("ann", "mails", 4, {**known, "KEYS": str(job), **({"TAGS": tag} if tag else {})})
        for job, tag in enumerate(tags)
    ]
    schema = "host string, tube string, bodySize int, properties map<string, string>"
    found = collected(timelines_of_messages(spark.createDataFrame(rows, schema)))
    assert {row["id"]: row["end"] for row in found} == dict(enumerate(tags.values()))


def lacks_due(row: dict[str, Any]) -> bool:
    """The history does not know a due before a copy."""
    state = "ready"
    for event in row["events"]:
        if state == "delayed" and event["event"] not in ("due", "kick", "delete", "truncate"):
            return True
        state = "delayed" if event["delay"] else event["event"]
    return False


CLUSTER = """
import sys
from pyspark.sql import SparkSession, functions as f
from beanstalkd_py import pipeline
from beanstalkd_py.pipeline.jobs.timelines import COLUMNS, timelines
master, path = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
job_timelines = timelines(pipeline.read_binlog(spark, path, columns=list(COLUMNS), minPartitions=4))
hashed = job_timelines.select(f.xxhash64(*job_timelines.columns).cast("decimal(38)").alias("h"))
print(*hashed.agg(f.sum("h"), f.count("h")).first())
"""


@pytest.mark.slow
def test_two_executors_give_the_same_timelines(made, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CLUSTER)
    actual = []
    for master in ("local[2]", "local-cluster[2,1,1024]"):
        done = subprocess.run(
            [sys.executable, str(script), master, str(made["workers"].binlog)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        actual.append(done.stdout.splitlines()[-1])
    assert actual[0] == actual[1] and actual[0].endswith(" 300")
