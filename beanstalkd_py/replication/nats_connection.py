"""A connection to NATS: the first attempts, TLS and credentials.

Corrects the client of nats-py 2.16, which

- repeats the first connection without an end, also after errors that do not go away,
- connects without TLS to a server that does not require it, also to tls://,
- waits 30 s for the end of TLS before it leaves a server that does not answer, and without an end
  after a handshake that failed.
"""

from __future__ import annotations

import logging
import re
import ssl
from pathlib import Path
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from beanstalkd_py import errors
from beanstalkd_py.replication.target import Target

CONNECT_S = 2
RECONNECT_S = 0.25
PING_S = 1
MOST_PINGS = 3

_JWT = re.compile(rb"BEGIN NATS USER JWT-+\r?\n\S+")
_SEED = re.compile(rb"BEGIN USER NKEY SEED-+\n(\S+)\n")


class _GivenUpError(Exception):
    """All servers have failed once."""


class _NoTlsError(nats.errors.Error):
    """The server does not require TLS, so the client would not use it."""


async def connect(target: Target, credentials: str | None, ca: str | None) -> Client:
    """Connect to one of the servers, and reconnect from then on.

    Raises ReplicationError if all of them refuse it or cannot be trusted, and an error of NATS if
    one of them may accept it later.
    """
    tls = None if ca is None else _context(ca)
    if credentials is not None:
        _check_credentials(Path(credentials))
    logging.getLogger("asyncio").addFilter(_is_relevant)
    needs_tls = ca is not None or target.servers[0].startswith("tls:")
    client, attempts = _Client(needs_tls), _Attempts(len(target.servers))
    try:
        await client.connect(
            list(target.servers),
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_S,  # type: ignore[arg-type]
            connect_timeout=CONNECT_S,
            ping_interval=PING_S,
            max_outstanding_pings=MOST_PINGS,
            user_credentials=credentials,
            tls=tls,
            error_cb=attempts.failed,
        )
    except _GivenUpError as error:
        await client.close()
        raise attempts.reason(target) from error
    attempts.is_connected = True
    return client


class _Transport(TcpTransport):
    """Closes a connection at once. Nothing is lost, because all requests wait for their replies."""

    def __bool__(self) -> bool:
        return True  # or the client replaces it

    def close(self) -> None:
        if self._io_writer is not None:
            self._io_writer.transport.abort()

    async def wait_closed(self) -> None: ...


class _Client(Client):
    def __init__(self, needs_tls: bool) -> None:
        super().__init__()
        self._needs_tls = needs_tls
        self._transport = _Transport()  # type: ignore[no-untyped-call]

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Read what a server sends first, also after a reconnect."""
        if self._needs_tls and initial_connection and not info.get("tls_required"):
            raise _NoTlsError
        await super()._process_info(info, initial_connection)


class _Attempts:
    """The errors of the first connection to each of `count` servers."""

    def __init__(self, count: int) -> None:
        self.is_connected = False
        self._count = count
        self._failures: list[Exception] = []

    async def failed(self, error: Exception) -> None:
        """Take an error of the client. Raises _GivenUpError, which ends the attempts."""
        if self.is_connected:
            return  # it shows in the calls
        self._failures.append(error)
        if len(self._failures) >= self._count:
            raise _GivenUpError

    def reason(self, target: Target) -> Exception:
        refusals = [text for text in map(_refusal, self._failures) if text]
        if len(refusals) == len(self._failures):
            return errors.ReplicationError(refusals[-1])
        last = self._failures[-1]
        text = refusals[-1] if refusals else str(last) or type(last).__name__
        return nats.errors.Error(f"cannot connect to {target}: {text}")


def _refusal(error: Exception) -> str:
    """Return why a server cannot be used, empty if that may be different later."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of NATS is not trusted: {error.verify_message}"
    if isinstance(error, _NoTlsError):
        return "NATS does not require TLS, but the target or the CA does"
    text = str(error).removeprefix("nats: ").strip("'")
    if text.startswith(("Authorization", "User Authentication", "Account Authentication")):
        return f"NATS refuses the credentials: {text}"
    return ""


def _is_relevant(record: logging.LogRecord) -> bool:
    """Leave out a message about the protocol that nats-py uses for TLS."""
    return not record.getMessage().startswith("returning true from eof_received()")


def _context(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        text = f"cannot read CAs from {ca}: {error.strerror or error}"
        raise errors.ReplicationError(text) from error


def _check_credentials(path: Path) -> None:
    """Raise ReplicationError if nats-py cannot use the file; it would read without an end."""
    try:
        import nkeys
    except ImportError as error:
        text = "credentials require nkeys; run pip install 'beanstalkd_py[replication]'"
        raise errors.ReplicationError(text) from error
    try:
        data = path.read_bytes()
    except OSError as error:
        text = f"cannot read credentials {path}: {error.strerror}"
        raise errors.ReplicationError(text) from error
    seed = _SEED.search(data)
    try:
        if _JWT.search(data) is None or seed is None:
            raise ValueError("the user's JWT or seed is missing")
        nkeys.from_seed(bytearray(seed[1]))
    except (ValueError, nkeys.NkeysError) as error:
        text = f"{path} has no valid credentials: {error or type(error).__name__}"
        raise errors.ReplicationError(text) from error
