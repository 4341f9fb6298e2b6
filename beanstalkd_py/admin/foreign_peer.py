"""Recognising what answers at an address where no beanstalkd does: TLS, HTTP, or no TLS."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace

from beanstalkd_py.admin.address import Address

PROBE_TIMEOUT_S = 1.0
"""At most."""
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""How an alert and a handshake of TLS begin."""
_HTTP = (b"HTTP/", b"<!DOCTYPE", b"<html", b"<HTML")


def recognise(address: Address, reply: bytes) -> str | None:
    """What a reply says about who has sent it, as a message; None: nothing is known."""
    if reply.startswith(_TLS_RECORDS):
        return _speaks_tls(address)
    if reply.startswith(_HTTP):
        return f"{address} is no beanstalkd: it speaks HTTP; give the address of -l and -p"
    return None


def probe(address: Address, timeout_s: float) -> str | None:
    """Connects anew and says why a conversation failed; None: nothing is known."""
    timeout_s = min(timeout_s, PROBE_TIMEOUT_S)
    if address.path:
        return None
    if address.tls:
        reply = _reply_to(address, b"list-tube-used\r\n", timeout_s)
        if reply.startswith(b"USING "):
            return f"{address} does not speak TLS; give --addr {replace(address, tls=False)}"
        return recognise(address, reply) if reply.startswith(_HTTP) else None
    if _takes_tls(address, timeout_s):
        return _speaks_tls(address)
    return recognise(address, _reply_to(address, b"GET / HTTP/1.0\r\n\r\n", timeout_s))


def probe_plain(address: Address, timeout_s: float) -> str | None:
    """As probe, for commands that find a control socket by the port of plain clients."""
    timeout_s = min(timeout_s, PROBE_TIMEOUT_S)
    if address.path:
        return None
    plain = replace(address, tls=False)
    if _takes_tls(plain, timeout_s):
        return f"{plain} speaks TLS; give the address of -l and -p"
    return recognise(plain, _reply_to(plain, b"GET / HTTP/1.0\r\n\r\n", timeout_s))


def _speaks_tls(address: Address) -> str:
    return f"{address} speaks TLS; give --addr {replace(address, tls=True)}"


def _takes_tls(address: Address, timeout_s: float) -> bool:
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
    """The first bytes that come back."""
    with contextlib.suppress(OSError, UnicodeError):
        place = (address.host, address.port)
        with socket.create_connection(place, timeout=timeout_s) as connection:
            connection.sendall(data)
            return connection.recv(64)
    return b""
