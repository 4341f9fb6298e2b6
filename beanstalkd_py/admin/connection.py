"""One connection to a server: single commands by greenstalk, pipelines by `execute_all`.

greenstalk sends a command and waits for its reply. `execute_all` sends many commands before it
reads the first reply, for example to inspect all tubes or thousands of ids. Both use the same
socket, and read all of their replies before they return.
"""

from __future__ import annotations

import contextlib
import io
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import greenstalk

from beanstalkd_py import errors
from beanstalkd_py.admin.address import Address
from beanstalkd_py.admin.foreign_peer import identify, probe
from beanstalkd_py.admin.tls_options import TlsOptions

MAX_PIPELINED = 512
"""Commands sent before their replies are read."""
MAX_PIPELINED_BYTES = 1 << 16
"""Bytes of these commands. They fit into the socket's buffers; otherwise this side and the server
could each wait until the other reads."""
MAX_PIPELINED_PUT_BYTES = 1 << 22
"""The limit for puts. Their replies are short, so that the server never stops reading."""
MAX_LINE_BYTES = 1024

_WITH_BODY = (b"OK", b"FOUND", b"RESERVED")
_WORDS = {kind: word.decode() for word, kind in greenstalk.ERROR_RESPONSES.items()}
_REASONS = {
    "BAD_FORMAT": "the server rejected an argument of this command",
    "BURIED": "the server is out of memory and buried the job",
    "DRAINING": "the server accepts no new jobs; retry after its restart, or use another server",
    "INTERNAL_ERROR": "internal error of the server; see the server's log",
    "JOB_TOO_BIG": "the job exceeds max-job-size; see the server's stats",
    "NOT_FOUND": "no such job",
    "OUT_OF_MEMORY": "the server has no space for this job, in memory or on disk",
    "TIMED_OUT": "no job became ready in time",
    "UNKNOWN_COMMAND": "this server is too old for this command",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply's first word, the words after it, and its body."""

    word: bytes
    values: tuple[bytes, ...] = ()
    body: bytes = b""

    def expect(self, word: bytes) -> Reply:
        """Return self if its word is `word`; otherwise raise RefusedError."""
        if self.word != word:
            raise refusal_error(self.word.decode(errors="replace"))
        return self


NOT_FOUND = Reply(b"NOT_FOUND")


def refusal_error(word: str, subject: str = "") -> errors.RefusedError:
    """Return the error for a negative reply; `subject` is the object of the command."""
    reason = _REASONS.get(word, "the server refused")
    return errors.RefusedError(word, f"{subject}: {reason} ({word})".removeprefix(": "))


class Connection:
    """A connected socket. `client` sends single commands; `connect` translates its errors."""

    def __init__(self, connected: socket.socket, address: Address, timeout_s: float) -> None:
        self._address = address
        self._socket = connected
        self._timeout_s = timeout_s
        self._reader = cast(io.BufferedReader, connected.makefile("rb", 1 << 18))
        self.client: greenstalk.Client[bytes] = greenstalk.Client(connected, encoding=None)

    def close(self) -> None:
        """Close the connection, which makes its reserved jobs ready again."""
        self._reader.close()
        self.client.close()

    def extend_timeout(self, seconds: float | None) -> None:
        """Wait for replies `seconds` longer than usual from now on; None waits forever."""
        self._socket.settimeout(None if seconds is None else seconds + self._timeout_s)

    def execute_all(
        self, commands: Sequence[bytes], max_bytes: int = MAX_PIPELINED_BYTES
    ) -> list[Reply]:
        """Send commands in pipelines and return all replies.

        A command has no line end; a put has its body after a CR LF.
        """
        replies: list[Reply] = []
        for batch in _batches(commands, max_bytes):
            self.send(b"".join(command + b"\r\n" for command in batch))
            replies += [self._read_reply() for _ in batch]
        return replies

    def execute(self, command: bytes) -> Reply:
        return self.execute_all([command])[0]

    def send(self, data: bytes) -> None:
        """Send complete commands with their line ends; `read_replies` returns their replies."""
        # sendall() would apply the timeout to the whole data, even if the server reads steadily.
        rest = memoryview(data)
        while rest:
            rest = rest[self._socket.send(rest[: 1 << 20]) :]

    def read_replies(self, count: int) -> Iterator[bytes]:
        """Yield `count` replies without bodies, with their line ends; the caller must take all."""
        while count:
            buffered = self._reader.peek()
            lines = buffered[: buffered.rfind(b"\n") + 1].splitlines(keepends=True)[:count]
            if lines:
                self._reader.read(sum(map(len, lines)))
            else:
                lines = [self._read_line()]
            count -= len(lines)
            yield from lines

    def _read_line(self) -> bytes:
        line = self._reader.readline(MAX_LINE_BYTES)
        if not line.endswith(b"\r\n"):
            if len(line) == MAX_LINE_BYTES or identify(self._address, line):
                raise _not_beanstalkd(self._address, line)
            raise _connection_closed()
        return line

    def _read_reply(self) -> Reply:
        line = self._read_line()
        if line == b"NOT_FOUND\r\n":
            return NOT_FOUND
        word, *values = line.split() or [b""]
        if word not in _WITH_BODY:
            return Reply(word, tuple(values))
        if not values or not values[-1].isdigit():
            raise _not_beanstalkd(self._address, line)
        size = int(values[-1])
        body = self._reader.read(size + 2)
        if len(body) != size + 2:
            raise _connection_closed()
        return Reply(word, tuple(values), body[:size])


def _connection_closed() -> ConnectionError:
    return ConnectionError("the server closed the connection")


def _not_beanstalkd(address: Address, line: bytes) -> errors.NoConnectionError:
    text = identify(address, line) or f"{address} is not a beanstalkd: it replied {line[:60]!r}"
    return errors.NoConnectionError(text)


def _batches(commands: Iterable[bytes], max_bytes: int) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for command in commands:
        if batch and (len(batch) == MAX_PIPELINED or size + len(command) > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(command)
        size += len(command) + 2
    if batch:
        yield batch


@contextlib.contextmanager
def connect(
    address: Address, timeout_s: float, tls_options: TlsOptions | None = None
) -> Iterator[Connection]:
    """Connect to a server and check that it is a beanstalkd.

    `timeout_s` applies to connecting and to each reply. Raises RefusedError for a negative reply to
    greenstalk, and NoConnectionError, also if the connection is lost inside the `with` block.
    """
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_socket(address, timeout_s))
        with _identify_foreign_peer(address, timeout_s), translate_errors(address, timeout_s):
            if address.tls:
                opened = _with_tls(opened, address, tls_options or TlsOptions())
            connection = Connection(opened, address, timeout_s)
            stack.callback(connection.close)
            greeting = connection.execute(b"list-tube-used")
        if greeting != Reply(b"USING", (b"default",)):
            raise _not_beanstalkd(address, b" ".join((greeting.word, *greeting.values)))
        with translate_errors(address, timeout_s, "; the last command may have been executed"):
            yield connection


@contextlib.contextmanager
def _identify_foreign_peer(address: Address, timeout_s: float) -> Iterator[None]:
    """Add the protocol of a server that accepts a connection and does not reply to the error."""
    try:
        yield
    except errors.NoConnectionError as error:
        import ssl

        # An error without a cause quotes a reply, so that no probe is necessary.
        has_reply = error.__cause__ is None
        untrusted = isinstance(error.__cause__, ssl.SSLCertVerificationError)
        if not has_reply and not untrusted and (text := probe(address, timeout_s)):
            raise errors.NoConnectionError(text) from error
        raise


def open_socket(address: Address, timeout_s: float) -> socket.socket:
    """Return a connected socket. Raises NoConnectionError."""
    with translate_errors(address, timeout_s):
        try:
            if address.path:
                return _open_unix(address.path, timeout_s)
            opened = socket.create_connection((address.host, address.port), timeout=timeout_s)
            # Without Nagle's algorithm, half a batch does not wait until the other is acknowledged.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except (socket.gaierror, UnicodeError) as error:
            text = f"cannot resolve host {address.host}; use --addr HOST:PORT"
            raise errors.NoConnectionError(text) from error
        except (ConnectionRefusedError, FileNotFoundError) as error:
            text = f"no server at {address}; start one, or use --addr HOST:PORT or unix:PATH"
            raise errors.NoConnectionError(text) from error
        return opened


def _with_tls(opened: socket.socket, address: Address, tls_options: TlsOptions) -> socket.socket:
    import ssl

    try:
        return tls_options.context().wrap_socket(opened, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        raise errors.NoConnectionError(
            f"{address}: certificate not trusted: {error.verify_message};"
            " use --tls-ca FILE to name the CA"
        ) from error
    except ssl.SSLError as error:
        raise errors.NoConnectionError(f"{address} does not speak TLS: {error.reason}") from error


def _open_unix(path: str, timeout_s: float) -> socket.socket:
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.settimeout(timeout_s)
        opened.connect(path)
    except BaseException:
        opened.close()
        raise
    return opened


@contextlib.contextmanager
def translate_errors(address: Address, timeout_s: float, consequence: str = "") -> Iterator[None]:
    """Convert errors of sockets and greenstalk to NoConnectionError or RefusedError."""
    try:
        yield
    except greenstalk.UnknownResponseError as error:
        raise _not_beanstalkd(address, error.status) from error
    except greenstalk.Error as error:
        raise refusal_error(_WORDS.get(type(error), type(error).__name__)) from error
    except TimeoutError as error:
        text = f"{address} does not reply within {timeout_s:g} s; use a longer --timeout"
        raise errors.NoConnectionError(f"{text}{consequence}") from error
    except (OSError, AssertionError) as error:
        # greenstalk asserts that a line is complete, which fails if the server has gone.
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, AssertionError) or reason == "Unexpected EOF":
            reason = str(_connection_closed())
        raise errors.NoConnectionError(f"{address}: {reason}{consequence}") from error
