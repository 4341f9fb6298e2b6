"""The ready line: the configuration of a server that serves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import eventually
from servers import READY_LINE, Server, ours

from beanstalkd_py import __version__
from beanstalkd_py.server.control.control_socket import NONE

pytestmark = pytest.mark.costly


def ready_line(server: Server) -> str:
    """Return the rest of the one ready line after the version."""
    assert eventually(lambda: READY_LINE in server.stderr(), 10)
    (line,) = [one for one in server.stderr().splitlines() if one.startswith(READY_LINE)]
    before, _, after = line.partition(f"version {__version__}, ")
    assert before == READY_LINE
    return after


def test_in_memory(runtime_folder: Path) -> None:
    with ours() as server:
        assert ready_line(server) == (
            f"listening on 127.0.0.1:{server.port}, no binlog (jobs are in memory only), 1 worker,"
            f" control socket {runtime_folder}/beanstalkd-py-{server.port}.sock"
        )


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("-f0", "synced before each reply"),
        ("-f20", "synced every 20 ms"),
        ("-F", "never synced"),
    ],
)
def test_with_a_binlog(tmp_path: Path, option: str, words: str) -> None:
    with ours("-b", tmp_path, option, "--workers", "2", "--control", NONE) as server:
        assert ready_line(server) == (
            f"listening on 127.0.0.1:{server.port}, binlog {tmp_path} ({words}), 2 workers,"
            " no control socket (--control none)"
        )


def test_history_and_metrics(tmp_path: Path) -> None:
    (tmp_path / "binlog").mkdir()
    options = ("-b", tmp_path / "binlog", "--history", tmp_path / "history")
    with ours(*options, "--metrics", f"unix:{tmp_path}/metrics") as server:
        line = ready_line(server)
    assert f", history {tmp_path}/history, 1 worker, metrics on unix:{tmp_path}/metrics," in line


def test_the_reason_for_no_control_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * 120)))
    (tmp_path / ("x" * 120)).mkdir()
    with ours() as server:
        assert "no control socket (the control socket's path is too long: " in ready_line(server)


def test_as_json() -> None:
    with ours("--log-format", "json") as server:
        assert eventually(lambda: "ready: " in server.stderr(), 10)
        line = json.loads(server.stderr())
    assert (line["level"], line["worker"]) == ("notice", "parent")
    assert line["message"].startswith(f"ready: version {__version__}, listening on ")
