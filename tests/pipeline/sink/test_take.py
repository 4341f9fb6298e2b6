"""`take_jobs` from real servers."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from pipeline.sink.tubes import address, tube
from processes import eventually
from servers import Server, ours, reference

from beanstalkd_py import pipeline
from beanstalkd_py.admin.tls_options import TlsOptions
from beanstalkd_py.errors import IncompleteError, NoConnectionError, PipelineUsageError
from beanstalkd_py.pipeline.sink import held_jobs
from beanstalkd_py.pipeline.sink.held_jobs import Committed
from beanstalkd_py.pipeline.sink.take import SCHEMA

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def put(server: Server, name: str, bodies: list[bytes], pri: int = 5, ttr: int = 60) -> None:
    with server.connect() as client:
        client.send(b"use %b\r\n" % name.encode())
        for body in bodies:
            client.send(b"put %d 0 %d %d\r\n%b\r\n" % (pri, ttr, len(body), body))
        replies = client.replies(len(bodies) + 1)
        assert all(reply.startswith((b"USING", b"INSERTED")) for reply in replies)


def states(server: Server, name: str) -> tuple[int, int]:
    """Return the numbers of ready and reserved jobs."""
    found = tube(server, name)
    return int(found["current-jobs-ready"]), int(found["current-jobs-reserved"])


@pytest.mark.parametrize("start", [ours, reference])
def test_taken_jobs_match_the_puts_and_the_commit_deletes_them(spark, start):
    bodies = [b"", b"\r\n", bytes(range(256)), b"x" * 60000] + [b"%d" % n for n in range(2000)]
    with start() as server:
        put(server, "a", bodies)
        put(server, "b", [b"more"], pri=0, ttr=7)
        put(server, "others", [b"stays"])
        with pipeline.take_jobs(spark, address(server), tubes=["a", "b"]) as taken:
            assert taken.jobs == 2005 and taken.size == 4 + sum(map(len, bodies))
            assert taken.frame.columns == SCHEMA.names
            rows = taken.frame.orderBy("id").collect()
            assert [bytes(row.body) for row in rows] == [*bodies, b"more"]
            assert {(row.tube, row.priority, row.ttr, row.delay, row.reserves) for row in rows} == {
                ("a", 5, 60, 0, 1),
                ("b", 0, 7, 0, 1),
            }
            assert states(server, "a") == (0, 2004)
            assert taken.commit() == Committed(deleted=2005, gone=0)
            with pytest.raises(PipelineUsageError, match="committed already"):
                taken.commit()
        assert states(server, "others") == (1, 0)
        with pipeline.take_jobs(spark, address(server), tubes="a") as taken:
            assert (taken.jobs, taken.frame.count(), taken.commit()) == (0, 0, Committed(0, 0))


def test_limits_of_jobs_and_bytes(spark):
    with ours("--workers", "2") as server:
        put(server, "a", [b"x" * 1000] * 100)
        with pipeline.take_jobs(spark, address(server), tubes="a", limit=30) as taken:
            assert taken.jobs == 30 and states(server, "a") == (70, 30)
            with pipeline.take_jobs(spark, address(server), tubes="a", limit_bytes=9500) as others:
                assert (others.jobs, others.size) == (10, 10000)
                assert others.commit() == Committed(10, 0)
        assert eventually(lambda: states(server, "a") == (90, 0))


def test_jobs_are_released_without_a_commit(spark):
    with ours() as server:
        put(server, "a", [b"x"] * 600)
        with pipeline.take_jobs(spark, address(server), tubes="a") as taken:
            assert states(server, "a") == (0, 600)
        assert eventually(lambda: states(server, "a") == (600, 0))
        with pytest.raises(PipelineUsageError, match="given back; commit inside the with block"):
            taken.commit()
        # An error raised in the block passes through, even if a connection may raise its class.
        with (
            pytest.raises(OSError, match="disk full"),
            pipeline.take_jobs(spark, address(server), tubes="a"),
        ):
            raise OSError("disk full")
        assert eventually(lambda: states(server, "a") == (600, 0))
        assert tube(server, "a")["cmd-delete"] == "0"


@pytest.mark.parametrize("start", [ours, reference])
def test_jobs_are_held_for_longer_than_their_ttr(spark, start):
    with start() as server:
        put(server, "a", [b"x"] * 700, ttr=1)
        put(server, "a", [b"y"] * 700, ttr=2)
        with pipeline.take_jobs(spark, address(server), tubes="a") as taken:
            time.sleep(4)
            assert states(server, "a") == (0, 1400)
            assert taken.lost == 0
            assert taken.commit() == Committed(1400, 0)


def test_lost_jobs_are_counted(spark, monkeypatch):
    """As if the driver had stopped for longer than a TTR."""
    monkeypatch.setattr(held_jobs, "TOUCHES_PER_TTR", 0.9)
    with ours() as server, server.connect() as other:
        put(server, "a", [b"x"] * 3, ttr=3)
        put(server, "a", [b"y"] * 4, ttr=60)
        with pipeline.take_jobs(spark, address(server), tubes="a") as taken:
            assert eventually(lambda: taken.lost == 3, 20)
            assert other.ask(b"watch a\r\n") == b"WATCHING 2\r\n"
            assert other.ask(b"reserve-with-timeout 0\r\n").startswith(b"RESERVED 1 ")
            # The two that are ready again are deleted: they are in the result.
            assert taken.commit() == Committed(deleted=6, gone=1)


def test_a_lost_connection_deletes_nothing(spark):
    with ours() as server:
        put(server, "a", [b"x"] * 10)
        with pipeline.take_jobs(spark, address(server), tubes="a") as taken:
            server.kill()
            assert taken.frame.count() == 10
            with pytest.raises(
                IncompleteError, match="0 of 10 jobs were deleted; the server releases"
            ):
                taken.commit()


def test_take_jobs_waits_for_the_first_job(spark):
    with ours() as server:
        started = time.monotonic()
        with pipeline.take_jobs(spark, address(server), tubes="a", wait_s=1) as taken:
            assert taken.jobs == 0
        assert 0.9 < time.monotonic() - started < 20
        put(server, "a", [b"x"] * 3)
        with pipeline.take_jobs(spark, address(server), tubes="a", wait_s=30) as taken:
            assert taken.jobs == 3


class Index:
    """An integer type such as those of numpy."""

    def __index__(self) -> int:
        return 2


WHOLE_FROM_1 = "is not a whole number of at least 1"
WAIT = "is not a whole number from 0 to 1000000"
SECONDS = "is not a number of seconds above 0, at most 1000000"
CERTIFICATES = [
    TlsOptions(ca="/nosuch/ca.pem"),
    TlsOptions(cert="/cert"),
    TlsOptions(cert="/cert", key="/key"),
]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tubes": []}, "tubes is empty; name at least one tube"),
        ({"tubes": "a b"}, "tubes: 'a b' is not a tube name; give "),
        ({"tubes": b"a"}, "tubes: b'a' is not a str; give the name of a tube"),
        ({"tubes": ["a", None]}, "tubes: None is not a str; give the name of a tube"),
        ({"tubes": 5}, "tubes: 5 is not a str; give the name of a tube"),
        ({"limit": 0}, f"limit 0 {WHOLE_FROM_1}"),
        ({"limit": "5"}, f"limit '5' {WHOLE_FROM_1}"),
        ({"limit": 1.5}, f"limit 1.5 {WHOLE_FROM_1}"),
        ({"limit": True}, f"limit True {WHOLE_FROM_1}"),
        ({"limit": None}, f"limit None {WHOLE_FROM_1}"),
        ({"limit_bytes": 0}, f"limit_bytes 0 {WHOLE_FROM_1}"),
        ({"limit_bytes": "1g"}, f"limit_bytes '1g' {WHOLE_FROM_1}"),
        ({"limit_bytes": 1e6}, f"limit_bytes 1000000.0 {WHOLE_FROM_1}"),
        ({"wait_s": -1}, f"wait_s -1 {WAIT}"),
        ({"wait_s": 1.5}, f"wait_s 1.5 {WAIT}"),
        ({"wait_s": False}, f"wait_s False {WAIT}"),
        ({"wait_s": 2**32}, f"wait_s 4294967296 {WAIT}"),
        ({"timeout_s": 0}, f"timeout_s 0 {SECONDS}"),
        ({"timeout_s": -1.0}, f"timeout_s -1.0 {SECONDS}"),
        ({"timeout_s": "30"}, f"timeout_s '30' {SECONDS}"),
        ({"timeout_s": True}, f"timeout_s True {SECONDS}"),
        ({"timeout_s": None}, f"timeout_s None {SECONDS}"),
        ({"timeout_s": float("nan")}, f"timeout_s nan {SECONDS}"),
        ({"timeout_s": float("inf")}, f"timeout_s inf {SECONDS}"),
        ({"addr": 5}, "addr 5 is not a str; give HOST:PORT"),
        ({"addr": "host:x"}, "address 'host:x': invalid port number 'x'"),
        *(
            ({"trust": trust}, "trust is for TLS, and addr 127.0.0.1:1 is")
            for trust in CERTIFICATES
        ),
    ],
)
def test_invalid_arguments(given, message):
    with (
        pytest.raises(PipelineUsageError) as failure,
        pipeline.take_jobs(None, **{"addr": "127.0.0.1:1", **given}),
    ):
        raise AssertionError("nothing is to be taken")
    actual = str(failure.value)
    assert actual.startswith(message) and "\n" not in actual


@pytest.mark.parametrize(
    "given", [{"limit": Index(), "wait_s": Index()}, {"timeout_s": 5}, {"trust": TlsOptions()}]
)
def test_valid_arguments(given):
    with (
        pytest.raises(NoConnectionError, match=r"no server at 127\.0\.0\.1:1"),
        pipeline.take_jobs(None, "127.0.0.1:1", **given),
    ):
        raise AssertionError("nothing is to be taken")


def test_no_server(spark):
    with (
        pytest.raises(NoConnectionError, match=r"no server at 127\.0\.0\.1:1"),
        pipeline.take_jobs(spark, "127.0.0.1:1"),
    ):
        raise AssertionError("nothing is to be taken")


DRIVER = """
import sys, time
from pyspark.sql import SparkSession
from beanstalkd_py import pipeline
addr, out = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
with pipeline.take_jobs(spark, addr, tubes="a") as taken:
    taken.frame.write.parquet(out)
    print("written", flush=True)
    time.sleep(60)
    taken.commit()
"""


@pytest.mark.parametrize("start", [ours, reference])
def test_a_killed_driver_releases_its_jobs(spark, tmp_path, start):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    bodies = [b"%d" % number for number in range(1000)]
    with start() as server:
        put(server, "a", bodies)
        command = [sys.executable, str(script), address(server), str(tmp_path / "out")]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        ) as process:
            assert process.stdout.readline() == b"written\n"
            assert states(server, "a") == (0, 1000)
            process.kill()
        assert eventually(lambda: states(server, "a") == (1000, 0), 10)
        with pipeline.take_jobs(spark, address(server), tubes="a") as taken:
            assert sorted(bytes(row.body) for row in taken.frame.collect()) == sorted(bodies)
            assert taken.commit() == Committed(1000, 0)
