"""Identify the protocol of a server that does not reply like beanstalkd: TLS, HTTP, or no TLS."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace

from beanstalkd_py.admin.address import Address

MAX_PROBE_S = 1.0
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""First bytes of a TLS alert and of a TLS handshake."""
_HTTP = (b"HTTP/", b"<!DOCTYPE", b"<html", b"<HTML")


def identify(address: Address, reply: bytes) -> str | None:
    """Return a message that names the protocol of a reply; None if the protocol is unknown."""
    if reply.startswith(_TLS_RECORDS):
        return f"{address} speaks TLS; use --addr {replace(address, tls=True)}"
    if reply.startswith(_HTTP):
        return f"{address} is not a beanstalkd: it speaks HTTP; use the address of -l and -p"
    return None


def probe(address: Address, timeout_s: float) -> str | None:
    """Connect again to identify the server's protocol; return a message, None if it is unknown."""
    timeout_s = min(timeout_s, MAX_PROBE_S)
    if address.tls:
        reply = _reply_to(address, b"list-tube-used\r\n", timeout_s)
        if reply.startswith(b"USING "):
            return f"{address} does not speak TLS; use --addr {replace(address, tls=False)}"
        return identify(address, reply) if reply.startswith(_HTTP) else None
    return probe_plain(address, timeout_s, f"--addr {replace(address, tls=True)}")


def probe_plain(
    address: Address, timeout_s: float, other: str = "the address of -l and -p"
) -> str | None:
    """Probe without TLS. `other` is the address to use instead if the server speaks TLS."""
    timeout_s = min(timeout_s, MAX_PROBE_S)
    plain = replace(address, tls=False)
    if plain.path:
        return None
    if _speaks_tls(plain, timeout_s):
        return f"{plain} speaks TLS; use {other}"
    return identify(plain, _reply_to(plain, b"GET / HTTP/1.0\r\n\r\n", timeout_s))


def _speaks_tls(address: Address, timeout_s: float) -> bool:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing, incoming = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = context.wrap_bio(incoming, outgoing, server_hostname=address.host)
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    return _reply_to(address, outgoing.read(), timeout_s).startswith(_TLS_RECORDS)


def _reply_to(address: Address, data: bytes, timeout_s: float) -> bytes:
    with contextlib.suppress(OSError, UnicodeError):
        endpoint = (address.host, address.port)
        with socket.create_connection(endpoint, timeout=timeout_s) as connection:
            connection.sendall(data)
            return connection.recv(64)
    return b""
