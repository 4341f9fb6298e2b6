"""Paths, globs, hosts and options of the sources."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from core.rig import Rig, put_line
from pipeline.plain import binlog_plan, rows

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.binlogs.entries import BinlogFile
from beanstalkd_py.pipeline.binlogs.files import is_in_place, pack
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.sources.paths import Hosts


def fill(folder: Path, bodies: int = 1) -> None:
    """Write one file with some puts."""
    folder.mkdir(parents=True)
    with Rig(folder) as rig:
        rig.client().send(b"".join(put_line(b"%d" % number) for number in range(bodies)))
    (folder / "binlog.2").unlink(missing_ok=True)  # a preallocated file, if it was made in time


def found(path: Path | str, **options: str) -> list[tuple[str, str, str]]:
    """Return host, shard and name of every file."""
    plan = BinlogPlan.of({"path": str(path), **options})
    return [(file.host, file.shard, file.name) for task in plan.tasks(1) for file in task]


def test_shards_archives_and_other_files(tmp_path):
    fill(tmp_path / "shard-000")
    fill(tmp_path / "shard-001")
    fill(tmp_path / "reshard.new" / "shard-000")
    (tmp_path / "shard-001" / "binlog.1").rename(tmp_path / "shard-001" / "binlog.1.done")
    fill(tmp_path / "elsewhere" / "deep")
    for name in ("binlog.7.bad", "binlog.x", "notes", "lock"):
        (tmp_path / "shard-000" / name).write_bytes(b"?")
    expected = [("h", "shard-000", "binlog.1"), ("h", "shard-001", "binlog.1")]
    assert found(tmp_path, host="h") == expected
    assert found(f"file:{tmp_path}", host="h") == expected
    assert found(f"file://{tmp_path}/shard-*", host="h") == expected
    assert found(tmp_path, host="h", pathGlobFilter="*.done") == expected[1:]
    assert found(tmp_path, host="h", recursiveFileLookup="true") == [
        ("h", "", "binlog.1"),
        *expected,
    ]
    assert [row["shard"] for row in rows(binlog_plan(tmp_path))] == ["shard-000", "shard-001"]


def test_a_file_with_two_names_is_read_once(tmp_path):
    fill(tmp_path / "a")
    (tmp_path / "a" / "binlog.1.done").write_bytes((tmp_path / "a" / "binlog.1").read_bytes())
    assert [row["id"] for row in rows(binlog_plan(tmp_path / "a"))] == [1]


def test_hosts_match_the_first_wildcard(tmp_path):
    for host in ("ann", "bob"):
        fill(tmp_path / host / "binlog")
    glob = f"{tmp_path}/*/binlog"
    assert [host for host, _, _ in found(glob)] == ["ann", "bob"]
    assert [host for host, _, _ in found(f"{tmp_path}/{{ann,bob}}/binlog")] == ["ann", "bob"]
    assert [host for host, _, _ in found(f"{tmp_path}/[b]*/binlog/binlog.*")] == ["bob"]
    assert [host for host, _, _ in found(f"{tmp_path}/ann/binlog", host="one")] == ["one"]
    assert [host for host, _, _ in found(glob, hostPattern=r"/(.)\w*/binlog/")] == ["a", "b"]
    remote = Hosts.of(["hdfs:///srv/*/binlog"], None, None)
    assert remote.host("hdfs://nn:8020/srv/ann/binlog/shard-000/binlog.7") == "ann"
    assert remote.host("hdfs://nn:8020/other/binlog.7") == ""
    for odd, path in (("a[]b*", "a[]bc"), ("a[]b]c", "abc"), ("a[!]b]c", "axc")):
        assert Hosts.of([f"s3://x/{odd}/binlog"], None, None).host(f"s3://x/{path}/binlog") == path
    # A wildcard for files or shards does not match hosts.
    usual = Hosts.of([str(tmp_path)], None, None).host("x")
    assert [host for host, _, _ in found(f"{tmp_path}/ann/binlog/binlog.*")] == [usual]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "/nowhere"}, "path /nowhere does not exist"),
        ({"path": "hdfs://nn/x"}, r"cannot open hdfs://nn/: .*; install a file system of fsspec"),
        ({"path": "/etc/passwd"}, "is not a binlog file"),
        ({}, "no path"),
        ({"path": "/", "mode": "loud"}, "no mode 'loud'; there are PERMISSIVE"),
        ({"path": "/", "mod": "x"}, "no option 'mod'; there are"),
        ({"path": "/", "columns": "id,tub"}, "no column 'tub'; there are host"),
        ({"path": "/", "includeBody": "yes"}, "includeBody 'yes' is neither true nor false"),
        ({"path": "/", "minPartitions": "0"}, "minPartitions '0'"),
        ({"path": "/", "targetPartitionBytes": "1x"}, "is not a size such as 128m"),
        ({"path": "/", "subscribe": "a", "subscribePattern": "b"}, "not both"),
        ({"path": "/", "subscribePattern": "("}, "subscribePattern"),
        ({"path": "/", "startingTimestamp": "noon"}, "is not a whole number of milliseconds"),
        ({"path": "/", "startingTimestamp": "9" * 20}, "is outside the range"),
        ({"path": "/", "startingTimestamp": "1_000"}, "is not a whole number of milliseconds"),
        ({"path": "/", "startingTimestamp": "7", "endingTimestamp": "7"}, "is not before"),
        ({"path": "/", "pathGlobFilter": ""}, "pathGlobFilter is empty"),
        ({"path": "/", "mode": " "}, "mode is empty"),
        ({"path": "/", "hostPattern": "x"}, "no group"),
        ({"path": "/", "columnNameOfCorruptRecord": "id"}, "'id' is a column already"),
        ({"path": "/", "columnNameOfCorruptRecord": "Id"}, "'Id' is a column already"),
    ],
)
def test_invalid_options(options, message):
    with pytest.raises(PipelineUsageError, match=message):
        BinlogPlan.of(options).tasks()


def test_globs_follow_hadoop(tmp_path):
    for name in ("one", "two"):
        fill(tmp_path / name)
    for number in range(2, 6):
        shutil.copyfile(tmp_path / "one" / "binlog.1", tmp_path / "one" / f"binlog.{number}")

    def names(path, **options):
        return [name for _, _, name in found(f"{tmp_path}/{path}", **options)]

    assert (
        names("one/binlog.[^1]")
        == names("one/binlog.[!1]")
        == [f"binlog.{n}" for n in (2, 3, 4, 5)]
    )
    assert names("one", pathGlobFilter="binlog.[^1-3]") == ["binlog.4", "binlog.5"]
    assert names("one", pathGlobFilter="binlog.{1,4}") == ["binlog.1", "binlog.4"]
    assert names("one", pathGlobFilter="*.?") == [f"binlog.{n}" for n in range(1, 6)]
    assert [host for host, _, _ in found(f"{tmp_path}/[^o]*")] == ["two"]


def test_a_file_found_by_several_paths_is_read_once(tmp_path):
    fill(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    paths = [
        f"{tmp_path}/real",
        f"{tmp_path}/link/../real/",
        f"{tmp_path}/link",
        f"{tmp_path}/{{real,link}}",
    ]
    for path in (*paths, *itertools.combinations(paths, 2)):
        given = {"path": path} if isinstance(path, str) else {"paths": json.dumps(path)}
        assert len(rows(BinlogPlan.of(given))) == 1


def test_two_files_with_the_same_key_are_rejected(tmp_path):
    for name in ("one", "two"):
        fill(tmp_path / name)
    both = json.dumps([str(tmp_path / "one"), str(tmp_path / "two")])
    with pytest.raises(PipelineUsageError, match=r"are both binlog\.1 of host"):
        BinlogPlan.of({"paths": both}).tasks()
    assert len(rows(BinlogPlan.of({"paths": both, "hostPattern": "/(one|two)/"}))) == 2
    # The older files of one server may be elsewhere.
    (tmp_path / "two" / "binlog.1").rename(tmp_path / "two" / "binlog.2")
    assert len(rows(BinlogPlan.of({"paths": both}))) == 2


def test_a_relative_glob(tmp_path, monkeypatch):
    fill(tmp_path / "ann" / "binlog")
    monkeypatch.chdir(tmp_path)
    assert found("*/binlog") == [("ann", "", "binlog.1")]


def test_files_in_place_on_another_file_system():
    plan = BinlogPlan.of({"path": "hdfs:///srv/*/binlog"})
    for path in ("binlog.1", "shard-001/binlog.2.done"):
        assert is_in_place(f"hdfs://nn:8020/srv/ann/binlog/{path}", plan.lookup)
    for path in ("lock", "binlog.1.bad", "old/binlog.1", "reshard.new/shard-000/binlog.1"):
        assert not is_in_place(f"hdfs://nn:8020/srv/ann/binlog/{path}", plan.lookup)
    recursive = BinlogPlan.of({"path": "hdfs:///srv", "recursiveFileLookup": "true"})
    assert is_in_place("hdfs://nn/srv/a/b/c/binlog.1", recursive.lookup)
    assert not is_in_place("hdfs://nn/srv/reshard.new/shard-000/binlog.1", recursive.lookup)


def test_an_interrupted_reshard_is_not_read(tmp_path):
    fill(tmp_path / "x")
    (tmp_path / "x" / "reshard.done").mkdir()
    with pytest.raises(PipelineUsageError, match="was being resharded"):
        found(tmp_path / "x")


def test_tasks_are_even_and_keep_the_order():
    files = [BinlogFile(f"/{n}", "h", "", n, 10 << 20) for n in range(1, 21)]
    assert [len(run) for run in pack(files, 2, 128 << 20)] == [10, 10]
    assert [len(run) for run in pack(files, 1, 50 << 20)] == [4] * 5
    assert [len(run) for run in pack(files, 100, 128 << 20)] == [1] * 20
    assert [file for run in pack(files, 3, 128 << 20) for file in run] == files
    assert pack([], 2, 1) == []


def test_filters_by_tube_and_time(tmp_path):
    with Rig(tmp_path) as rig:
        client = rig.client()
        for tube in (b"mail.a", b"mail.b", b"other"):
            client.send(b"use %b\r\n" % tube + put_line(b"x"))
            rig.advance(10**9)
        client.ask(b"delete 3\r\n")
    whole = rows(binlog_plan(tmp_path))
    tubes = [row["tube"] for row in rows(binlog_plan(tmp_path, subscribe="mail.a,mail.b"))]
    assert tubes == ["mail.a", "mail.b", None]  # a short entry has no tube
    found = rows(binlog_plan(tmp_path, subscribePattern=r"mail\..", columns="id,kind"))
    assert [row["id"] for row in found] == [1, 2, 3]
    second = str(whole[1]["event_time_ns"] // 10**6)
    later = rows(binlog_plan(tmp_path, startingTimestamp=second, columns="id"))
    assert [row["id"] for row in later] == [2, 3, 3]
    earlier = rows(binlog_plan(tmp_path, endingTimestamp=second, columns="id"))
    assert [row["id"] for row in earlier] == [1]


def test_spark_is_imported_on_first_use():
    """Neither the command line imports Spark nor do executors import the server."""
    for imported, unwanted in (
        ("beanstalkd_py.cli.main, beanstalkd_py.server.parent.start", ("pyspark", "pyarrow")),
        ("beanstalkd_py.pipeline", ("pyspark", "pyarrow", "cffi")),
        (
            "beanstalkd_py.pipeline.binlogs.plan, beanstalkd_py.pipeline.stores.plan",
            ("pyspark", "gevent", "beanstalkd_py.core", "beanstalkd_py.server"),
        ),
    ):
        code = f"import sys, {imported}; print([n for n in {unwanted!r} if n in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == "[]\n", (imported, done.stdout, done.stderr)
