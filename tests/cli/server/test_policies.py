"""Tube policies in a configuration file: errors, values, reload, one worker and several."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.commands import assert_invalid_file, run
from processes import eventually
from servers import Server, ours
from shards import kill_worker, worker_pids
from wire import in_tube

from beanstalkd_py.cli.server.policy_settings import parse_table
from beanstalkd_py.cli.server.serve import serve, serve_options
from beanstalkd_py.core.tube_policy import TubePolicy

REFUSED = b"OUT_OF_MEMORY\r\n"
PUT = b"put 0 0 0 1\r\nx\r\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tube."m*"]\nmax-job = 1', ['tube."m*"', "unknown setting 'max-job'", "max-jobs"]),
        ('[tube."m*"]\nmax-jobs = 0', ['tube."m*"', "max-jobs", "the minimum is 1"]),
        ('[tube."m*"]\nmax-jobs = true', ["max-jobs", "a string or an integer"]),
        ('[tube."m*"]\nmax-bytes = "1X"', ["max-bytes", "number of bytes"]),
        ('[tube."m*"]\nmax-bytes = "none"', ["max-bytes", "the minimum is 1"]),
        ('[tube."m*"]\ndefault-ttr = 0', ["default-ttr", "at least 1"]),
        ('[tube."m*"]\ndefault-ttr = "none"', ["default-ttr", "at least 1"]),
        ('[tube."m*"]\nmax-delay = "0.5"', ["max-delay", "whole seconds"]),
        ('[tube."m*"]\nmax-delay = 2026-01-01', ["max-delay", "a string or an integer"]),
        ('[tube."m m"]\nmax-jobs = 1', ['tube."m m"', "invalid pattern"]),
        ("[tube.mails.dead]\nmax-jobs = 1", ['tube."mails"', "unknown setting 'dead'"]),
        ("[tube]\nmails = 1", ['tube."mails"', "quote a pattern"]),
        ('[tube."m*"]\nthen = "bury"', ['tube."m*"', "then", "requires max-reserves"]),
        ('[tube."m*"]\nmax-reserves = 1\nthen = "kick"', ["then", "use bury, delete or move:"]),
        ('[tube."m*"]\nmax-reserves = 1\nthen = "move:-x"', ["then", "'move:-x'"]),
        ('[tube."m*"]\nrate = "100"', ['tube."m*"', "rate", "use 100/s"]),
        ('[tube."m*"]\nrelease-backoff = "1s..5s"', ["release-backoff", "use exponential:"]),
        ('[tube."m*"]\nmax-reserved = 0', ["max-reserved", "the minimum is 1"]),
        ('[tube."m*"]\nunique = "key"', ["unique", "use body"]),
        ("tube = 1", ["tube", "must be tables"]),
    ],
)
def test_errors(tmp_path: Path, text: str, words: list[str]) -> None:
    assert_invalid_file(tmp_path / "file", text, words)


def test_check_reports_one_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text('[tube."m*"]\nmax-jobs = 0\n')
    checked = run("config", "check", path)
    assert checked.returncode == 1
    assert checked.stderr.count("\n") == 1
    assert 'tube."m*": max-jobs: 0 is too small' in checked.stderr
    path.write_text('port = 11400\n[tube."m*"]\nmax-jobs = 1\n')
    assert run("config", "check", path).stdout == f"{path} is valid\n"


def test_values_and_their_order(tmp_path: Path) -> None:
    path = tmp_path / "file"
    first = {
        "max-jobs": 5,
        "max-bytes": "2K",
        "default-ttr": "2m",
        "max-delay": 7,
        "max-reserves": 3,
        "then": "move:dead",
        "release-backoff": "exponential:1s..5m",
        "max-reserved": 9,
        "rate": "30/m",
        "expires": "1d",
    }
    table = "".join(f"{name} = {json.dumps(value)}\n" for name, value in first.items())
    path.write_text(f'[tube."m*"]\n{table}[tube."a.?"]\nmax-delay = 0\n[tube."*"]\n')
    options = serve_options(serve.make_context("serve", ["--config", str(path)]))
    fields = (5, 2048, 120, 7, 3, "move:dead", "exponential:1s..5m", 9, "30/m", 86400)
    wanted = (TubePolicy("m*", *fields), TubePolicy("a.?", max_delay=0), TubePolicy("*"))
    assert options.policies == wanted
    shown = json.loads(run("config", "show", "--json", "--config", path).stdout)["tube"]
    values = {"pattern": "m*"} | first | {"max-bytes": 2048, "default-ttr": 120, "expires": 86400}
    value = [values, {"pattern": "a.?", "max-delay": 0}, {"pattern": "*"}]
    assert shown == {"value": value, "from": "file"}
    assert "3 policies" in run("config", "show", "--config", path).stdout


def test_too_many_policies() -> None:
    assert len(parse_table({f"tube-{i:03}.*": {"max-jobs": i + 1} for i in range(1000)})) == 1000
    with pytest.raises(ValueError, match="the maximum is 65536"):
        parse_table({"x" * 180 + str(i): {} for i in range(1000)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "file"
    tables = [f"[tube.m-{number}]\nmax-jobs = 2\ndefault-ttr = 60\n" for number in range(4)]
    # As many as the largest message has.
    tables += [f'[tube."{"x" * 25}{number:03}.*"]\nmax-jobs = 70000\n' for number in range(999)]
    made.write_text("".join(tables))
    return made


@pytest.fixture(params=[1, 3])
def server(request: pytest.FixtureRequest, path: Path) -> Iterator[Server]:
    with ours(f"--config={path}", f"--workers={request.param}") as running:
        yield running


def fill(server: Server, tube: bytes) -> int:
    """Put jobs until one is refused; return how many there are."""
    with server.connect() as client:
        assert client.ask(b"use %b\r\n" % tube) == b"USING %b\r\n" % tube
        for _ in range(20):
            if client.ask(PUT) == REFUSED:
                break
        return int(client.stats(b"stats-tube " + tube)["current-jobs-ready"])


@pytest.mark.costly
def test_a_server_applies_and_reloads_policies(server: Server, path: Path) -> None:
    assert [fill(server, b"m-%d" % number) for number in range(4)] == [2] * 4
    assert fill(server, b"other") == 20
    with server.connect() as client, in_tube(client, b"m-1"):
        number = int(client.ask(b"peek-ready\r\n").split()[1])
        assert client.stats(b"stats-job %d" % number)["ttr"] == "60"
    path.write_text('verbose = 1\n[tube."m-*"]\nmax-jobs = 5\n')
    server.signal(signal.SIGHUP)
    assert eventually(lambda: "tube is 1 policy now" in server.stderr())
    assert eventually(lambda: [fill(server, b"m-%d" % number) for number in range(4)] == [5] * 4)
    path.write_text('[tube."m-*"]\nmax-jobs = -5\n')
    server.signal(signal.SIGHUP)
    assert eventually(lambda: "nothing has changed" in server.stderr())
    assert fill(server, b"m-1") == 5


@pytest.mark.costly
def test_a_restarted_worker_has_the_policies(path: Path) -> None:
    with ours(f"--config={path}", "--workers=2") as server:
        for pid in worker_pids(server):
            kill_worker(server, pid)
        found = [fill(server, b"m-%d" % number) for number in range(4)]
        assert eventually(lambda: found == [2] * 4 or fill(server, b"m-0") == 2, 10)
