"""put, reserve, peek, delete, bury, kick: bodies, counters and statuses, on both servers."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from cli.operator import Operator
from processes import eventually
from servers import Server
from wire import Client

MAX_JOB_SIZE = 65535
BODIES = [b"", b"-", b"text\n", b"\r\n", bytes(range(256)), b"x" * MAX_JOB_SIZE]


def counters(wire: Client, job: int) -> dict[str, int]:
    names = ("reserves", "timeouts", "releases", "buries", "kicks", "pri")
    stats = wire.job_stats(job)
    return {name: int(stats[name]) for name in names}


@pytest.mark.parametrize("body", BODIES, ids=lambda body: f"{len(body)}-bytes")
def test_body_round_trip(operator: Operator, name: str, body: bytes) -> None:
    job = int(operator.do("put", "--tube", name, "-", stdin=body).out)
    assert operator.do("peek", job).out == body
    assert operator.do("reserve", "--tube", name, "--timeout", 0).out == body
    assert operator.do("reserve", "--tube", name, "--delete").out == body
    assert "no such job (NOT_FOUND)" in operator.fail(1, "peek", job)


def test_a_body_on_the_command_line(operator: Operator, name: str) -> None:
    body = b"\xff\xfe \xc3\xa9 -1"
    job = operator.do("put", "--tube", name, "--pri", 7, "--ttr", 9, "--json", "--", body).json[
        "id"
    ]
    assert operator.do("peek", job, "--json").json == {
        "id": job,
        "tube": name,
        "state": "ready",
        "pri": 7,
        "delay": 0,
        "ttr": 9,
        "body_base64": "//4gw6kgLTE=",
    }


def test_put_with_a_delay(operator: Operator, wire: Client, name: str) -> None:
    job = int(operator.do("put", "--tube", name, "--delay", 50, "later").out)
    assert wire.job_stats(job)["state"] == "delayed"
    assert operator.do("peek", "--delayed", "--tube", name, "--json").json["delay"] in (49, 50)


def test_a_job_that_is_too_big_is_refused(operator: Operator, name: str) -> None:
    body = b"x" * (MAX_JOB_SIZE + 1)
    assert "JOB_TOO_BIG" in operator.fail(1, "put", "--tube", name, "-", stdin=body)


@pytest.mark.parametrize(
    ("how", "word", "state"),
    [
        ([], "released", "ready"),
        (["--release"], "released", "ready"),
        (["--bury"], "buried", "buried"),
    ],
)
def test_release_delete_and_bury_after_reserve(
    operator: Operator, wire: Client, name: str, how: list[str], word: str, state: str
) -> None:
    job = wire.put(b"kept", pri=77)
    done = operator.do("reserve", "--tube", name, *how)
    assert done.out == b"kept"
    assert f"job {job} of tube {name}" in done.errors[0]
    assert done.errors[0].endswith(f"; {word}")
    assert wire.job_stats(job)["state"] == state
    assert counters(wire, job) == {
        "reserves": 1,
        "timeouts": 0,
        "releases": int(word == "released"),
        "buries": int(word == "buried"),
        "kicks": 0,
        "pri": 77,
    }


def test_reserve_takes_the_first_of_several_tubes(
    operator: Operator, wire: Client, name: str
) -> None:
    wire.put(b"later", pri=9)
    wire.send(b"use %b.other\r\n" % name.encode())
    wire.reply()
    wire.put(b"first", pri=1)
    done = operator.do("reserve", "--tube", name, "--tube", f"{name}.other", "--json", "--delete")
    assert (done.json["body"], done.json["then"], done.errors) == ("first", "deleted", [])


@pytest.mark.slow
def test_reserve_timeout(operator: Operator, name: str) -> None:
    assert "TIMED_OUT" in operator.fail(1, "reserve", "--tube", name, "--timeout", 0)
    began = time.monotonic()
    operator.fail(1, "reserve", "--tube", name, "--timeout", 1, "--connect-timeout", "0.2")
    assert 0.9 < time.monotonic() - began < 3


def test_a_job_whose_body_cannot_be_printed_is_not_deleted(
    operator: Operator, wire: Client, name: str
) -> None:
    job = wire.put(b"kept")
    process = operator.start(
        *("reserve", "--tube", name, "--delete"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait(10)) == (b"", 141)
    process.stderr.close()
    assert eventually(lambda: wire.job_stats(job)["state"] == "ready")


def test_full_disk_is_an_error(operator: Operator, wire: Client, name: str) -> None:
    job = wire.put(b"kept")
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        process = operator.start(
            *("reserve", "--tube", name, "--delete"), stdout=full, stderr=subprocess.PIPE
        )
        _, errors = process.communicate(timeout=10)
    assert process.returncode == 1
    assert errors == b"beanstalkd-py: cannot write to stdout: No space left on device\n"
    assert eventually(lambda: wire.job_stats(job)["state"] == "ready")


def test_peek_requires_one_selector(operator: Operator, name: str) -> None:
    assert "exactly one of ID" in operator.fail(2, "peek")
    assert "exactly one of ID" in operator.fail(2, "peek", "--ready", 3)
    for state in ("ready", "delayed", "buried"):
        line = operator.fail(1, "peek", f"--{state}", "--tube", name)
        assert line == f"tube {name} has no {state} job (NOT_FOUND)"


def test_jobs_by_their_ids(operator: Operator, either: Server, wire: Client, name: str) -> None:
    ids = [wire.put(b"%d" % pri, pri=pri) for pri in range(3)]
    assert operator.do("bury", *ids[:2]).lines == [f"buried {job}" for job in ids[:2]]
    assert [counters(wire, job)["pri"] for job in ids] == [0, 1, 2]
    assert operator.do("peek", "--buried", "--tube", name).out == b"0"
    outcome = operator.try_("kick", *ids, "--json")
    assert (outcome.status, outcome.json) == (
        1,
        [
            {"id": ids[0], "result": "KICKED"},
            {"id": ids[1], "result": "KICKED"},
            {"id": ids[2], "result": "NOT_FOUND"},
        ],
    )
    taken = wire.reserve()
    assert taken == ids[0]
    for order in ("delete", "bury"):
        assert f"{ids[0]}; no such job, or reserved by another client" in operator.fail(
            1, order, ids[0]
        )
    outcome = operator.try_("delete", *ids)
    assert (outcome.status, outcome.lines) == (1, [f"deleted {job}" for job in ids[1:]])
    with either.connect() as other:
        assert other.ask(b"peek %d\r\n" % ids[1]) == b"NOT_FOUND\r\n"


def test_kick_the_first_of_a_tube(operator: Operator, wire: Client, name: str) -> None:
    ids = [wire.put() for _ in range(4)]
    for job in ids:
        wire.bury(job)
    assert operator.do("kick", "--tube", name, 3, "--json").json == {"tube": name, "kicked": 3}
    assert wire.job_stats(ids[3])["state"] == "buried"
    assert "one number" in operator.fail(2, "kick", "--tube", name, 1, 2)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["put"], "BODY"),
        (["put", "--pri", "4294967296", "x"], "--pri"),
        (["put", "--tube", "-x", "x"], "--tube"),
        (["put", "--tube", "a b", "x"], "--tube"),
        (["put", "--tube", "x" * 201, "x"], "--tube"),
        (["put", "--addr", "host:port", "x"], "--addr"),
        (["put", "--addr", "unix:", "x"], "--addr"),
        (["put", "--timeout", "0", "x"], "--timeout"),
        (["put", "--timeout", "nan", "x"], "--timeout"),
        (["peek", "0"], "0 is too small"),
        (["delete"], "ID"),
        (["delete", "x"], "x"),
        (["move", "a", "a"], "same tube"),
        (["pause", "a", "-1"], "-1"),
        (["stats", "--tube", "a", "--job", "1"], "exclude each other"),
        (["tail"], "TUBE"),
        (["completion", "tcsh"], "tcsh"),
    ],
)
def test_usage_errors_are_one_line(words: list[str], what: str) -> None:
    done = Operator("127.0.0.1:1").try_(*words)
    assert (done.status, done.out, len(done.errors)) == (2, b"", 1)
    assert what in done.errors[0]


def test_the_longest_tube_name(operator: Operator) -> None:
    longest = "t" * 200
    operator.do("put", "--tube", longest, "x")
    assert operator.do("reserve", "--tube", longest, "--delete").out == b"x"


def test_json_is_one_line(operator: Operator, name: str) -> None:
    operator.do("put", "--tube", name, "é\n\x1b[1m")
    out = operator.do("peek", "--ready", "--tube", name, "--json").out
    assert out.count(b"\n") == 1
    assert json.loads(out)["body"] == "é\n\x1b[1m"
