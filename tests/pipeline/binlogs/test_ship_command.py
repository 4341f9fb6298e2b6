"""`pipeline ship` as a program, beside servers and when killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pipeline.plain import rows
from processes import eventually
from servers import Server, ours, reference
from wire import Client

from beanstalkd_py.binlog.done_files import list_done_files
from beanstalkd_py.pipeline.binlogs.manifest import Manifest, MissingFiles, ShippedFile
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.sources.remote import RemotePath

SMALL_FILES = ("-s", "20000")
SOON_S = 30.0
KEPT_S = 8.0
"""Longer than the archiver takes to remove a file."""


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "beanstalkd_py", "pipeline", "ship", *map(str, words)]


def ship(folder: Path, target: str, **environment: str) -> tuple[int, list[str]]:
    """Return status and lines of stderr."""
    words = command("-b", folder, "--to", target, "--host", "here")
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def shipped(target: str, shard: str = "") -> list[int]:
    manifest = Manifest.load(RemotePath.of(f"{target}/here"))
    return [each.file for each in manifest.files(shard)]


def finish_jobs(client: Client, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        job = client.put(b"%d:" % number * 100)
        client.ask(b"delete %d\r\n" % job)


def waiting_after(folder: Path, number: int) -> bool:
    return all(each.number > number for each in list_done_files(folder))


def keeping_files(tmp_path: Path, workers: int = 1) -> Server:
    places = (f"-b{tmp_path / 'binlog'}", f"--history={tmp_path / 'history'}")
    (tmp_path / "binlog").mkdir(exist_ok=True)
    return ours(*places, *SMALL_FILES, f"--workers={workers}")


@pytest.mark.slow
def test_files_wait_for_shipping_and_none_is_missed(tmp_path, target):
    folder = tmp_path / "binlog"
    with keeping_files(tmp_path) as server, server.connect() as client:
        assert ship(folder, target)[0] == 0
        finish_jobs(client, 100)
        status, lines = ship(folder, target)
        assert status == 0 and lines[0].startswith("beanstalkd-py: copied "), lines
        first = shipped(target)
        assert eventually(lambda: waiting_after(folder, first[-1]), SOON_S)
        finish_jobs(client, 200, 100)
        time.sleep(KEPT_S)
        waiting = [each.number for each in list_done_files(folder)]
        assert len(waiting) > 2 and waiting[0] <= first[-1] + 1
        assert ship(folder, target)[0] == 0
        last = shipped(target)[-1]
        assert eventually(lambda: waiting_after(folder, last), SOON_S)
        assert list(json.loads((folder / "shipped").read_text()).values()) == [last]
        finish_jobs(client, 100, 300)
        server.stop()
    assert ship(folder, target)[0] == 0
    numbers = shipped(target)
    assert numbers == list(range(1, numbers[-1] + 1))
    found = rows(BinlogPlan.of({"path": f"{target}/*", "includeBody": "true"}))
    puts = [row["body"] for row in found if row["kind"] == "full" and not row["is_copy"]]
    assert puts == [b"%d:" % number * 100 for number in range(400)]
    assert sum(row["state"] == "deleted" for row in found) == 400
    assert {row["host"] for row in found} == {"here"}


@pytest.mark.slow
def test_shards_and_a_server_with_another_number_of_workers(tmp_path):
    folder, target = tmp_path / "binlog", str(tmp_path / "target")
    with keeping_files(tmp_path, workers=2) as server, server.connect() as client:
        ship(folder, target)
        for tube in range(8):
            client.ask(b"use t%d\r\n" % tube)
            finish_jobs(client, 60, 1000 * tube)
        assert ship(folder, target)[0] == 0
        assert shipped(target, "shard-000") and shipped(target, "shard-001")
        server.stop()
    assert ship(folder, target)[0] == 0
    with keeping_files(tmp_path, workers=1) as server, server.connect() as client:
        finish_jobs(client, 60)
        server.stop()
    assert ship(folder, target)[0] == 0
    assert sorted(path.name for path in Path(target).iterdir()) == ["here", "here~2"]
    found = rows(BinlogPlan.of({"path": f"{target}/*", "includeBody": "true"}))
    puts = {(row["tube"], row["body"]) for row in found if row["kind"] == "full"}
    assert len(puts) == 8 * 60 + 60


@pytest.mark.slow
def test_without_a_history_removed_files_are_reported(tmp_path):
    folder, target = tmp_path / "binlog", str(tmp_path / "target")
    folder.mkdir()
    for start in (ours, reference):
        with start("-b", folder, *SMALL_FILES) as server, server.connect() as client:
            kept = [client.put(b"kept" * 100) for _ in range(200)]
            status, lines = ship(folder, target)
            first = shipped(target)[-1]
            for job in kept:
                client.ask(b"delete %d\r\n" % job)
            finish_jobs(client, 400)
            status, lines = ship(folder, target)
            assert status == 1 and len(lines) == 2, lines
            assert f"of {folder} was removed before it was copied" in lines[1]
            manifest = Manifest.load(RemotePath.of(f"{target}/here"))
            gaps = [each for each in manifest.lines if isinstance(each, MissingFiles)]
            assert gaps[-1].missing[0] == first + 1
            server.stop()
        assert ship(folder, target)[0] == 0


@pytest.mark.slow
def test_killed_runs_leave_whole_files(tmp_path, bucket):
    """A reader at any moment finds the first files, and at the end all of them."""
    dice = random.Random(1)
    folder, target = tmp_path / "binlog", f"{bucket}/killed"
    kills = 0
    with keeping_files(tmp_path) as server, server.connect() as client:
        begun_mono = time.monotonic()
        assert ship(folder, target)[0] == 0  # files are kept from here on
        run_s = time.monotonic() - begun_mono
        finish_jobs(client, 100)
        for turn in range(25):
            finish_jobs(client, 40, 1000 * turn)
            run = subprocess.Popen(
                command("-b", folder, "--to", target, "--host", "here"), stderr=subprocess.PIPE
            )
            time.sleep(dice.uniform(0.3, 1.3) * run_s)
            kills += run.poll() is None
            run.send_signal(signal.SIGKILL)
            run.communicate()
            try:
                found = rows(BinlogPlan.of({"path": f"{target}/*"}))
            except Exception as error:
                assert "has no binlog files" in str(error)
                continue
            assert not [row for row in found if row["_corrupt_record"]]
            numbers = sorted({row["file_number"] for row in found})
            assert numbers == list(range(1, len(numbers) + 1))
        server.stop()
    assert ship(folder, target)[0] == 0 and kills > 5
    manifest = Manifest.load(RemotePath.of(f"{target}/here"))
    assert all(isinstance(line, ShippedFile) for line in manifest.lines)
    found = rows(BinlogPlan.of({"path": f"{target}/*"}))
    puts = [row["id"] for row in found if row["kind"] == "full" and not row["is_copy"]]
    assert puts == list(range(1, 100 + 25 * 40 + 1))


@pytest.mark.costly
@pytest.mark.parametrize(
    ("folder", "to", "message"),
    [
        ("nowhere", "TARGET", "binlog folder nowhere does not exist; give the folder of -b"),
        (".", "TARGET", "no binlog files in .; give the folder of -b"),
        ("BINLOG", "s4://bucket/x", "cannot open s4://bucket/: "),
        ("BINLOG", "s3:/bucket", "path s3:/bucket has no bucket or host; give SCHEME://HOST/PATH"),
    ],
)
def test_usage_errors_are_one_line(tmp_path, folder, to, message):
    binlog = tmp_path / "binlog"
    binlog.mkdir()
    with ours("-b", binlog) as server, server.connect() as client:
        client.put(b"x")
    folder = Path(str(binlog)) if folder == "BINLOG" else Path(folder)
    status, lines = ship(folder, to.replace("TARGET", str(tmp_path / "target")))
    assert status == 2 and len(lines) == 1 and message in lines[0], lines


@pytest.mark.slow
def test_failures_are_one_line(tmp_path):
    binlog = tmp_path / "binlog"
    binlog.mkdir()
    with ours("-b", binlog) as server, server.connect() as client:
        client.put(b"x")
    status, lines = ship(binlog, "/proc/nowhere")
    assert status == 1 and len(lines) == 1 and "cannot read or write: " in lines[0], lines
    status, lines = ship(
        binlog,
        "s3://queues/x",
        AWS_ENDPOINT_URL="http://127.0.0.1:1",
        AWS_ACCESS_KEY_ID="k",
        AWS_SECRET_ACCESS_KEY="s",
        AWS_REGION="us-east-1",
        AWS_MAX_ATTEMPTS="1",
    )
    assert status == 1 and len(lines) == 1 and "cannot read or write: " in lines[0], lines


@pytest.mark.costly
def test_it_needs_pyarrow_and_no_spark(tmp_path):
    binlog, without = tmp_path / "binlog", tmp_path / "without"
    binlog.mkdir()
    without.mkdir()
    with ours("-b", binlog) as server, server.connect() as client:
        client.put(b"x")
    (without / "pyspark.py").write_text("raise ImportError('not here')")
    assert ship(binlog, str(tmp_path / "one"), PYTHONPATH=str(without))[0] == 0
    (without / "pyarrow.py").write_text("raise ModuleNotFoundError('not here')")
    status, lines = ship(binlog, str(tmp_path / "two"), PYTHONPATH=str(without))
    assert status == 2 and len(lines) == 1
    assert "ship requires PyArrow; run pip install 'beanstalkd_py[parquet]'" in lines[0]
