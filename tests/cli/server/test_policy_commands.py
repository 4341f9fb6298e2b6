"""`policy`: tube policies of a running server, which the binlog folder keeps."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.commands import refusal
from cli.operator import Operator
from core.rig import put_line
from processes import eventually
from servers import Server, ours, reference
from shards import kill_worker, worker_pids
from wire import in_tube

from beanstalkd_py.binlog.layout import POLICIES

REFUSED = b"OUT_OF_MEMORY\r\n"
ROWS = [
    {"pattern": "m-1", "max-jobs": 3, "from": "online"},
    {"pattern": "m-*", "max-jobs": 2, "rate": "100/s", "from": "online"},
    {"pattern": "*", "max-jobs": 5, "from": "file"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "jobs"
    made.mkdir()
    return made


@pytest.fixture
def config(tmp_path: Path) -> Path:
    made = tmp_path / "config"
    made.write_text('[tube."*"]\nmax-jobs = 5\n')
    return made


@pytest.fixture(params=[1, 2])
def options(request: pytest.FixtureRequest, folder: Path, config: Path) -> list[str]:
    return [f"--workers={request.param}", f"-b{folder}", f"--config={config}"]


@pytest.fixture
def server(options: list[str]) -> Iterator[Server]:
    with ours(*options) as running:
        yield running


def operator_of(server: Server) -> Operator:
    return Operator(f"127.0.0.1:{server.port}")


def accepted(server: Server, tube: bytes) -> int:
    """Return how many puts the tube accepts, and delete these jobs."""
    with server.connect() as client, in_tube(client, tube):
        replies = [client.ask(put_line(b"x")) for _ in range(7)]
        numbers = [reply.split()[1] for reply in replies if reply != REFUSED]
        for number in numbers:
            assert client.ask(b"delete %b\r\n" % number) == b"DELETED\r\n"
        return len(numbers)


def wait_for(server: Server, counts: dict[bytes, int]) -> None:
    found: dict[bytes, int] = {}

    def agree() -> bool:
        found.update({tube: accepted(server, tube) for tube in counts})
        return found == counts

    assert eventually(agree), found


def set_two(server: Server) -> None:
    operator = operator_of(server)
    assert operator.do("policy", "set", "m-*", "max-jobs=2", "rate=100/s").lines == [
        "1 policy set online"
    ]
    assert operator.do("policy", "set", "m-1", "max-jobs=3", "--json").json == {"online": 2}


@pytest.mark.costly
def test_set_show_and_unset(server: Server) -> None:
    operator = operator_of(server)
    wait_for(server, {b"m-1": 5, b"m-2": 5, b"other": 5})
    set_two(server)
    wait_for(server, {b"m-1": 3, b"m-2": 2, b"other": 5})
    assert operator.do("policy", "show", "--json").json == ROWS
    lines = operator.do("policy", "show").lines
    assert [line.split() for line in lines] == [
        ["pattern", "from", "settings"],
        ["m-1", "online", "max-jobs=3"],
        ["m-*", "online", "max-jobs=2", "rate=100/s"],
        ["*", "file", "max-jobs=5"],
    ]
    operator.do("policy", "unset", "m-1")
    wait_for(server, {b"m-1": 2, b"m-2": 2, b"other": 5})
    operator.do("policy", "set", "*")
    wait_for(server, {b"m-2": 7, b"other": 7})
    for pattern in ("*", "m-*"):
        operator.do("policy", "unset", pattern)
    assert operator.do("policy", "show", "--json").json == ROWS[2:]
    wait_for(server, {b"m-1": 5, b"other": 5})


@pytest.mark.costly
def test_a_restart_and_a_reload_keep_them(options: list[str], folder: Path, config: Path) -> None:
    with ours(*options) as server:
        set_two(server)
        server.kill()
    with ours(*options) as server:
        assert operator_of(server).do("policy", "show", "--json").json == ROWS
        wait_for(server, {b"m-1": 3, b"m-2": 2, b"other": 5})
        config.write_text('[tube."*"]\nmax-jobs = 6\n')
        server.signal(signal.SIGHUP)
        wait_for(server, {b"m-1": 3, b"m-2": 2, b"other": 6})
        if "--workers=2" in options:
            for pid in worker_pids(server):
                kill_worker(server, pid)
            wait_for(server, {b"m-1": 3, b"m-2": 2, b"other": 6})
    if "--workers=1" in options:
        with reference("-b", folder) as there, there.connect() as client:
            assert client.ask(b"peek 1\r\n") == b"NOT_FOUND\r\n"
        assert (folder / POLICIES).exists()


@pytest.mark.costly
def test_errors(server: Server) -> None:
    operator = operator_of(server)
    assert "invalid pattern" in operator.fail(2, "policy", "set", "a b", "max-jobs=1")
    assert "unknown setting 'jobs'" in operator.fail(2, "policy", "set", "a", "jobs=1")
    assert "has no value" in operator.fail(2, "policy", "set", "a", "max-jobs")
    assert "no policy 'a' was set online" in operator.fail(1, "policy", "unset", "a")
    assert "no policy '*' was set online" in operator.fail(1, "policy", "unset", "*")


@pytest.mark.costly
def test_a_folder_that_cannot_be_written(server: Server, folder: Path) -> None:
    (folder / POLICIES).mkdir()
    operator = operator_of(server)
    assert "cannot save the policies" in operator.fail(1, "policy", "set", "*", "max-jobs=1")
    assert operator.do("policy", "show", "--json").json == ROWS[2:]
    wait_for(server, {b"m-1": 5})


@pytest.mark.parametrize("text", ["{", "{}1", "[1]", '[{"pattern": "*", "rate": "1"}]', '["a"]'])
def test_a_file_that_cannot_be_read(folder: Path, text: str) -> None:
    (folder / POLICIES).write_text(text)
    line = refusal(10, "-p0", "-b", folder)
    assert POLICIES in line
    assert "correct or remove the file" in line


def test_without_a_binlog_they_last_until_the_end() -> None:
    with ours() as server:
        operator_of(server).do("policy", "set", "m*", "max-jobs=1")
        wait_for(server, {b"m": 1, b"n": 7})
