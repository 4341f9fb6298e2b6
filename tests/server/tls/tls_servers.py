"""Servers with TLS, their certificate files, and clients with TLS."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trustme
from processes import children, eventually
from servers import Server, free_port, ours

HELLO = b"list-tube-used\r\n"
USING = b"USING default\r\n"


@dataclass
class Files:
    """Certificate files and their issuer."""

    folder: Path
    ca: trustme.CA

    def __post_init__(self) -> None:
        self.ca.cert_pem.write_to_path(str(self.folder / "ca.pem"))
        self.renew()

    def renew(self) -> None:
        issued = self.ca.issue_cert("localhost")
        issued.private_key_pem.write_to_path(str(self.folder / "key.pem"))
        issued.cert_chain_pems[0].write_to_path(str(self.folder / "cert.pem"))

    @property
    def arguments(self) -> list[str]:
        return [f"--tls-cert={self.folder}/cert.pem", f"--tls-key={self.folder}/key.pem"]

    def certificate(self) -> bytes:
        """Return the server's certificate, as a client gets it."""
        return ssl.PEM_cert_to_DER_cert((self.folder / "cert.pem").read_text())

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.ca.configure_trust(context)
        return context


@dataclass
class Both:
    """A server and the port of its TLS listener."""

    server: Server
    port: int
    files: Files

    def connect(
        self, context: ssl.SSLContext | None = None, session: ssl.SSLSession | None = None
    ) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        try:
            wrap = (context or self.files.context()).wrap_socket
            return wrap(plain, server_hostname="localhost", session=session)
        except BaseException:
            plain.close()
            raise


@contextlib.contextmanager
def serving(files: Files, *arguments: str) -> Iterator[Both]:
    port = free_port()
    with ours(f"--tls-listen=127.0.0.1:{port}", *files.arguments, *arguments) as server:
        both = Both(server, port, files)
        assert eventually(lambda: can_connect(both), 10)
        yield both


def known(files: Files) -> ssl.SSLContext:
    context = files.context()
    files.ca.issue_cert("client").configure_cert(context)
    return context


@contextlib.contextmanager
def serving_with_ca(files: Files, *arguments: str) -> Iterator[Both]:
    port = free_port()
    words = (f"--tls-listen=127.0.0.1:{port}", *files.arguments, f"--tls-ca={files.folder}/ca.pem")
    with ours(*words, *arguments) as server:
        both = Both(server, port, files)

        def gets_in() -> bool:
            with contextlib.suppress(OSError), both.connect(known(files)) as client:
                return ask(client, HELLO) == USING
            return False

        assert eventually(gets_in, 10)
        yield both


def can_connect(both: Both) -> bool:
    with contextlib.suppress(OSError), both.connect() as client:
        return ask(client, HELLO) == USING
    return False


def ask(client: ssl.SSLSocket, data: bytes) -> bytes:
    client.sendall(data)
    return client.recv(1 << 16)


def read(client: ssl.SSLSocket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size and (data := client.recv(1 << 16)):
        got += data
    return bytes(got)


def tls_processes(server: Server) -> list[int]:
    """Return the ids of the TLS processes in the order of their start."""
    return [pid for pid in children(server.pid) if b"server.tls" in _command(pid)]


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def process_of(client: ssl.SSLSocket) -> int:
    """Return the id of the TLS process of a client that has had a reply."""
    host, port = client.getsockname()
    name = re.compile(rf"@beanstalkd-py/tls/(\d+)/\d+/{re.escape(f'{host}:{port}')}$", re.MULTILINE)
    (pid,) = name.findall(Path("/proc/net/unix").read_text())
    return int(pid)
