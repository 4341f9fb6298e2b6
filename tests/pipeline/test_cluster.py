"""A standalone cluster of two workers, one of which lacks some folders with binlogs and stores.

What it lacks is either the folder, or its content: a file system that is not mounted there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from core.rig import Rig, put_line
from history.stores import opened, some_messages
from pipeline.plain import rows
from pipeline.standalone import standalone

from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.stores.plan import StorePlan

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

TASKS = 8
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    # Tasks begin when both executors are there.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
READS = """
import json, re, sys
from pyspark.sql import SparkSession
from beanstalkd_py import pipeline
master, attempts, settings, *tops = sys.argv[1:]
builder = SparkSession.builder.master(master)
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
pipeline.register(spark)
source = spark.read.format("beanstalkd_binlog").option("minPartitions", 8)
stream = spark.readStream.format("beanstalkd_binlog").option("minPartitions", 8)

def streamed(binlog):
    entries = stream.option("failOnDataLoss", "false").load(binlog)
    writing = entries.writeStream.format("memory").queryName("entries")
    writing.trigger(availableNow=True).start().awaitTermination()
    return spark.table("entries")

def reads(binlog, store):
    yield lambda: pipeline.read_binlog(spark, binlog, minPartitions=8)
    yield lambda: source.load(binlog)
    yield lambda: source.option("mode", "DROPMALFORMED").load(binlog)
    yield lambda: streamed(binlog)
    yield lambda: pipeline.read_store(spark, store)

for top in tops:
    results = []
    for read in reads(top + "/binlog", top + "/store"):
        found = []
        while len(found) < int(attempts):
            try:
                found.append(read().count())
            except Exception as error:
                found.append(re.search(r"errors\\.(\\w+: .*)", str(error))[1])
                break
        results.append(found)
    print(json.dumps(results))
"""
READS_OF = ["binlog", "binlog", "binlog", "binlog", "store"]


@dataclass(frozen=True)
class Cluster:
    master: str
    folder: Path
    """`shared`, which both workers have, `absent` and `unmounted`."""

    def run(
        self, places: list[str], events: Path, attempts: int = 1, **more: str
    ) -> list[list[list[Any]]]:
        """Read in a script of its own; return what each read of each place found.

        This is numbers of rows, or an error at the end: a read is made again until it fails,
        `attempts` times at most.
        """
        settings = {**SETTINGS, "spark.eventLog.dir": f"file://{events}", **more}
        command = [sys.executable, "-c", READS, self.master, attempts, json.dumps(settings)]
        done = self._run([*command, *(self.folder / place for place in places)])
        assert done.returncode == 0, done.stderr[-4000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    def command(self, events: Path, *words: object) -> subprocess.CompletedProcess[str]:
        settings = {**SETTINGS, "spark.eventLog.dir": f"file://{events}"}
        command = [sys.executable, "-m", "beanstalkd_py", "pipeline", *words]
        command += ["--master", self.master]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        return self._run(command)

    def _run(self, command: list[Any]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            timeout=400,
            cwd="/",
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    assert os.geteuid() == 0, "only root can hide folders of a worker"
    folder = tmp_path_factory.mktemp("cluster")
    shared = folder / "shared"
    (shared / "binlog").mkdir(parents=True)
    with Rig(shared / "binlog", file_size=4096) as rig:
        client = rig.client()
        for number in range(200):
            client.send(b"use tube-%d\r\n" % (number % 3) + put_line(b"x" * 200))
    with opened(shared / "store") as store:
        store.append(some_messages(seed=1, count=40))
        store.dispatch()
        store.flush()
    for place in ("absent", "unmounted"):
        shutil.copytree(shared, folder / place)
    unmounted = folder / "unmounted"
    hidden = [folder / "absent", unmounted / "binlog", unmounted / "store"]
    with standalone(folder, [[], hidden]) as master:
        yield Cluster(master, folder)


def executors(events: Path) -> set[str]:
    """Return the executors that have completed tasks, by the log of Spark's events."""
    (log,) = (path for path in events.iterdir() if path.is_file())
    lines = map(json.loads, log.read_text().splitlines())
    return {
        line["Task Info"]["Executor ID"]
        for line in lines
        if line["Event"] == "SparkListenerTaskEnd"
        and line["Task End Reason"]["Reason"] == "Success"
    }


def counts(cluster: Cluster) -> list[int]:
    binlog = len(rows(BinlogPlan.of({"path": str(cluster.folder / "shared" / "binlog")})))
    store = len(rows(StorePlan.of({"path": str(cluster.folder / "shared" / "store")})))
    assert (binlog, store) == (200, 40)
    return [{"binlog": binlog, "store": store}[name] for name in READS_OF]


def test_both_workers_read(cluster, tmp_path):
    assert cluster.run(["shared"], tmp_path) == [[[count] for count in counts(cluster)]]
    assert executors(tmp_path) == {"0", "1"}


def test_a_job_on_both_workers(cluster, tmp_path):
    binlog = cluster.folder / "shared" / "binlog"
    done = cluster.command(tmp_path, "run", "tube-metrics", "-i", binlog, "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    puts = [json.loads(line)["puts"] for line in done.stdout.splitlines()]
    assert sorted(puts) == [66, 67, 67]
    assert executors(tmp_path) == {"0", "1"}


def test_a_worker_without_the_files_fails_a_read(cluster, tmp_path):
    """The first failure of a task counts; otherwise Spark may repeat it on the other worker.

    On a loaded machine the other worker may take all tasks of a read, which then has all rows.
    """
    places = ["absent", "unmounted"]
    result = cluster.run(places, tmp_path, attempts=5, **{"spark.task.maxFailures": "1"})
    for place, found in zip(places, result, strict=True):
        for (*complete, error), name, count in zip(found, READS_OF, counts(cluster), strict=True):
            folder = cluster.folder / place / name
            assert complete == [count] * len(complete)
            assert isinstance(error, str) and "PipelineUsageError: host " in error
            assert f"cannot open any file in {folder}" in error


def test_a_worker_without_the_files_never_takes_rows(cluster, tmp_path):
    """With Spark's repetitions either all rows are there, from the other worker, or an error."""
    (result,) = cluster.run(["absent"], tmp_path)
    for (found,), count in zip(result, counts(cluster), strict=True):
        assert found == count or "cannot open any file in" in found


@pytest.mark.parametrize("name", ["json", "files", "export"])
def test_a_command_fails_with_one_line(cluster, tmp_path, name):
    out, binlog = tmp_path / "out", cluster.folder / "unmounted" / "binlog"
    words = {
        "json": ("run", "timelines", "--json"),
        "files": ("run", "timelines", "-o", out),
        "export": ("run", "export", "-o", out),
    }[name]
    events = tmp_path / "events"
    events.mkdir()
    done = cluster.command(events, *words, "-i", binlog, "--conf", "spark.task.maxFailures=1")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr[-4000:]
    errors = [line for line in done.stderr.splitlines() if "of this stage" not in line]
    assert len(errors) == 1 and f"cannot open any file in {binlog}" in errors[0], errors
    assert not list(out.rglob("*.parquet")) and not (out / "_SUCCESS").exists()
