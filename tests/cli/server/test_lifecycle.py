"""Start, stop and crash of a server with parent, worker, lock and sockets."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cli.commands import FOLDER
from processes import PROMPT_S, alive, children, eventually, slowness
from servers import Server, free_port, ours
from wire import Client, NoReplyError

BINLOG = 74


def worker_of(server: Server) -> int:
    found = children(server.pid)
    assert len(found) == 1, found
    return found[0]


def wait_for_end(server: Server, limit_s: float = 10.0) -> int:
    assert eventually(lambda: server.exit_status is not None, limit_s)
    status = server.exit_status
    assert status is not None
    return status


# --- stopping -----------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_the_server_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with ours("-b", tmp_path) as server:
        client = server.connect()
        job = client.put(b"kept")
        worker = worker_of(server)
        began = time.monotonic()
        server.signal(number)
        assert wait_for_end(server) == 0
        assert time.monotonic() - began < PROMPT_S
        assert not alive(worker)
        assert client.read_to_end() == b""
        assert server.complaints() == ""
    # The lock is free at once: no waiting here.
    with (tmp_path / "lock").open("r+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with ours("-b", tmp_path) as server, server.connect() as client:
        assert client.ask(b"peek %d\r\n" % job) == b"FOUND %d 4\r\nkept\r\n" % job


@pytest.mark.slow
def test_repeated_restarts(tmp_path: Path) -> None:
    for job in range(1, 6):
        with ours("-b", tmp_path) as server, server.connect() as client:
            assert client.put() == job
            assert int(client.stats()["current-jobs-ready"]) == job


@pytest.mark.costly
def test_busy_client_does_not_delay_the_stop() -> None:
    with ours() as server:
        ended = threading.Event()

        def send_commands() -> None:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", server.port)) as connection,
            ):
                connection.settimeout(10)
                while not ended.is_set():
                    connection.sendall(b"use default\r\n" * 500)
                    connection.recv(1 << 20)

        threads = [threading.Thread(target=send_commands) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        status = wait_for_end(server)
        took_s = time.monotonic() - began
        ended.set()
        for thread in threads:
            thread.join(10)
    assert status == 0
    assert took_s < PROMPT_S


def test_a_second_signal_changes_nothing() -> None:
    with ours() as server:
        server.signal(signal.SIGTERM)
        with contextlib.suppress(ProcessLookupError):
            server.signal(signal.SIGINT)
            server.signal(signal.SIGTERM)
        assert wait_for_end(server) == 0


def test_worker_ignores_signals() -> None:
    with ours() as server, server.connect() as client:
        worker = worker_of(server)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGPIPE):
            os.kill(worker, number)
        time.sleep(0.1)
        client.put()
        assert client.stats()["draining"] == "false"


def test_ctrl_c_reaches_the_whole_group(tmp_path: Path) -> None:
    with ours("-b", tmp_path) as server:
        os.killpg(server.pid, signal.SIGINT)
        assert wait_for_end(server) == 0
        assert server.complaints() == ""


# --- starting -----------------------------------------------------------------------------------


def start_behind_a_lock(folder: Path, *args: str) -> tuple[subprocess.Popen[str], int, int]:
    """Start a server whose folder is locked; return it, its port and the lock."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.lockf(lock, fcntl.LOCK_EX)
    port = free_port()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "beanstalkd_py",
            "-l127.0.0.1",
            f"-p{port}",
            "-V",
            f"-b{folder}",
            "--workers=1",
            "--control=none",
            *args,
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "listening" in process.stderr.readline()
    return process, port, lock


def handles_sigterm(pid: int) -> bool:
    """Return whether the process catches SIGTERM, or holds it back until it does."""
    fields = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    masks = int(fields["SigCgt"], 16) | int(fields["SigBlk"], 16)
    return bool(masks >> (signal.SIGTERM - 1) & 1)


def test_listens_before_reading_the_binlog(tmp_path: Path) -> None:
    process, port, lock = start_behind_a_lock(tmp_path)
    try:
        with Client(port) as client:
            client.send(b"list-tube-used\r\n")
            assert client.silent(0.2)
            os.close(lock)
            assert client.reply() == b"USING default\r\n"
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=10)
    assert process.returncode == 0, errors


def test_stop_during_start(tmp_path: Path) -> None:
    process, _, lock = start_behind_a_lock(tmp_path)
    # Soon, because it waits for the lock for only a second.
    assert eventually(lambda: handles_sigterm(process.pid))
    began = time.monotonic()
    process.terminate()
    _, errors = process.communicate(timeout=10)
    took_s = time.monotonic() - began
    os.close(lock)
    assert (process.returncode, errors) == (0, "beanstalkd-py: stopping\n")
    assert took_s < 0.5 * slowness()


def test_stop_while_waiting_to_reshard(tmp_path: Path) -> None:
    process, _, lock = start_behind_a_lock(tmp_path, "--workers=2")
    # Soon, because it waits for the lock for only a second.
    assert eventually(lambda: handles_sigterm(process.pid))
    process.terminate()
    process.communicate(timeout=10)
    os.close(lock)
    assert process.returncode == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("shard")] == []


def test_listens_shortly_after_start(tmp_path: Path) -> None:
    best_s, limit_s = 10.0, 0.25
    for _ in range(20):
        if best_s < limit_s:
            return
        began = time.monotonic()
        command = [sys.executable, "-m", "beanstalkd_py", "-l127.0.0.1", "-p0", "-V"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "listening" in process.stderr.readline()
            best_s = min(best_s, time.monotonic() - began)
            process.terminate()
            assert process.wait(10) == 0
    # The best of many runs, because other tests may use the CPUs.
    assert best_s < limit_s


# --- kills and failures -------------------------------------------------------------------------


@pytest.mark.costly
def test_kill_of_the_parent_ends_the_worker(tmp_path: Path) -> None:
    with ours("-b", tmp_path) as server:
        with server.connect() as client:
            job = client.put(b"kept")
        worker = worker_of(server)
        server.signal(signal.SIGKILL)
        assert eventually(lambda: not alive(worker))
    with ours("-b", tmp_path) as server, server.connect() as client:
        assert client.ask(b"peek %d\r\n" % job) == b"FOUND %d 4\r\nkept\r\n" % job


def test_killed_worker_ends_the_server() -> None:
    with ours() as server:
        worker = worker_of(server)
        os.kill(worker, signal.SIGKILL)
        assert wait_for_end(server) == 128 + signal.SIGKILL
        lines = server.complaints().splitlines()
        assert len(lines) == 1, lines
        assert f"worker 0 (pid {worker}) was killed by signal 9" in lines[0]


FAULTY_WORKER = """
import sys
if "beanstalkd_py.server.worker.process" in sys.orig_argv:
    import errno
    from beanstalkd_py.core._core import lib
    lib.bs_io_fail(1 << lib.BS_IO_DATASYNC, 40, errno.EIO, 1)
"""


@pytest.mark.costly
def test_a_failed_sync_is_not_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAULTY_WORKER)
    folder = tmp_path / "binlog"
    folder.mkdir()
    acknowledged = []
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        with ours("-b", folder) as server, server.connect() as client:
            with pytest.raises((NoReplyError, OSError)):
                for _ in range(100):
                    acknowledged.append(client.put())
            assert wait_for_end(server) == BINLOG
            lines = server.complaints().splitlines()
    assert len(lines) == 2, lines
    assert "error: " in lines[0]
    assert "ended with status 74" in lines[1]
    assert acknowledged
    with ours("-b", folder) as server, server.connect() as client:
        for job in acknowledged:
            assert client.ask(b"peek %d\r\n" % job).startswith(b"FOUND ")


# --- draining, identity -------------------------------------------------------------------------


def test_drain() -> None:
    with ours() as server, server.connect() as client:
        client.put(b"before")
        assert client.stats()["draining"] == "false"
        server.signal(signal.SIGUSR1)
        assert eventually(lambda: client.stats()["draining"] == "true")
        assert client.ask(b"put 0 0 1 1\r\nx\r\n") == b"DRAINING\r\n"
        client.reserve()


@pytest.mark.costly
def test_stats_name_the_server() -> None:
    identities = set()
    for _ in range(2):
        with ours() as server, server.connect() as client:
            stats = client.stats()
            assert stats["pid"] == str(server.pid)
            assert stats["version"] == '"1.13"'
            assert stats["hostname"] == f'"{os.uname().nodename}"'
            assert int(stats["uptime"]) <= 5
            assert float(stats["rusage-utime"]) > 0
            assert len(stats["id"]) == 16
            identities.add(stats["id"])
    assert len(identities) == 2


def test_failed_start_ends_its_worker(tmp_path: Path) -> None:
    """The worker starts before the folder is checked, and must not keep stderr open."""
    script = """
import ctypes, os, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
server = subprocess.Popen(sys.argv[1:])
statuses = {}
try:
    while True:
        pid, status = os.wait()
        statuses[pid] = os.waitstatus_to_exitcode(status)
except ChildProcessError:
    print(statuses.pop(server.pid), *statuses.values())
"""
    server = [sys.executable, "-P", "-m", "beanstalkd_py", "-l", f"unix:{tmp_path}/socket"]
    command = [sys.executable, "-c", script, *server, "--control=none", "-b", tmp_path / "missing"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert "missing does not exist" in done.stderr
    assert done.stdout.split() == [str(FOLDER), str(-signal.SIGKILL)]
