"""`doctor` on a folder with and without a server, intact and damaged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cli.operator import Operator
from servers import free_port, ours, reference
from wire import inserted_id

FINDINGS = {
    *("disk space", "inodes", "file system", "fsync latency", "permissions", "lock", "layout"),
    *("binlog health", "control socket", "descriptors", "listen queue", "syn queue", "memory"),
    *("overcommit", "oom killer", "workers", "clock", "kernel"),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with jobs."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    with ours("-b", folder, "--workers=1") as server, server.connect() as client:
        for _ in range(10):
            inserted_id(client.ask(b"put 0 0 60 100\r\n%b\r\n" % (b"x" * 100)))
    return folder


def examined(operator: Operator, *words: str | Path) -> dict[str, dict[str, Any]]:
    result = operator.try_("doctor", "--json", *map(str, words))
    found = result.json
    assert result.status == int(any(one["verdict"] == "problem" for one in found)), result
    assert all(list(one) == ["check", "verdict", "found", "advice"] for one in found)
    return {one["check"]: one for one in found}


def no_server() -> Operator:
    return Operator(f"127.0.0.1:{free_port()}")


def test_a_folder_without_a_server(data: Path) -> None:
    before = {path.name: path.stat() for path in data.iterdir()}
    found = examined(no_server(), "-b", data)
    assert set(found) == FINDINGS
    assert "10 live jobs" in found["binlog health"]["found"]
    assert "not held" in found["lock"]["found"]
    assert found["control socket"]["verdict"] == "unknown"
    for one in ("inodes", "permissions", "lock", "layout", "binlog health", "workers"):
        assert found[one]["verdict"] == "ok", found[one]
    # The checks have changed nothing.
    after = {path.name: path.stat() for path in data.iterdir()}
    assert {name: status.st_mtime_ns for name, status in after.items()} == {
        name: status.st_mtime_ns for name, status in before.items()
    }


@pytest.mark.costly
def test_a_running_server_and_its_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    with ours("-b", folder, "--workers=2") as server:
        config = tmp_path / "server.toml"
        config.write_text(
            f'binlog-dir = "{folder}"\nworkers = 2\nlisten = "127.0.0.1"\nport = {server.port}\n'
        )
        found = examined(no_server(), "--config", config)
        assert f"process {server.pid} answers, 2 of 2 workers serving" in str(
            found["control socket"]
        )
        assert f"process {server.pid} " in found["lock"]["found"]
        assert f"process {server.pid}" in found["descriptors"]["found"]
        assert found["layout"]["found"] == "2 workers"
        assert "the server uses" in found["memory"]["found"]
        assert found["oom killer"]["verdict"] in ("ok", "warning")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_folder_of_another_server(tmp_path: Path, workers: int) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir(mode=0o700)
    options = (f"--workers={workers}", "-b")
    with ours(*options, folders[0]) as server, ours(*options, folders[1]) as other:
        for folder, verdict in zip(folders, ("ok", "warning"), strict=True):
            words = ("-b", folder, f"--addr=127.0.0.1:{server.port}")
            lock = examined(no_server(), *words)["lock"]
            assert lock["verdict"] == verdict
        assert f"the server on this address is process {server.pid}" in lock["found"]
        assert other.pid


@pytest.mark.costly
def test_a_damaged_folder_is_a_problem(data: Path) -> None:
    file = data / "binlog.1"
    content = bytearray(file.read_bytes())
    at = content.index(b"x" * 100)
    content[at] ^= 1
    file.write_bytes(content)
    found = examined(no_server(), "-b", data)
    assert found["binlog health"]["verdict"] == "problem"
    assert "binlog.1:" in found["binlog health"]["found"]
    assert found["binlog health"]["advice"] == f"beanstalkd-py binlog repair {data}"
    assert examined(no_server(), "-b", data, "--quick")["binlog health"]["verdict"] == "unknown"
    lines = no_server().try_("doctor", "-b", data.as_posix()).lines
    (line,) = [line for line in lines if "binlog health" in line]
    assert line.startswith("problem")
    assert lines[lines.index(line) + 1].strip() == f"-> beanstalkd-py binlog repair {data}"


def test_missing_folder_and_no_folder(tmp_path: Path) -> None:
    found = examined(no_server(), "-b", tmp_path / "nowhere")
    assert "does not exist" in found["layout"]["found"]
    assert "disk space" not in found
    assert "kernel" in found
    assert "lock" not in examined(no_server())


def test_folder_of_another_user(data: Path, tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text(f'binlog-dir = "{data}"\nuser = "nobody"\nworkers = 1\n')
    found = examined(no_server(), "--config", config)
    assert "nobody cannot use" in found["permissions"]["found"]
    config.write_text(f'binlog-dir = "{data}"\nuser = "no-such-user"\nworkers = 1\n')
    found = examined(no_server(), "--config", config)
    assert "no such user: no-such-user" in found["permissions"]["found"]


def test_a_folder_of_c_beanstalkd(tmp_path: Path) -> None:
    """C beanstalkd uses mode 0755 for the folder and 0400 for its files."""
    folder = tmp_path / "data"
    folder.mkdir()
    with reference("-b", folder) as server, server.connect() as client:
        client.put()
    folder.chmod(0o755)
    assert (folder / "binlog.1").stat().st_mode & 0o777 == 0o400
    for path in (folder, *folder.iterdir()):
        os.chown(path, 4321, 4321)
    found = examined(no_server(), "-b", str(folder))
    assert found["permissions"]["verdict"] == "ok", found["permissions"]


def test_usage_errors(tmp_path: Path) -> None:
    assert "exclude each other" in no_server().fail(2, "doctor", "--quick", "--full")
    config = tmp_path / "server.toml"
    config.write_text("wrokers = 2\n")
    assert "wrokers" in no_server().fail(2, "doctor", "--config", str(config))
