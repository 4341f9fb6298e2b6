"""Listening addresses and users of a server: TCP, Unix sockets, -u."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.commands import BIND, ERROR, USAGE, refusal
from servers import ours

import beanstalkd_py

# --- addresses that cannot be bound -------------------------------------------------------------


def test_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal(BIND, "-l", "127.0.0.1", "-p", str(port))
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line


def test_foreign_address() -> None:
    assert "192.0.2.1" in refusal(BIND, "-l", "192.0.2.1", "-p0")


def test_name_without_address() -> None:
    assert "no-such-host.invalid" in refusal(BIND, "-l", "no-such-host.invalid", "-p0")


# --- users --------------------------------------------------------------------------------------


def test_user_option_with_the_current_user() -> None:
    name = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    with ours("-u", name) as server, server.connect() as client:
        client.put()


def test_dropped_privileges_cannot_be_regained() -> None:
    """Root drops all privileges; other users get an error with a remedy."""
    program = (
        "import os, pwd\n"
        "from beanstalkd_py.server.process.privileges import become_user\n"
        "nobody = pwd.getpwnam('nobody')\n"
        "become_user(nobody)\n"
        "assert os.getresuid() == (nobody.pw_uid,) * 3\n"
        "assert os.getresgid() == (nobody.pw_gid,) * 3\n"
        "assert set(os.getgroups()) == set(os.getgrouplist('nobody', nobody.pw_gid))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if os.geteuid() == 0:
        assert done.returncode == 0, done.stderr
    else:
        assert "only root may" in done.stderr


def test_another_user(folder_of_nobody: Path) -> None:
    """The worker runs the interpreter as that user, who needs permission for it."""
    if os.geteuid() != 0:
        assert "only root may" in refusal(USAGE, "-u", "nobody", "-p0")
        return
    if not is_world_executable(Path(sys.executable)):
        line = refusal(ERROR, "-l", "127.0.0.1", "-p0", "-u", "nobody")
        assert "nobody cannot read the Python installation" in line
        return
    uid = pwd.getpwnam("nobody").pw_uid
    with ours("-u", "nobody", "-b", folder_of_nobody) as server, server.connect() as client:
        client.put()
        assert Path(f"/proc/{server.pid}").stat().st_uid == uid
        assert (folder_of_nobody / "binlog.1").stat().st_uid == uid


def is_world_executable(program: Path) -> bool:
    real = program.resolve()
    package = Path(beanstalkd_py.__file__).resolve()
    folders = {*real.parents, *package.parents, *program.absolute().parents}
    return all(folder.stat().st_mode & 0o001 for folder in folders)


# --- unix sockets -------------------------------------------------------------------------------


@pytest.fixture
def path() -> Iterator[Path]:
    """Yield a path short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="bs") as folder:
        yield Path(folder) / "socket"


def ask_unix(path: Path, command: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(command)
        return client.recv(4096)


class UnixServer:
    """A server on a Unix socket, ready when the socket replies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        command = [sys.executable, "-m", "beanstalkd_py", "-l", f"unix:{path}", "-V"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> UnixServer:
        assert self.process.stderr is not None
        assert f"listening on unix:{self._path}" in self.process.stderr.readline()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        _, errors = self.process.communicate(timeout=10)
        assert self.process.returncode == 0, errors


def test_unix_socket(path: Path) -> None:
    with UnixServer(path):
        assert ask_unix(path, b"list-tube-used\r\n") == b"USING default\r\n"
    assert not path.exists()


def test_stale_unix_socket_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    assert path.is_socket()
    with UnixServer(path):
        assert ask_unix(path, b"list-tube-used\r\n") == b"USING default\r\n"


def test_regular_file_at_the_socket_path_is_rejected(path: Path) -> None:
    path.write_text("precious")
    assert "not a socket" in refusal(BIND, "-l", f"unix:{path}")
    assert path.read_text() == "precious"


def test_unix_socket_in_use_is_rejected(path: Path) -> None:
    with UnixServer(path):
        assert "another server" in refusal(BIND, "-l", f"unix:{path}")
        assert ask_unix(path, b"list-tube-used\r\n") == b"USING default\r\n"


def test_socket_of_a_successor_is_kept(path: Path) -> None:
    with UnixServer(path):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as successor:
            successor.bind(str(path))
    assert path.is_socket()


def test_folder_of_the_socket_is_missing(path: Path) -> None:
    assert "No such file" in refusal(BIND, "-l", f"unix:{path.parent}/none/socket")


# --- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["::1", "[::1]", "localhost", "127.0.0.1"])
def test_addresses(address: str) -> None:
    command = [sys.executable, "-m", "beanstalkd_py", "-l", address, "-p0", "-V"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        port = int(line.rpartition(":")[2])
        host = "::1" if ":" in address else "127.0.0.1"
        with socket.create_connection((host, port), timeout=10) as client:
            client.sendall(b"list-tube-used\r\n")
            assert client.recv(100) == b"USING default\r\n"
        process.terminate()
        assert process.wait(10) == 0
