"""Addresses of servers, and errors of connections."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.conftest import STARTERS
from cli.operator import Operator
from processes import eventually
from servers import free_port, our_command, reference_command

from beanstalkd_py import errors
from beanstalkd_py.admin.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:11301", Address("127.0.0.1", 11301)),
        ("queue.example", Address("queue.example", 11300)),
        ("[::1]:5", Address("::1", 5)),
        ("[::1]", Address("::1", 11300)),
        ("::1", Address("::1", 11300)),
        ("unix:/run/b.sock", Address(path="/run/b.sock")),
        ("tls://queue.example:5", Address("queue.example", 5, tls=True)),
        ("tls://[::1]:5", Address("::1", 5, tls=True)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", ":1", "h:", "h:0", "h:65536", "h:x", "h:9999999", "unix:", "tls://"]
)
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(errors.ToolUsageError, match=r"use HOST:PORT, tls://HOST:PORT or unix:PATH"):
        parse_address(text)


EVERY_COMMAND = [
    *("stats", "tubes", "put x", "reserve", "peek 1", "delete 1", "bury 1", "kick 1", "pause t 1"),
    *("tail t", "move a b", "truncate t --yes", "export t", "import t"),
]


@pytest.mark.parametrize("words", EVERY_COMMAND)
def test_no_server(words: str) -> None:
    port = free_port()
    line = Operator(f"127.0.0.1:{port}").fail(2, *words.split())
    assert line.startswith(f"no server at 127.0.0.1:{port}; start one, or use --addr")


@pytest.mark.parametrize("words", EVERY_COMMAND)
def test_help_has_an_example(words: str) -> None:
    name = words.split()[0]
    help_text = Operator("127.0.0.1:1").do(name, "--help").out.decode()
    assert re.search(rf"^  Examples:\n(?:    .*\n)*?    .*beanstalkd-py {name}\b", help_text, re.M)
    assert "--addr" in help_text
    assert "--json" in help_text or name == "export"


def test_unreachable_addresses() -> None:
    anyone = Operator("127.0.0.1:1")
    assert "no-such.invalid" in anyone.fail(2, "stats", "--addr", "no-such.invalid")
    assert "cannot resolve host" in anyone.fail(2, "stats", "--addr", "a..b")
    assert "/no/where" in anyone.fail(2, "stats", "--addr", "unix:/no/where")
    assert "too long" in anyone.fail(2, "stats", "--addr", "unix:/" + "x" * 200)


@contextmanager
def fake_server(answer: Callable[[socket.socket], None]) -> Iterator[Operator]:
    """Serve one connection as a peer that is not beanstalkd."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Operator(f"127.0.0.1:{listening.getsockname()[1]}")
        thread.join(10)


def test_silent_server() -> None:
    with fake_server(lambda connection: time.sleep(1)) as operator:
        began = time.monotonic()
        line = operator.fail(2, "stats", "--timeout", "0.2")
        assert "does not reply within 0.2 s" in line
        assert time.monotonic() - began < 0.9


@pytest.mark.parametrize(
    "reply", [b"220 mail.example ESMTP\r\n", b"\r\n", b"x" * 5000, b"OK many\r\n"]
)
def test_peer_that_is_not_beanstalkd(reply: bytes) -> None:
    with fake_server(lambda connection: connection.sendall(reply)) as operator:
        line = operator.fail(2, "stats")
    beginning = reply[:4].decode().strip()
    assert line.startswith(f"{operator.address} is not a beanstalkd: it replied b'{beginning}")


@pytest.mark.parametrize("words", ["reserve", "stats", "kick --tube t 1", "pause t 1", "put x"])
@pytest.mark.parametrize("rest", [b"", b"RESE", b"OK 100\r\nshort"])
def test_lost_connection(words: str, rest: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"USING default\r\n")
        connection.recv(100)
        connection.sendall(rest)

    with fake_server(answer) as operator:
        line = operator.fail(2, *words.split())
    assert line.startswith(operator.address)
    assert "closed" in line or "reset" in line or "is not a beanstalkd" in line


@pytest.mark.parametrize("which", list(STARTERS))
def test_a_unix_socket(which: str) -> None:
    command = our_command() if which == "ours" else reference_command()
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{Path(folder) / 'socket'}"
        with subprocess.Popen([*command, "-l", address], stderr=subprocess.DEVNULL) as process:
            try:
                operator = Operator(address)
                assert eventually(lambda: operator.try_("stats").status == 0, 10)
                job = int(operator.do("put", "x").out)
                assert operator.do("peek", job).out == b"x"
            finally:
                process.terminate()


@pytest.mark.parametrize("which", list(STARTERS))
def test_draining_server(which: str) -> None:
    """Only puts fail, and with C beanstalkd moves, which put copies; the jobs stay."""
    with STARTERS[which]() as server, server.connect() as wire:
        operator = Operator(f"127.0.0.1:{server.port}")
        for body in (b"a", b"b"):
            wire.put(body)
        server.signal(signal.SIGUSR1)
        assert eventually(lambda: wire.stats()["draining"] == "true")
        assert "accepts no new jobs" in operator.fail(1, "put", "x")
        if which == "ours":
            assert operator.do("move", "default", "other").out.startswith(b"moved 2 jobs")
            assert operator.do("move", "other", "default").out.startswith(b"moved 2 jobs")
        else:
            line = operator.fail(1, "move", "default", "other")
            assert line.startswith("moved 0 jobs from default to other, then failed: ")
            assert "DRAINING" in line
        exported = operator.do("export", "default")
        assert [record["body"] for record in exported.json_lines] == ["a", "b"]
        line = operator.fail(1, "import", "default", stdin=exported.out)
        assert line.startswith("line 1: ")
        assert line.endswith("put 0 jobs, continue with --skip 0")
        assert operator.do("reserve", "--delete").out == b"a"
        assert operator.do("stats", "--json").json["draining"] is True


def test_command_waits_for_a_starting_server() -> None:
    """The server listens before it reads its binlog, and executes the command afterwards."""

    def answer(connection: socket.socket) -> None:
        time.sleep(0.3)
        connection.sendall(b"USING default\r\n")
        connection.recv(100)
        connection.sendall(b"DELETED\r\n")

    with fake_server(answer) as operator:
        assert operator.do("delete", 1).lines == ["deleted 1"]


LIGHT = """
import sys
from beanstalkd_py.cli import main
try:
    main.main(["{words}", "--help"])
except SystemExit:
    pass
heavy = {{"rich", "greenstalk", "gevent", "beanstalkd_py.admin.connection"}} & set(sys.modules)
sys.exit(f"imported for help: {{heavy}}" if heavy else 0)
"""


@pytest.mark.parametrize("words", ["stats", "move", "reserve"])
def test_help_imports_nothing_heavy(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT.format(words=words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )
    assert done.returncode == 0, done.stderr
