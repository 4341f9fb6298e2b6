"""Commands of the control socket: workers, conns, drain, reload, compact."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.operator import Operator
from core.rig import put_line
from processes import children
from servers import Server, ours, reference
from wire import Client, inserted_id

from beanstalkd_py.control.client import ControlClient
from beanstalkd_py.core.step_results import FREE_STATES

pytestmark = pytest.mark.costly


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "jobs"
    made.mkdir()
    return made


@pytest.fixture(params=[1, 2])
def server(request: pytest.FixtureRequest, tmp_path: Path, folder: Path) -> Iterator[Server]:
    config = tmp_path / "config"
    config.write_text("max-job-size = 1000\n")
    options = (f"--workers={request.param}", "-b", folder, "-s", "8192", f"--config={config}")
    with ours(*options) as running:
        yield running


@pytest.fixture
def operator(server: Server) -> Operator:
    return Operator(f"127.0.0.1:{server.port}")


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.connect() as made:
        yield made


def test_workers(operator: Operator, server: Server) -> None:
    rows = operator.do("workers", "--json").json
    assert [row["pid"] for row in rows] == children(server.pid)
    lines = operator.do("workers").lines
    assert max(map(len, lines)) <= 80
    first, second = lines[: len(rows) + 1], lines[len(rows) + 2 :]
    assert first[0].split()[:5] == ["worker", "state", "since", "pid", "restarts"]
    assert [line.split()[:2] for line in first[1:]] == [
        [str(row["worker"]), "serving"] for row in rows
    ]
    assert second[0].split()[:6] == ["worker", "tubes", "ready", "reserved", "delayed", "buried"]
    assert [line.split()[0] for line in second[1:]] == [str(row["worker"]) for row in rows]


def test_advice_on_colocate(operator: Operator, server: Server, client: Client) -> None:
    with contextlib.ExitStack() as watchers:
        for team in range(80):
            watcher = watchers.enter_context(server.connect())
            for name in (b"high", b"low"):
                tube = b"team%d.%b-queue" % (team, name)
                client.ask(b"use %b\r\n" % tube)
                client.put()
                watcher.ask(b"watch %b\r\n" % tube)
            watcher.ask(b"ignore default\r\n")
        rows = operator.do("workers", "--advise", "4", "--json").json
        first, *others = operator.do("workers", "--advise", "4").lines[1:]
    assert rows[0]["colocate"] == "."
    by_separator = {row["colocate"]: row for row in rows}
    assert by_separator["."]["spread"] == 0
    assert by_separator[None]["spread"] > 40
    assert all(0.25 <= row["busiest"] < 0.6 for row in rows)
    assert first.split()[:2] == [".", "0"] and len(others) == 2


def test_advice_without_a_good_choice(operator: Operator, client: Client) -> None:
    client.put()
    rows = operator.do("workers", "--advise", "3", "--json").json
    assert rows == [{"colocate": None, "spread": 0, "busiest": 1.0}]
    assert "no choice divides the load well" in operator.do("workers", "--advise", "3").lines[-1]


def test_large_numbers_of_workers_fit_into_80_columns(
    monkeypatch: pytest.MonkeyPatch, operator: Operator
) -> None:
    keys = ("connections", "tubes", *(f"jobs-{one}" for one in FREE_STATES), "jobs-reserved")
    row = {
        **dict.fromkeys((*keys, "mesh-in-bytes", "mesh-out-bytes", "memory-bytes"), 10**12),
        "worker": 254,
        "state": "starting",
        "since-s": 99 * 86400.0,
        "pid": 4_194_303,
        "restarts": 999,
        "cpu-s": 1234567.89,
        "connections": 1_000_000,
    }
    monkeypatch.setattr(ControlClient, "parts", lambda *_: iter([row] * 3))
    lines = operator.do("workers").lines
    assert max(map(len, lines)) <= 80
    assert "1.00T" in lines[-1]


def test_conns(operator: Operator, client: Client) -> None:
    client.ask(b"watch mails\r\n")
    held = client.put()
    client.reserve()
    client.send(b"reserve\r\n")
    (row,) = [row for row in operator.do("conns", "--json").json if row["holds"]]
    assert row["jobs"] == [held]
    (line,) = [line for line in operator.do("conns").lines if "forever" in line]
    assert line.split()[0] == f"127.0.0.1:{client.port}"
    assert "default,mails" in line


def test_drain(operator: Operator, client: Client) -> None:
    assert operator.do("drain").lines == ["puts are accepted"]
    assert operator.do("drain", "on").lines == ["draining: puts are rejected"]
    assert client.ask(put_line(b"x")) == b"DRAINING\r\n"
    assert operator.do("drain", "--json").json == {"draining": True}
    operator.do("drain", "off")
    inserted_id(client.ask(put_line(b"x")))


def test_reload(operator: Operator, tmp_path: Path) -> None:
    assert operator.do("reload").lines == ["no option has changed"]
    (tmp_path / "config").write_text("max-job-size = 2000\n")
    assert operator.do("reload").lines == ["max-job-size is 2000 now"]
    (tmp_path / "config").write_text("max-job-size = 2000\nport = 1\n")
    assert operator.do("reload").lines == ["no option has changed"]  # -p overrides the file
    (tmp_path / "config").write_text("max-job-size = 3000\nuser = 'nobody'\n")
    result = operator.try_("reload", "--json")
    assert result.status == 1
    assert result.json == {"applied": {"max-job-size": 3000}, "waiting": {"user": "nobody"}}
    (tmp_path / "config").write_text("nonsense = 1\n")
    assert "unknown setting 'nonsense'" in operator.fail(1, "reload")


def test_compact(operator: Operator, client: Client, folder: Path) -> None:
    jobs = [inserted_id(client.ask(put_line(b"x" * 500))) for _ in range(200)]
    for job in jobs[10:]:
        client.ask(b"delete %d\r\n" % job)
    freed = operator.do("compact", "--json").json["freed-bytes"]
    assert freed > 8192
    assert operator.do("compact").lines == ["0 bytes freed"]
    assert all(client.ask(b"peek %d\r\n" % job).startswith(b"FOUND") for job in jobs[:10])
    assert "1<=x<=100" in operator.fail(2, "compact", "--ratio", "0.5")


@pytest.mark.slow
def test_compact_shows_progress_on_a_terminal(server: Server, client: Client) -> None:
    for _ in range(200):
        client.ask(b"delete %d\r\n" % inserted_id(client.ask(put_line(b"x" * 900))))
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "beanstalkd_py", "compact", f"--addr=127.0.0.1:{server.port}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, timeout=20, check=True)
    os.close(terminal)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert re.search(r"worker 0 +\[#* *\] +[0-9.]+ MiB", shown)
    assert re.fullmatch(rb"\d+ bytes freed\n", done.stdout)


def test_control_option(operator: Operator, server: Server, runtime_folder: Path) -> None:
    path = runtime_folder / f"beanstalkd-py-{server.port}.sock"
    assert Operator("127.0.0.1:1").do("drain", "--control", str(path)).lines == [
        "puts are accepted"
    ]


@pytest.mark.parametrize(
    "command", ["workers", "conns", "drain", "reload", "compact", "policy show"]
)
def test_c_beanstalkd_has_no_control_socket(command: str) -> None:
    with reference() as server:
        line = Operator(f"127.0.0.1:{server.port}").fail(2, *command.split())
        assert "no control socket" in line
        assert "--control" in line


def test_stale_control_socket(
    server: Server, runtime_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"beanstalkd-py-{server.port}.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(os.fspath(tmp_path / name))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    assert Operator(f"127.0.0.1:{server.port}").do("drain").lines == ["puts are accepted"]
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert "no control socket" in Operator(f"127.0.0.1:{server.port}").fail(2, "drain")


@pytest.mark.parametrize("command", ["workers", "conns", "drain", "reload", "compact"])
def test_help_has_an_example(command: str) -> None:
    text = Operator("").do(command, "--help").out.decode()
    assert f"  beanstalkd-py {command}" in text
    assert "--json" in text
