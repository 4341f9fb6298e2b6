"""Errors if --addr leads to an HTTP server, or TLS is missing or unexpected."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from cli.commands import run
from cli.operator import Operator
from server.metrics.scrape import watched
from servers import Server

NOBODY = Operator("127.0.0.1:1")
TIMEOUT_S = 20.0


@contextlib.contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve each connection by `serve`; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def one(connection: socket.socket) -> None:
            connection.settimeout(TIMEOUT_S)
            with connection, contextlib.suppress(OSError):
                serve(connection)

        def run() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=one, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def answers(reply: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(reply)

    return serve


def waits_for_headers(connection: socket.socket) -> None:
    got = b""
    while b"\r\n\r\n" not in got and (piece := connection.recv(1000)):
        got += piece
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    "reply",
    [b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", b"<!DOCTYPE HTML>\n<html>\n"],
)
@pytest.mark.parametrize(
    "command", [["stats"], ["put", "x"], ["tubes"]], ids=lambda words: words[0]
)
def test_http(reply: bytes, command: list[str]) -> None:
    with peer(answers(reply)) as address:
        expected = f"{address} is not a beanstalkd: it speaks HTTP; use the address of -l and -p"
        assert NOBODY.fail(2, *command, "--addr", address) == expected


def test_http_that_waits_for_headers() -> None:
    with peer(waits_for_headers) as address:
        result = NOBODY.fail(2, "stats", "--addr", address, "--timeout", "0.3")
        assert "it speaks HTTP" in result


def test_the_metrics_of_a_server() -> None:
    with watched() as server:
        assert "it speaks HTTP" in NOBODY.fail(2, "stats", "--addr", f"127.0.0.1:{server.port}")


def does_tls_handshake(connection: socket.socket) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    context.wrap_socket(connection, server_side=True).close()


def test_tls() -> None:
    with peer(does_tls_handshake) as address:
        result = NOBODY.fail(2, "stats", "--addr", address)
        assert result == f"{address} speaks TLS; use --addr tls://{address}"


CONTROL = [["workers"], ["conns"], ["drain"], ["reload"], ["compact"], ["history", "status"]]


@pytest.mark.parametrize("command", CONTROL, ids=lambda words: words[-1])
def test_control_commands_identify_peers(command: list[str]) -> None:
    with peer(answers(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as address:
        expected = f"{address} is not a beanstalkd: it speaks HTTP; use the address of -l and -p"
        assert NOBODY.fail(2, *command, "--addr", address) == expected
    with peer(does_tls_handshake) as address:
        expected = f"{address} speaks TLS; use the address of -l and -p"
        for given in (address, f"tls://{address}"):
            assert NOBODY.fail(2, *command, "--addr", given) == expected


def test_control_commands_and_another_beanstalkd(either: Server) -> None:
    address = f"localhost:{either.port}"
    control = Path(os.environ["XDG_RUNTIME_DIR"]) / f"beanstalkd-py-{either.port}.sock"
    control.unlink(missing_ok=True)
    result = NOBODY.fail(2, "workers", "--addr", address)
    assert result.startswith(f"no control socket of a beanstalkd-py on {address}")


def test_tls_to_an_http_server() -> None:
    with peer(answers(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as address:
        assert "it speaks HTTP" in NOBODY.fail(2, "stats", "--addr", f"tls://{address}")


def test_tls_to_a_plain_server(either: Server) -> None:
    address = f"127.0.0.1:{either.port}"
    result = NOBODY.fail(2, "stats", "--addr", f"tls://{address}", "--timeout", "0.5")
    assert result == f"tls://{address} does not speak TLS; use --addr {address}"


def test_unknown_peer_is_quoted() -> None:
    with peer(answers(b"220 mail.example ESMTP\r\n")) as address:
        result = NOBODY.fail(2, "stats", "--addr", address)
        assert result == f"{address} is not a beanstalkd: it replied b'220 mail.example ESMTP'"


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"UNKNOWN_COMMAND\r\n",
        b"\x93\x01\x02\x03",
        b"\xdf\xff\xff\xff\xff" + b"\x01" * 100,
        b"\x81\x90\x01",
        b"\x80",
        b"\xc1",
    ],
    ids=["HTTP", "beanstalkd", "list", "long map", "list as key", "empty map", "no msgpack"],
)
def test_a_control_socket_of_another_server(tmp_path: Path, reply: bytes) -> None:
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                answers(reply)(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        done = run("workers", "--control", str(path))
        thread.join(TIMEOUT_S)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert f"{path} is not the control socket of a beanstalkd-py: the message" in done.stderr
    assert done.returncode == 2
