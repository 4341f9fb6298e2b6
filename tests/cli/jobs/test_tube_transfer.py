"""export, import and truncate on both servers."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest
from cli.conftest import STARTERS
from cli.operator import Operator
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import Server, ours
from wire import Client, in_tube

UINT32 = st.one_of(st.integers(0, 2000), st.integers(0, 2**32 - 1))
BODY = st.one_of(st.binary(max_size=40), st.text(max_size=20).map(lambda text: text.encode()))
STATE = st.sampled_from(["ready", "delayed", "buried"])
LINE = st.tuples(STATE, UINT32, st.integers(1, 2**32 - 1), st.integers(100, 2**31 - 1), BODY)
Line = tuple[str, int, int, int, bytes]


def put(wire: Client, line: Line) -> int:
    state, pri, ttr, delay, body = line
    job = wire.put(body, pri, delay if state == "delayed" else 0, ttr)
    if state == "buried":
        wire.bury(job, pri)
    return job


def as_line(record: dict[str, object]) -> Line:
    text = record.get("body")
    body = text.encode() if isinstance(text, str) else base64.b64decode(str(record["body_base64"]))
    numbers = [record[key] for key in ("pri", "ttr", "delay")]
    assert all(isinstance(number, int) for number in numbers)
    pri, ttr, delay = (int(str(number)) for number in numbers)
    return str(record["state"]), pri, ttr, delay, body


def assert_same(records: list[dict[str, object]], lines: list[Line]) -> None:
    found = [as_line(record) for record in records]
    assert [(line[0], line[1], line[2], line[4]) for line in found] == [
        (line[0], line[1], line[2], line[4]) for line in lines
    ]
    for got, expected in zip(found, lines, strict=True):
        # Whole seconds, rounded down; some seconds may have passed.
        assert 0 <= (expected[3] if expected[0] == "delayed" else 0) - got[3] <= 3


@pytest.mark.costly
@settings(max_examples=20)
@given(lines=st.lists(LINE, max_size=12), foreign_jobs=st.lists(st.integers(0, 12), max_size=4))
def test_export_import_round_trip(
    operator: Operator,
    either: Server,
    wire: Client,
    tube: bytes,
    lines: list[Line],
    foreign_jobs: list[int],
) -> None:
    """Jobs of another tube have ids in between; export consumes no job."""
    first, second = f"{tube.decode()}.first", f"{tube.decode()}.second"
    with either.connect() as other:
        in_tube(other, first.encode())
        jobs = []
        for number, line in enumerate(lines):
            for _ in range(foreign_jobs.count(number)):
                wire.put(b"a stranger")
            jobs.append(put(other, line))
        before = [other.job_stats(job) for job in jobs]
        exported = operator.do("export", first)
        assert [record["id"] for record in exported.json_lines] == jobs
        assert_same(exported.json_lines, lines)
        after = [other.job_stats(job) for job in jobs]
        for old, new in zip(before, after, strict=True):
            changed = {key for key in old if old[key] != new[key]}
            assert changed <= {"age", "time-left"}
        report = operator.do("import", second, "--json", stdin=exported.out).json
        assert (report["put"], report["line"]) == (len(lines), len(lines))
        if lines:
            other.ask(b"use %b\r\n" % second.encode())
            assert_same(operator.do("export", second).json_lines, lines)
            operator.do("truncate", "--yes", first)
            operator.do("truncate", "--yes", second)


def test_export_crosses_gaps_between_ids(
    operator: Operator, wire: Client, either: Server, name: str
) -> None:
    """One ready job has an id far below the others."""
    low = wire.put(b"low", pri=0)
    with either.connect() as other:
        for _ in range(20):
            other.send(b"put 0 0 9 0\r\n\r\n" * 500)
            gone = [int(reply.split()[1]) for reply in other.replies(500)]
            other.send(b"".join(b"delete %d\r\n" % job for job in gone))
            other.replies(500)
    high = wire.put(b"high", pri=1)
    wire.put(b"higher", pri=1)
    ids = [record["id"] for record in operator.do("export", name).json_lines]
    assert ids == [low, high, high + 1]
    line = operator.fail(1, "export", name, "--reach", 100)
    assert line.startswith(f"found 1 of 3 jobs of tube {name}")
    assert "--reach 100" in line


def test_export_reports_reserved_jobs(operator: Operator, wire: Client, name: str) -> None:
    jobs = [wire.put(b"%d" % number) for number in range(3)]
    assert wire.reserve() == jobs[0]
    result = operator.do("export", name)
    assert [record["body"] for record in result.json_lines] == ["1", "2"]
    assert result.errors == ["left out 1 reserved job: clients have them"]
    for job in jobs[1:]:
        assert wire.reserve() == job
    assert operator.do("export", name).out == b""


def test_invalid_line_ends_the_import(operator: Operator, wire: Client, name: str) -> None:
    lines = [b'{"body": "%d"}' % number for number in range(200)]
    lines[150] = b'{"body": "x", "priority": 3}'
    line = operator.fail(2, "import", name, stdin=b"\n".join(lines))
    assert line.startswith("line 151: unknown key 'priority'")
    assert line.endswith("; put 150 jobs, continue with --skip 150")
    lines[150] = b'{"body": "150"}'
    done = operator.do("import", name, "--skip", 150, "--json", stdin=b"\n".join(lines))
    assert done.json == {"tube": name, "put": 50, "line": 200}
    assert [int(record["body"]) for record in operator.do("export", name).json_lines] == list(
        range(200)
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "invalid JSON"),
        (b"[]", "JSON object"),
        (b"{}", "exactly one of body and body_base64"),
        (b'{"body": "a", "body_base64": "YQ=="}', "exactly one of body and body_base64"),
        (b'{"body": 3}', "must be a string"),
        (b'{"body": "\\ud800"}', "invalid body"),
        (b'{"body_base64": "!"}', "invalid body"),
        (b'{"body": "", "pri": -1}', "pri"),
        (b'{"body": "", "pri": true}', "pri"),
        (b'{"body": "", "ttr": 4294967296}', "ttr"),
        (b'{"body": "", "delay": 1.5}', "delay"),
        (b'{"body": "", "delay": 5}', "ready job has no delay"),
        (b'{"body": "", "state": "reserved"}', "state"),
        (b'\xff{"body": ""}', "invalid JSON"),
    ],
)
def test_invalid_lines(
    operator: Operator, wire: Client, name: str, line: bytes, words: str
) -> None:
    result = operator.fail(2, "import", name, stdin=b'{"body": "good"}\n\n' + line + b"\n")
    assert result.startswith("line 3: ")
    assert words in result
    assert wire.stats(b"stats-tube " + name.encode())["current-jobs-ready"] == "1"


def test_too_big_job_ends_the_import(operator: Operator, wire: Client, name: str) -> None:
    lines = [json.dumps({"body": "x" * size}) for size in (1, 65536, 1)]
    line = operator.fail(1, "import", name, stdin="\n".join(lines).encode())
    assert line.startswith("line 2: ")
    assert "65535 (JOB_TOO_BIG); put 1 job, continue with --skip 1" in line


def test_truncate(operator: Operator, wire: Client, either: Server, name: str) -> None:
    with either.connect() as holder:
        in_tube(holder, name.encode())
        for number in range(600):
            wire.put(pri=number % 7, delay=number % 3 * 100)
        for job in range(5):
            wire.bury(wire.put(), pri=job)
        held = [holder.reserve() for _ in range(2)]
        dry = operator.do("truncate", name, "--dry-run", "--json").json
        assert dry == {"tube": name, "deleted": 603, "left_reserved": 2, "dry_run": True}
        assert operator.do("truncate", name, "--state", "buried", "--yes").lines == [
            f"deleted 5 jobs of tube {name}"
        ]
        result = operator.do("truncate", name, "--yes")
        assert result.lines == [f"deleted 598 jobs of tube {name}"]
        assert result.errors == ["2 reserved jobs cannot be deleted: clients have them"]
        assert all(holder.job_stats(job)["state"] == "reserved" for job in held)


def test_truncate_without_terminal_requires_yes(
    operator: Operator, wire: Client, name: str
) -> None:
    wire.put()
    for words in ([], ["--json"]):
        assert "use --yes" in operator.fail(2, "truncate", name, *words)
    assert wire.stats(b"stats-tube " + name.encode())["current-jobs-ready"] == "1"


@pytest.mark.parametrize("words", [["export"], ["truncate", "--yes"], ["move", "elsewhere"]])
def test_an_unknown_tube(operator: Operator, words: list[str]) -> None:
    assert operator.fail(1, words[0], "no-such", *words[1:]) == (
        'no such tube: no-such; "beanstalkd-py tubes" lists all tubes (NOT_FOUND)'
    )


def test_export_to_a_closed_pipe(operator: Operator, wire: Client, name: str) -> None:
    for _ in range(40):
        wire.put(b"x" * 5000)
    process = operator.start("export", name, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert (process.stderr.read(), process.wait(10)) == (b"", 141)
    process.stderr.close()
    assert wire.stats(b"stats-tube " + name.encode())["current-jobs-ready"] == "40"


@pytest.mark.slow
@pytest.mark.parametrize("which", list(STARTERS))
def test_large_bodies(which: str) -> None:
    """Bodies exceed all buffers in both directions."""
    bodies = [bytes([number, 0xFF]) * 2_500_000 for number in range(3)]
    with STARTERS[which]("-z", "6000000") as server, server.connect() as blocker:
        operator = Operator(f"127.0.0.1:{server.port}")
        in_tube(blocker, b"c")
        for body in bodies:
            operator.do("put", "--tube", "a", "-", stdin=body)
        exported = operator.do("export", "a")
        assert operator.do("import", "b", stdin=exported.out).lines == ["put 3 jobs into b"]
        operator.do("move", "b", "c")
        for body in bodies:
            assert operator.do("reserve", "--tube", "c", "--delete").out == body


@pytest.mark.costly
def test_refused_put_between_accepted_ones(tmp_path: Path) -> None:
    """Jobs of later lines are deleted, so that --skip puts no job twice."""
    # One of them exceeds the memory limit of all jobs.
    with ours("-b", tmp_path, "--max-memory", "4096") as server:
        operator = Operator(f"127.0.0.1:{server.port}")
        lines = [json.dumps({"body": "x" * size}) for size in (1, 5000, 2, 3)]
        line = operator.fail(1, "import", "t", stdin="\n".join(lines).encode())
        assert line.startswith("line 2: ")
        assert "(OUT_OF_MEMORY)" in line
        assert line.endswith("; put 1 job, continue with --skip 1")
        assert [record["body"] for record in operator.do("export", "t").json_lines] == ["x"]
        operator.do("import", "t", "--skip", 2, stdin="\n".join(lines).encode())
        assert [len(record["body"]) for record in operator.do("export", "t").json_lines] == [
            *(1, 2, 3)
        ]


@pytest.mark.slow
def test_export_and_import_of_a_server_of_several_workers() -> None:
    with ours("--workers", "2") as server, server.connect() as wire:
        operator = Operator(f"127.0.0.1:{server.port}")
        for number in range(300):
            wire.ask(b"use tube%d\r\n" % (number % 10))
            wire.put(b"%d" % number)
        for number in range(10):
            found = operator.do("export", f"tube{number}").json_lines
            assert [int(record["body"]) for record in found] == list(range(number, 300, 10))
            operator.do("move", f"tube{number}", "all")
        assert len(operator.do("export", "all").lines) == 300
