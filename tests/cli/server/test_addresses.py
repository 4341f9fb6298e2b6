"""Where a server listens, and as whom: TCP addresses, Unix sockets, -u."""

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

# --- what cannot be bound -----------------------------------------------------------------------


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


def test_the_user_one_is_already() -> None:
    name = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    with ours("-u", name) as server, server.connect() as client:
        client.put()


def test_becoming_another_user_is_for_good() -> None:
    """Root gives up everything; whoever is not root is told what to do."""
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


def test_another_user(tmp_path: Path) -> None:
    """The worker is an interpreter of that user's, who has to be allowed to run it."""
    if os.geteuid() != 0:
        assert "only root may" in refusal(USAGE, "-u", "nobody", "-p0")
        return
    if not _everyone_may_run(Path(sys.executable)):
        line = refusal(ERROR, "-l", "127.0.0.1", "-p0", "-u", "nobody")
        assert "nobody cannot read the Python installation" in line
        return
    nobody = pwd.getpwnam("nobody")
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    os.chown(tmp_path, nobody.pw_uid, nobody.pw_gid)
    with ours("-u", "nobody", "-b", tmp_path) as server, server.connect() as client:
        client.put()
        assert Path(f"/proc/{server.pid}").stat().st_uid == nobody.pw_uid
        assert (tmp_path / "binlog.1").stat().st_uid == nobody.pw_uid


def _everyone_may_run(program: Path) -> bool:
    real = program.resolve()
    package = Path(beanstalkd_py.__file__).resolve()
    folders = {*real.parents, *package.parents, *program.absolute().parents}
    return all(folder.stat().st_mode & 0o001 for folder in folders)


# --- unix sockets -------------------------------------------------------------------------------


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a socket may be: short enough for its address."""
    with tempfile.TemporaryDirectory(prefix="bs") as folder:
        yield Path(folder) / "socket"


def ask_unix(path: Path, command: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(command)
        return client.recv(4096)


class UnixServer:
    """A server on a Unix socket, up when its socket file answers."""

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


def test_another_file_is_refused(path: Path) -> None:
    path.write_text("precious")
    assert "not a socket" in refusal(BIND, "-l", f"unix:{path}")
    assert path.read_text() == "precious"


def test_a_live_unix_socket_is_refused(path: Path) -> None:
    with UnixServer(path):
        assert "another server" in refusal(BIND, "-l", f"unix:{path}")
        assert ask_unix(path, b"list-tube-used\r\n") == b"USING default\r\n"


def test_a_successors_socket_is_left_alone(path: Path) -> None:
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
