"""A slow or closed reader of stderr: clients are served, and dropped lines are counted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import children, eventually
from servers import free_port, our_command
from wire import Client, NoReplyError

from beanstalkd_py.server.logging.writer import LogWriter

CAPACITY = 1000
LONG = 10.0
COMMANDS = 20_000
BATCH = 500


class Pipe:
    """A pipe that is read only on request."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def fill(self) -> None:
        """Write empty lines until the pipe is full."""
        os.set_blocking(self.writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.writer, b"\n" * 4096)
        os.set_blocking(self.writer, True)

    def read_all(self) -> bytes:
        """Read until the last writer has closed the pipe."""
        data = b""
        while piece := os.read(self.reader, 1 << 16):
            data += piece
        os.close(self.reader)
        return data


def lost_line(count: int) -> bytes:
    return b"lost %d\n" % count


def test_lines_are_written_in_order() -> None:
    pipe = Pipe()
    writer = LogWriter(pipe.writer, lost_line)
    lines = [b"line %d\n" % number for number in range(1000)]
    for line in lines:
        writer.put(line)
    assert writer.flush(LONG)
    os.close(pipe.writer)
    assert pipe.read_all() == b"".join(lines)


@pytest.mark.parametrize("urgent", [False, True])
def test_lines_are_written_or_counted_without_blocking(urgent: bool) -> None:
    pipe = Pipe()
    pipe.fill()
    writer = LogWriter(pipe.writer, lost_line, CAPACITY)
    count = 20_000
    for number in range(count):
        writer.put(b"line %9d\n" % number, urgent)
    assert not writer.flush(0.01)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_all()))
    reader.start()
    assert writer.flush(LONG)
    writer.put(b"line at last\n")
    assert writer.flush(LONG)
    os.close(pipe.writer)
    reader.join(LONG)
    lines = found[0].splitlines()
    lost = [int(line.split()[1]) for line in lines if line.startswith(b"lost")]
    kept = [line for line in lines if line.startswith(b"line")]
    assert lost
    assert len(kept) - 1 + sum(lost) == count
    assert kept[-1] == b"line at last"
    assert kept[:-1] == sorted(kept[:-1])
    assert lines.index(b"line at last") > lines.index(b"lost %d" % lost[-1])


def test_urgent_lines_have_a_reserve_of_the_buffer() -> None:
    pipe = Pipe()
    pipe.fill()
    writer = LogWriter(pipe.writer, lost_line, CAPACITY)
    for _ in range(CAPACITY):
        writer.put(b"line\n")
    writer.put(b"error\n", urgent=True)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_all()))
    reader.start()
    assert writer.flush(LONG)
    os.close(pipe.writer)
    reader.join(LONG)
    assert b"\nerror\n" in found[0]


def test_a_closed_reader_is_ignored() -> None:
    pipe = Pipe()
    writer = LogWriter(pipe.writer, lost_line, CAPACITY)
    os.close(pipe.reader)
    for _ in range(1000):
        writer.put(b"to nobody\n", urgent=True)
    assert writer.flush(LONG)
    os.close(pipe.writer)


@contextlib.contextmanager
def server_on(pipe: Pipe, workers: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    words = ["-l127.0.0.1", "-p", str(port), "-VV", "--log-format=json", f"--workers={workers}"]
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", *our_command(), *words],
        stdin=subprocess.DEVNULL,
        stderr=pipe.writer,
    )
    os.close(pipe.writer)
    try:
        yield process, port
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    try:
        with Client(port) as client:
            return client.ask(b"list-tube-used\r\n") == b"USING default\r\n"
    except (OSError, NoReplyError):
        return False


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_a_full_pipe_does_not_stop_a_server_and_lost_lines_are_counted(workers: int) -> None:
    pipe = Pipe()
    with server_on(pipe, workers) as (process, port):
        assert eventually(lambda: answers(port), LONG)
        with Client(port) as client:
            for _ in range(COMMANDS // BATCH):
                client.send(b"delete 77\r\n" * BATCH)
                assert client.replies(BATCH) == [b"NOT_FOUND\r\n"] * BATCH
            # The parent logs, too, and still handles signals.
            process.send_signal(signal.SIGHUP)
            assert answers(port)
            assert len(children(process.pid)) == workers
            origin = f"127.0.0.1:{client.port}"
        found: list[bytes] = []
        reader = threading.Thread(target=lambda: found.append(pipe.read_all()))
        reader.start()
        with Client(port) as client:
            for _ in range(20):  # the buffer may still be full for the first ones
                client.ask(b"delete 78\r\n")
                time.sleep(0.05)
        process.terminate()
        assert process.wait(LONG) == 0
        reader.join(LONG)
    records = [json.loads(line) for line in found[0].splitlines()]
    reported = [one for one in records if one.get("from") == origin]
    dropped = sum(one["count"] for one in records if one.get("event") == "lost")
    # Accept, two lines per command, close; other connections have lines as well.
    assert dropped > 0
    assert 0 <= len(reported) + dropped - (2 * COMMANDS + 2) < 100
    assert "delete 78" in [one.get("line") for one in records]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_server_with_a_full_pipe_can_stop(workers: int) -> None:
    pipe = Pipe()
    with server_on(pipe, workers) as (process, port):
        assert eventually(lambda: answers(port), LONG)
        with Client(port) as client:
            client.send(b"delete 77\r\n" * BATCH * 10)
            client.replies(BATCH * 10)
        process.terminate()
        assert process.wait(LONG) == 0
    os.close(pipe.reader)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("closed", ["2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_descriptors_are_not_reused(
    closed: str, workers: int, tmp_path: Path
) -> None:
    """Log lines must not go to a file with number 2."""
    port = free_port()
    options = ("-VV", f"--workers={workers}", "-p", str(port), "-l", "127.0.0.1", "-b", tmp_path)
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *our_command(), *options]
    with subprocess.Popen(shell) as process:
        try:
            assert eventually(lambda: can_connect(port), 10)
            with Client(port) as client:
                for _ in range(50):
                    assert client.put() > 0
                assert client.stats()["draining"] == "false"
        finally:
            process.terminate()
    assert process.returncode == 0


def can_connect(port: int) -> bool:
    with contextlib.suppress(OSError, NoReplyError), Client(port) as client:
        return client.ask(b"list-tube-used\r\n") == b"USING default\r\n"
    return False
