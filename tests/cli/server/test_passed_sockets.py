"""Sockets passed by systemd: used, ignored, or rejected."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commands import BIND
from servers import free_port, without_ready_line
from wire import Client

from beanstalkd_py.server.accept.listeners import KEPT_NAME

PASSING = """
import os, sys
passed = [int(word) for word in sys.argv[1].split(",") if word]
for want, fd in enumerate(passed, 3):
    assert fd >= 3 + len(passed), "the test must pass higher ones"
    os.dup2(fd, want, inheritable=True)
os.environ["LISTEN_FDS"] = sys.argv[2] or str(len(passed))
os.environ["LISTEN_PID"] = sys.argv[3] or str(os.getpid())
os.environ["LISTEN_FDNAMES"] = sys.argv[4]
os.execv(sys.executable, [sys.executable, "-m", "beanstalkd_py", "serve", *sys.argv[5:]])
"""


def start_passing(
    sockets: list[socket.socket],
    *args: str,
    count: str = "",
    pid: str = "",
    names: tuple[str, ...] = (),
) -> subprocess.Popen[str]:
    """Start a server and pass sockets as systemd does."""
    high = [fcntl.fcntl(sock, fcntl.F_DUPFD, 100) for sock in sockets]
    try:
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                PASSING,
                ",".join(map(str, high)),
                count,
                pid,
                ":".join(names),
                *args,
            ],
            pass_fds=high,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        for fd in high:
            os.close(fd)


def end(process: subprocess.Popen[str]) -> str:
    """Stop a server, which must exit cleanly; return its log without the ready line."""
    process.terminate()
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 0, errors
    return without_ready_line(errors)


def test_passed_sockets(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))
        unix.listen()
        process = start_passing([tcp, unix])
        with Client(tcp.getsockname()[1], 10) as client:
            client.put(b"by tcp")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(path))
            client.sendall(b"peek 1\r\n")
            assert client.recv(100) == b"FOUND 1 6\r\nby tcp\r\n"
        assert end(process) == ""
    assert path.is_socket(), "only systemd may remove its socket"


def test_passed_sockets_override_options() -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        process = start_passing([tcp], "-l", "127.0.0.1", "-p", "1")
        with Client(tcp.getsockname()[1], 10) as client:
            client.put()
        errors = end(process)
    assert len(errors.splitlines()) == 1
    assert "-l and -p are ignored" in errors


def test_a_kept_socket_is_used_if_it_has_the_address_of_the_options() -> None:
    """Clients of the others are refused, although systemd has these sockets, too."""
    with socket.create_server(("127.0.0.1", 0)) as used, socket.create_server(("", 0)) as unused:
        port, other = used.getsockname()[1], unused.getsockname()[1]
        names = (KEPT_NAME, KEPT_NAME)
        process = start_passing([unused, used], "-l", "127.0.0.1", f"-p{port}", names=names)
        with Client(port, 10) as client:
            client.put()
        with pytest.raises(ConnectionRefusedError):
            Client(other)
        assert end(process) == ""


def test_a_new_socket_may_overlap_with_a_kept_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as narrow:
        port = narrow.getsockname()[1]
        process = start_passing([narrow], f"-p{port}", "-V", names=(KEPT_NAME,))
        assert process.stderr is not None
        assert f"listening on 0.0.0.0:{port}" in process.stderr.readline()
        end(process)


def test_a_socket_unit_replaces_kept_sockets() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unit, socket.create_server(("", 0)) as kept:
        port, old = unit.getsockname()[1], kept.getsockname()[1]
        process = start_passing([unit, kept], f"-p{old}", names=("jobs.socket", KEPT_NAME))
        with Client(port, 10) as client:
            client.put()
        with pytest.raises(ConnectionRefusedError):
            Client(old)
        assert "-l and -p are ignored" in end(process)


def test_a_kept_socket_that_was_shut_down_is_ignored() -> None:
    """systemd drops it a moment later."""
    with socket.create_server(("127.0.0.1", 0)) as kept:
        port = kept.getsockname()[1]
        kept.shutdown(socket.SHUT_RDWR)
        process = start_passing([kept], "-l", "127.0.0.1", f"-p{port}", "-V", names=(KEPT_NAME,))
        assert process.stderr is not None
        assert f"listening on 127.0.0.1:{port}" in process.stderr.readline()
        end(process)


def test_sockets_passed_to_another_process_are_ignored() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        process = start_passing([tcp], "-l127.0.0.1", f"-p{port}", "-V", pid="1")
        assert process.stderr is not None
        assert f"listening on 127.0.0.1:{port}" in process.stderr.readline()
        end(process)


@pytest.mark.parametrize("count", ["x", "-1", "2"])
def test_wrong_number_of_passed_sockets(count: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        process = start_passing([tcp], count=count)
        _, errors = process.communicate(timeout=10)
    assert process.returncode == BIND
    assert len(errors.splitlines()) == 1


def test_passed_socket_that_does_not_listen() -> None:
    with socket.socket() as idle:
        process = start_passing([idle])
        _, errors = process.communicate(timeout=10)
    assert process.returncode == BIND
    assert "not a listening stream socket" in errors
