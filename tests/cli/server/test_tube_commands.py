"""stats, tubes, pause, tail and completion, on both servers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from unittest import mock

import pytest
from cli.conftest import STARTERS
from cli.operator import Operator
from processes import slowness
from servers import Server, ours
from wire import Client

from beanstalkd_py.admin.address import Address
from beanstalkd_py.admin.connection import Connection, Reply, connect
from beanstalkd_py.admin.follow import Follower

# Values that change with the command itself and with time.
RESTLESS = ("cmd-stats", "cmd-list-tube-used", "total-connections", "uptime", "rusage-utime")


def test_stats_are_those_of_the_protocol(operator: Operator, wire: Client) -> None:
    wire.put()
    expected = wire.stats()
    found = operator.do("stats", "--json").json
    assert list(found) == list(expected)
    for key, value in expected.items():
        if key not in RESTLESS and not key.startswith(("rusage", "current-conn")):
            shown = str(found[key]).lower() if isinstance(found[key], bool) else str(found[key])
            assert shown == value.strip('"'), key
    assert isinstance(found["rusage-utime"], float)
    assert isinstance(found["pid"], int)
    assert isinstance(found["id"], str)


def test_stats_are_aligned_text(operator: Operator) -> None:
    lines = operator.do("stats").lines
    assert lines[0].split() == ["key", "value"]
    assert {line.index(line.split(maxsplit=1)[1]) for line in lines} == {lines[0].index("value")}
    assert len(lines) > 50


def test_stats_of_a_tube_and_a_job(operator: Operator, wire: Client, name: str) -> None:
    job = wire.put(delay=70)
    assert operator.do("stats", "--tube", name, "--json").json["current-jobs-delayed"] == 1
    found = operator.do("stats", "--job", job, "--json").json
    assert (found["id"], found["tube"], found["state"]) == (job, name, "delayed")
    assert "no such tube: no-such" in operator.fail(1, "stats", "--tube", "no-such")
    assert "no such job" in operator.fail(1, "stats", "--job", 2**64 - 1)


def test_a_tube_named_like_a_number(operator: Operator) -> None:
    operator.do("put", "--tube", "0042", "x")
    assert operator.do("stats", "--tube", "0042", "--json").json["name"] == "0042"
    assert "0042" in {row["tube"] for row in operator.do("tubes", "--json").json}


def test_tubes(operator: Operator, wire: Client, name: str) -> None:
    for pri, delay in ((0, 0), (1024, 0), (0, 500)):
        wire.put(pri=pri, delay=delay)
    wire.bury(wire.put())
    wire.reserve()
    assert operator.do("pause", name, 100).lines == [f"tube {name} is paused for 100 s"]
    rows = {row.pop("tube"): row for row in operator.do("tubes", "--json").json}
    assert rows[name].pop("paused_s") in (98, 99, 100)
    assert rows[name] == {
        "ready": 1,
        "reserved": 1,
        "delayed": 1,
        "buried": 1,
        "urgent": 0,
        "using": 1,
        "watching": 1,
        "waiting": 0,
        "total": 4,
    }
    assert list(rows) == sorted(rows)
    header, *lines = operator.do("tubes").lines
    assert header.split()[:3] == ["tube", "ready", "reserved"]
    line = next(line for line in lines if line.split()[0] == name)
    assert line.split()[1:5] == ["1", "1", "1", "1"]
    assert len({len(line) for line in (header, *lines)}) == 1
    assert operator.do("pause", name, 0, "--json").json == {"tube": name, "paused_s": 0}
    assert operator.do("tubes", "--json").json != []
    assert operator.fail(1, "pause", "no-such", 1).startswith("no such tube: no-such")


def test_a_refresh_is_one_pipeline_for_any_number_of_tubes() -> None:
    with ours() as server:
        operator = Operator(f"127.0.0.1:{server.port}")
        with server.connect() as wire:
            for number in range(300):
                wire.ask(b"use tube%d\r\n" % number)
                wire.put()
            queried: list[int] = []
            real = Connection.send

            def counted(connection: Connection, data: bytes) -> None:
                queried.append(data.count(b"\r\n"))
                real(connection, data)

            with mock.patch.object(Connection, "send", counted):
                # The greeting, the first survey with unknown tubes, and one pipeline for each
                # survey.
                looks = iter([None, None, KeyboardInterrupt])
                with mock.patch("time.sleep", side_effect=looks):
                    result = operator.try_("tubes", "--watch", 1, "--json")
    assert result.status == 130
    assert [len(json.loads(line)) for line in result.lines] == [301] * 3
    assert queried == [1, 2, 301, 303, 303]


# --- tail ---------------------------------------------------------------------------------------


def test_tail_shows_new_jobs(operator: Operator, either: Server, wire: Client, name: str) -> None:
    """Includes reserved jobs, but neither earlier nor deleted ones."""
    old = [wire.put(b"old %d" % number, pri=9) for number in range(3)]
    tail = operator.start(
        # Longer than everything that happens before the first poll.
        *("tail", name, "--interval", "1", "--json", "--limit", "4"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert tail.stderr is not None
    assert b"following tube" in tail.stderr.readline()
    with either.connect() as other:
        other.put(b"not of this tube")
    gone = wire.put(b"gone")
    assert wire.ask(b"delete %d\r\n" % gone) == b"DELETED\r\n"
    wire.put(b"held", pri=0)
    wire.reserve()
    wire.put(b"low", pri=2000)
    wire.put(b"later", delay=60)
    buried = wire.put(b"dead")
    wire.bury(buried)
    before = {job: wire.job_stats(job) for job in (*old, buried)}
    out, errors = tail.communicate(timeout=10)
    assert tail.returncode == 0
    seen = [(job["body"], job["state"]) for job in map(json.loads, out.splitlines())]
    assert sorted(seen) == [
        ("dead", "buried"),
        ("held", "reserved"),
        ("later", "delayed"),
        ("low", "ready"),
    ]
    for job, stats in before.items():
        assert {**wire.job_stats(job), "age": ""} == {**stats, "age": ""}
    assert errors == b""


@pytest.mark.slow
def test_tail_reports_missed_jobs(operator: Operator, wire: Client, name: str) -> None:
    tail = operator.start(
        *("tail", name, "--interval", "1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert tail.stderr is not None
    assert tail.stdout is not None
    tail.stderr.readline()
    for _ in range(5):
        assert wire.ask(b"delete %d\r\n" % wire.put()) == b"DELETED\r\n"
    assert tail.stderr.readline() == b"beanstalkd-py: 5 jobs deleted before being shown\n"
    job = wire.put(b"a\nb\x1b[1m", pri=3)
    assert tail.stdout.readline().decode() == (
        f"{job}  ready  pri=3  delay=0  ttr=100  bytes=7  a\\nb\\x1b[1m\n"
    )
    tail.send_signal(2)
    out, errors = tail.communicate(timeout=10)
    assert (tail.returncode, out, errors.strip()) == (130, b"", b"beanstalkd-py: interrupted")


def test_tail_of_a_busy_tube_uses_small_polls(either: Server, wire: Client, name: str) -> None:
    """Jobs put during a poll are shown once, and cause no search over missing ids."""
    put: list[int] = []
    queried: list[int] = []
    real_poll, real_execute = Follower._poll, Connection.execute_all

    def poll(follower: Follower) -> object:
        seen = real_poll(follower)
        put.extend(wire.put() for _ in range(5))
        return seen

    def execute_all(connection: Connection, commands: Sequence[bytes], *limits: int) -> list[Reply]:
        queried.append(len(commands))
        return real_execute(connection, commands, *limits)

    with connect(Address("127.0.0.1", either.port), 5) as connection:
        follower = Follower(connection, name)
        put.clear()
        with (
            mock.patch.object(Follower, "_poll", poll),
            mock.patch.object(Connection, "execute_all", execute_all),
        ):
            shown = [job.id for _ in range(6) for job in follower.new_jobs()]
    assert shown == put
    assert follower.missed == 0
    assert max(queried) < 5000


@pytest.mark.slow
@pytest.mark.parametrize("which", list(STARTERS))
def test_tail_after_a_restart_that_reset_the_put_counter(
    which: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Ids continue far above the number of puts that the server reports."""
    folder = tmp_path_factory.mktemp("binlog")
    with STARTERS[which]("-b", folder) as server, server.connect() as wire:
        for _ in range(30):
            wire.send(b"put 5 0 9 0\r\n\r\n" * 100)
            wire.replies(100)
        wire.send(b"use t\r\nput 5 0 9 3\r\nold\r\n")
        wire.replies(2)
    with STARTERS[which]("-b", folder) as server, server.connect() as wire:
        wire.ask(b"use t\r\n")
        operator = Operator(f"127.0.0.1:{server.port}")
        tail = operator.start(
            *("tail", "t", "--interval", "0.2", "--limit", "2"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert tail.stderr is not None
        tail.stderr.readline()
        wire.put(b"new", pri=6)
        time.sleep(0.3)
        wire.put(b"newer", pri=7)
        out, _ = tail.communicate(timeout=20)
    assert [line.split()[-1] for line in out.decode().splitlines()] == ["new", "newer"]


# --- completion ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(operator: Operator, shell: str) -> None:
    text = operator.do("completion", shell).out.decode()
    assert f"_BEANSTALKD_PY_COMPLETE={shell}_complete" in text
    if shell == "bash":
        done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")


def completions(operator: Operator, *words: str, address: str = "") -> list[str]:
    environment = {
        "_BEANSTALKD_PY_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["beanstalkd-py", *words]),
        "COMP_CWORD": str(len(words)),
    }
    with mock.patch.dict(os.environ, environment):
        out = (Operator(address) if address else operator).try_().out.decode()
    return [line.partition(",")[2] for line in out.splitlines() if line]


def test_tubes_are_completed(operator: Operator) -> None:
    for tube in ("mails.high", "mails.low", "bills"):
        operator.do("put", "--tube", tube, "x")
    assert completions(operator, "tail", "mails") == ["mails.high", "mails.low"]
    assert completions(operator, "put", "--tube", "bi") == ["bills"]
    assert "truncate" in completions(operator, "tr")
    assert completions(operator, "tail", "mails", address="127.0.0.1:1") == []
    assert completions(operator, "tail", "--addr", operator.address, "bi", address="h:1") == [
        "bills"
    ]


def test_completion_times_out(operator: Operator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        assert completions(operator, "tail", "b", address=address) == []
        took_s = time.monotonic() - began
        assert took_s < slowness()
