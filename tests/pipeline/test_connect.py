"""Spark Connect: servers on loopback, and clients that cannot import py4j.

The Python of `connect` lacks this package, which clients send. Spark uses what they send neither
for streams nor for writing to a data source, so that of `installed` has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cli.operator import CommandResult
from core.rig import Rig, put_line
from history.stores import opened, some_messages
from pipeline.other_python import python_for_spark
from pipeline.plain import rows
from processes import eventually
from servers import free_port, ours

from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.package import write_package
from beanstalkd_py.pipeline.stores.plan import StorePlan

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

JOBS = ("tube-metrics", "dead-letters", "binlog-health", "verify")
SKIPPED = "skipped 1 damaged place; 'binlog verify' and 'history verify' list them"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
WITHOUT_JVM = """
import json, sys
sys.modules["py4j"] = sys.modules["pyspark.core"] = None  # as with pyspark-client
"""
SESSION = """
from pyspark.sql import SparkSession, functions as f
from beanstalkd_py import pipeline
url, folder, *more = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
spark.addArtifacts(f"{folder}/beanstalkd-py.zip", pyfile=True)
"""
MAIN = """
from beanstalkd_py.__main__ import main
sys.argv[0] = "beanstalkd-py"
main()
"""
COMMANDS = """
from cli.operator import Operator
for words in json.loads(sys.argv[1]):
    done = Operator("127.0.0.1:1").try_(*words)
    print(json.dumps([done.status, done.out.decode(), done.errors]))
"""
TESTS = Path(__file__).parents[1]


class Connect:
    """A server, and scripts that are its clients."""

    def __init__(self, port: int, folder: Path) -> None:
        self.url = f"sc://127.0.0.1:{port}"
        self.folder = folder
        """`binlog/ann`, with a damaged file, `store`, the package; also viewfs://test/remote."""

    def _run(self, code: str, *args: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", WITHOUT_JVM + code, *map(str, args)],
            capture_output=True,
            text=True,
            timeout=500,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )

    def run(self, script: str, *args: object) -> list[Any]:
        """Return the JSON lines that a script prints."""
        done = self._run(SESSION + script, self.url, self.folder, *args)
        assert done.returncode == 0, done.stderr[-4000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    def command(self, *words: object) -> subprocess.CompletedProcess[str]:
        return self._run(MAIN, "pipeline", *words, "--master", self.url)

    def commands(self, *commands: Sequence[object]) -> list[CommandResult]:
        """Run commands in one process, because the start of a client takes seconds."""
        words = [["pipeline", *map(str, each), "--master", self.url] for each in commands]
        done = self._run(COMMANDS, json.dumps(words))
        assert done.returncode == 0, done.stderr[-4000:]
        results = map(json.loads, done.stdout.splitlines())
        return [CommandResult(status, out.encode(), errors) for status, out, errors in results]


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    folder = tmp_path_factory.mktemp("connect")
    with serving(
        folder, python_for_spark(folder, "deltalake", "arro3", "typing_extensions")
    ) as found:
        yield found


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Connect]:
    folder = tmp_path / "installed"
    folder.mkdir()
    with serving(folder, sys.executable) as found:
        yield found


@contextlib.contextmanager
def serving(folder: Path, python: str) -> Iterator[Connect]:
    import pyspark

    fill(folder)
    write_package(folder / "beanstalkd-py.zip")
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.hadoop.fs.viewfs.mounttable.test.link./remote": f"file://{folder}",
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--class", SERVER]
    command += ["--master", "local[2]", "--driver-memory", "1g"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, "PYSPARK_PYTHON": python, "SPARK_CONNECT_MODE": "0"},
            start_new_session=True,
        )
    try:
        assert eventually(lambda: accepts(port) or process.poll() is not None, 180)
        assert process.poll() is None, log.read_text()[-3000:]
        yield Connect(port, folder)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def fill(folder: Path) -> None:
    ann = folder / "binlog" / "ann"
    ann.mkdir(parents=True)
    with Rig(ann, file_size=4096) as rig:
        client = rig.client()
        for number in range(60):
            client.send(b"use tube-%d\r\n" % (number % 3) + put_line(b"x" * 200))
        client.ask(b"delete 7\r\n")
    data = bytearray((ann / "binlog.2").read_bytes())
    data[400] ^= 1
    (ann / "binlog.2").write_bytes(data)
    with opened(folder / "store") as store:
        store.append(some_messages(seed=1, count=40))
        store.dispatch()
        store.flush()


def places(plan: BinlogPlan) -> list[list[Any]]:
    names = ("file_number", "offset", "id", "tube")
    return sorted([row[name] for name in names] for row in rows(plan) if row["id"] is not None)


def test_reading(connect):
    script = """
names = ["file_number", "offset", "id", "tube"]
for start in more:
    for frame in (
        pipeline.read_binlog(spark, f"{start}/binlog/*", columns=names),
        pipeline.read_binlog(spark, [f"{start}/binlog/ann"], includeBody=True).select(*names),
    ):
        print(json.dumps([list(row) for row in frame.where("id is not null").collect()]))
    frame = pipeline.read_store(spark, f"{start}/store", includeHeaders=True)
    print(json.dumps(frame.agg(f.count("*"), f.sum("bodySize")).first()[:]))
    print(json.dumps(pipeline.read_store(spark, f"{start}/store", view="queues").count()))
"""
    starts = [connect.folder, f"file://{connect.folder}", "viewfs://test/remote"]
    found = connect.run(script, *starts)
    expected = places(BinlogPlan.of({"path": f"{connect.folder}/binlog/*"}))
    messages = rows(StorePlan.of({"path": f"{connect.folder}/store"}))
    queues = rows(StorePlan.of({"path": f"{connect.folder}/store", "view": "queues"}))
    sums = [len(messages), sum(row["bodySize"] for row in messages)]
    for first in range(0, 4 * len(starts), 4):
        assert [sorted(each) for each in found[first : first + 2]] == [expected] * 2
        assert found[first + 2 : first + 4] == [sums, len(queues)]
    assert len(found) == 4 * len(starts)


def test_sources_and_tables(connect):
    script = """
pipeline.register(spark)
path = f"{folder}/binlog/*"
print(spark.read.format("beanstalkd_binlog").load(path).count())
spark.sql(f"create table entries using beanstalkd_binlog options (path '{path}')")
print(spark.table("entries").count())
"""
    count = len(rows(BinlogPlan.of({"path": f"{connect.folder}/binlog/*"})))
    assert connect.run(script) == [count, count]


def test_streams_and_rows_into_a_server(installed, tmp_path):
    script = """
pipeline.register(spark)
path = f"{folder}/binlog/*"
stream = spark.readStream.format("beanstalkd_binlog").load(path).writeStream.format("parquet")
stream = stream.option("checkpointLocation", f"{more[0]}/checkpoint").trigger(availableNow=True)
query = stream.start(f"{more[0]}/out")
query.awaitTermination(120)
print(spark.read.parquet(f"{more[0]}/out").count())
pipeline.register(spark)  # Spark has found the sources by now
numbers = spark.range(30).select(f.col("id").cast("string").alias("body"))
numbers.write.format("beanstalkd").mode("append").options(addr=more[1], tube="t").save()
"""
    count = len(rows(BinlogPlan.of({"path": f"{installed.folder}/binlog/*"})))
    with ours() as server, server.connect() as client:
        assert installed.run(script, tmp_path, f"127.0.0.1:{server.port}") == [count]
        assert client.stats(b"stats-tube t")["current-jobs-ready"] == "30"


def test_errors_are_one_line(connect, tmp_path):
    done = connect.command("run", "timelines", "-i", f"{tmp_path}/none", "--json")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(f"path {tmp_path}/none does not exist")


def test_commands(connect, tmp_path):
    """The first one writes a report and exits with 1 because of damage."""
    inputs, out = ("-i", f"{connect.folder}/binlog/*"), tmp_path / "out"
    page = tmp_path / "page.html"
    done = connect.command("report", *inputs, "-o", page)
    assert done.returncode == 1 and "skipped 1 damaged place;" in done.stderr, done.stderr
    assert page.stat().st_size > 10_000

    words = ("run", "timelines", *inputs, "-o", out)
    there = ("-i", "viewfs://test/remote/binlog/*", "--json", "--limit", "none")
    made, exists, overwrite, elsewhere, counted, relative, *jobs = connect.commands(
        words,
        words,
        (*words, "--overwrite"),
        ("run", "timelines", *there),
        ("sql", *inputs, "--json", "select count(id) as n from entries"),
        ("run", "timelines", "-i", "binlog", "--json"),
        *(("run", job, *inputs, "--json") for job in JOBS),
    )
    ids = {row["id"] for row in rows(BinlogPlan.of({"path": inputs[1]}))} - {None}
    assert (made.status, made.errors[-1]) == (1, SKIPPED)
    assert sorted(pq.read_table(out)["id"].to_pylist()) == sorted(ids)
    assert f"output {out} exists; give another folder" in exists.errors[-1]
    assert "--overwrite does not work" in overwrite.errors[-1]
    assert sorted(row["id"] for row in elsewhere.json_lines) == sorted(ids)
    assert (counted.status, counted.json_lines) == (1, [{"n": 60}])
    assert relative.status == 2 and "path binlog is relative" in relative.errors[-1]
    for job in jobs:
        assert (job.status, job.errors[1:]) == (1, [SKIPPED]), job.errors


def test_an_export(connect, tmp_path):
    binlog = shutil.copytree(connect.folder / "binlog" / "ann", tmp_path / "ann")
    script = """
from beanstalkd_py.pipeline.jobs.export.job import export, read_export
for _ in range(2):
    print(export(spark, more[0], more[1]).rows)
print(read_export(spark, more[1]).where("kind = 'full'").count())
"""
    whole = rows(BinlogPlan.of({"path": str(binlog)}))
    assert connect.run(script, binlog, tmp_path / "out") == [
        len(whole),
        0,
        sum(row["kind"] == "full" for row in whole),
    ]
