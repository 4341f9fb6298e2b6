"""`bench` on both servers: results, and removal of its jobs."""

from __future__ import annotations

import signal
import subprocess
from unittest import mock

import pytest
from cli.operator import Operator
from processes import eventually, slowness
from servers import Server, ours, reference
from wire import Client, list_of

QUICK = ("bench", "--seconds", "0.3", "--warmup", "0", "--json")


@pytest.fixture
def mine(server: Server) -> Operator:
    return Operator(f"127.0.0.1:{server.port}")


def tubes(wire: Client) -> list[bytes]:
    return [name for name in list_of(wire.ask(b"list-tubes\r\n")) if name.startswith(b"bench-")]


def jobs(wire: Client) -> int:
    stats = wire.stats()
    states = ("ready", "reserved", "delayed", "buried")
    return sum(int(stats[f"current-jobs-{state}"]) for state in states)


def test_cycles_are_counted_and_timed(operator: Operator, wire: Client) -> None:
    mine = wire.put()
    before, others = wire.stats(), jobs(wire)
    result = operator.do(*QUICK, "--connections", 4, "--depth", 8, "--size", 50, "--tubes", 3).json
    after = wire.stats()
    put = int(after["total-jobs"]) - int(before["total-jobs"])
    # All commands got replies; those after the measured time are not counted.
    assert 0 < result["put"]["count"] <= put
    assert put % 8 == 0
    assert int(after["cmd-delete"]) - int(before["cmd-delete"]) == put
    assert result["removed"] == 0
    for command in ("put", "reserve", "delete", "all"):
        found = result[command]
        assert found["per_s"] == pytest.approx(found["count"] / 0.3, abs=0.1)
        shares = [found[f"p{share}_us"] for share in (50, 90, 99, 999)]
        assert shares[0] > 0 and shares == sorted(shares) and shares[-1] <= found["max_us"]
    assert result["all"]["count"] == sum(
        result[one]["count"] for one in ("put", "reserve", "delete")
    )
    assert eventually(lambda: not tubes(wire))
    assert jobs(wire) == others
    assert wire.reserve() == mine


def test_producers_at_a_rate_and_consumers(operator: Operator, wire: Client) -> None:
    before = wire.stats()
    result = operator.do(*QUICK, "--producers", 2, "--consumers", 3, "--rate", 500).json
    put = int(wire.stats()["total-jobs"]) - int(before["total-jobs"])
    # Late jobs are still put; each producer may put one more.
    assert 100 / slowness() <= put <= 152
    assert result["reserve"]["count"] > 0
    assert eventually(lambda: not tubes(wire))


def test_jobs_of_producers_are_removed(operator: Operator, wire: Client) -> None:
    others = jobs(wire)
    result = operator.do(*QUICK, "--producers", 2, "--depth", 5).json
    assert result["removed"] >= result["put"]["count"] > 0
    assert result["reserve"]["count"] == 0
    assert jobs(wire) == others


def test_tubes_in_use_are_rejected(operator: Operator, wire: Client, name: str) -> None:
    assert "other clients use or watch it" in operator.fail(2, *QUICK, "--tube", "default")
    assert "other clients use or watch it" in operator.fail(2, *QUICK, "--tube", name)
    wire.put()
    assert "it has 1 job;" in operator.fail(2, *QUICK, "--tube", name)
    assert wire.stats(b"stats-tube " + name.encode())["total-jobs"] == "1"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_interrupt_removes_all_jobs(
    mine: Operator, client: Client, number: signal.Signals, status: int
) -> None:
    others = jobs(client)
    process = mine.start("bench", "--producers", 2, stderr=subprocess.PIPE)
    assert eventually(lambda: jobs(client) > others + 100, 20)
    process.send_signal(number)
    _, result = process.communicate(timeout=20)
    assert process.returncode == status
    assert b"Traceback" not in result
    assert jobs(client) == others
    assert eventually(lambda: not tubes(client))


@pytest.mark.costly
@pytest.mark.parametrize(
    "start", [ours, pytest.param(reference, marks=pytest.mark.slow)], ids=["ours", "C"]
)
def test_lost_and_draining_servers(start: object) -> None:
    assert callable(start)
    with start() as server:
        assert isinstance(server, Server)
        operator = Operator(f"127.0.0.1:{server.port}")
        process = operator.start("bench", "--producers", 1, stderr=subprocess.PIPE)
        with server.connect() as client:
            assert eventually(lambda: jobs(client) > 100, 20)
            server.signal(signal.SIGUSR1)
            _, result = process.communicate(timeout=20)
            assert process.returncode == 1
            reason = "the server accepts no new jobs because it is draining (DRAINING)"
            assert result.decode().splitlines() == [f"beanstalkd-py: put: {reason}"]
            assert jobs(client) == 0
    with start() as server:
        assert isinstance(server, Server)
        operator = Operator(f"127.0.0.1:{server.port}")
        process = operator.start("bench", "--producers", 1, stderr=subprocess.PIPE)
        with server.connect() as client:
            assert eventually(lambda: jobs(client) > 100, 20)
        server.kill()
        _, result = process.communicate(timeout=20)
        assert process.returncode == 2
        left, lost = result.decode().splitlines()
        assert "jobs may be left in tube bench-" in left and "truncate" in left
        assert "the connection is lost" in lost


def test_usage_errors(mine: Operator) -> None:
    assert "exceed the server's max-job-size" in mine.fail(2, *QUICK, "--size", 70000)
    assert "no connection puts jobs" in mine.fail(2, *QUICK, "--consumers", 2)
    assert "no connection puts jobs" in mine.fail(2, *QUICK, "--connections", 0)
    assert "ulimit -n" in mine.fail(2, *QUICK, "--connections", 99_999)
    assert "no server at" in mine.fail(2, *QUICK, "--addr", "127.0.0.1:1")


def test_another_machine_requires_yes(mine: Operator) -> None:
    with mock.patch("beanstalkd_py.admin.load.is_local", return_value=False):
        assert "another machine" in mine.fail(2, *QUICK)
        assert mine.do(*QUICK, "--yes").json["put"]["count"] > 0


@pytest.mark.costly
def test_table_output(mine: Operator) -> None:
    words = [str(word) for word in QUICK if word != "--json"]
    lines = mine.do(*words, "--connections", 2).lines
    assert lines[0] == "2 connections, depth 1, 100 bytes, 1 tube, 0.3 s"
    assert [line.split()[0] for line in lines[1:5]] == ["command", "put", "reserve", "delete"]
