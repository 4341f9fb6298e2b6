"""One connection to a server: single commands through greenstalk, many at once through `ask`.

greenstalk sends a command and waits for its reply. `ask` sends many before it reads the first
reply, for looks at every tube or at thousands of ids. Both read from the same socket; that goes
well because each has read all that is due before it returns.

Knows what a reply looks like, and nothing of what commands are for.
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
from beanstalkd_py.admin.foreign_peer import probe, recognise
from beanstalkd_py.admin.tls_options import Trust

MOST_AHEAD = 512
"""So many commands are sent before their replies are read."""
MOST_AHEAD_BYTES = 1 << 16
"""And so many bytes of them. This fits into the buffers of a socket, so sending never waits for a
server that waits for us to read."""
PUTS_AHEAD_BYTES = 1 << 22
"""For puts, which have short replies: the server goes on reading whatever we do."""
LONGEST_LINE = 1024

_WITH_BODY = (b"OK", b"FOUND", b"RESERVED")
_WORDS = {kind: word.decode() for word, kind in greenstalk.ERROR_RESPONSES.items()}
_REASONS = {
    "BAD_FORMAT": "the server does not understand a value of this command",
    "BURIED": "the server is out of memory and buried the job",
    "DRAINING": "the server takes no new jobs; wait until it has restarted, or use another",
    "INTERNAL_ERROR": "the server failed at this; its log may say why",
    "JOB_TOO_BIG": "the job is larger than the server takes; see max-job-size in its stats",
    "NOT_FOUND": "there is no such job",
    "OUT_OF_MEMORY": "the server has no room for this job, in memory or on disk",
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
        """Itself, if this is its word; else raises RefusedError."""
        if self.word != word:
            raise refused(self.word.decode(errors="replace"))
        return self


NOT_FOUND = Reply(b"NOT_FOUND")


def refused(word: str, subject: str = "") -> errors.RefusedError:
    """The error for a reply that says no, as a sentence about the subject."""
    reason = _REASONS.get(word, "the server refused")
    return errors.RefusedError(word, f"{subject}: {reason} ({word})".removeprefix(": "))


class Connection:
    """A connected socket. `client` has single commands; `connect` turns their errors into ours."""

    def __init__(self, connected: socket.socket, address: Address, timeout_s: float) -> None:
        self._address = address
        self._socket = connected
        self._timeout_s = timeout_s
        self._reader = cast(io.BufferedReader, connected.makefile("rb", 1 << 18))
        self.client: greenstalk.Client[bytes] = greenstalk.Client(connected, encoding=None)

    def close(self) -> None:
        """Close it; what it has reserved is then ready again."""
        self._reader.close()
        self.client.close()

    def be_patient(self, seconds: float | None) -> None:
        """A reply may take so long beyond the usual from now on; None is for ever."""
        self._socket.settimeout(None if seconds is None else seconds + self._timeout_s)

    def ask(self, commands: Sequence[bytes], ahead_bytes: int = MOST_AHEAD_BYTES) -> list[Reply]:
        """Send commands (no line ends; a put has its body after a CR LF), return all replies."""
        replies: list[Reply] = []
        for batch in _batches(commands, ahead_bytes):
            self.send(b"".join(command + b"\r\n" for command in batch))
            replies += [self._reply() for _ in batch]
        return replies

    def ask_one(self, command: bytes) -> Reply:
        """One command, one reply."""
        return self.ask([command])[0]

    def send(self, data: bytes) -> None:
        """Whole commands with their line ends; `lines` has the replies, in this order."""
        # sendall() would count its timeout over all of the data, however well it goes on.
        rest = memoryview(data)
        while rest:
            rest = rest[self._socket.send(rest[: 1 << 20]) :]

    def lines(self, count: int) -> Iterator[bytes]:
        """So many replies that have no body, with their line ends, as they come.

        All of them are to be taken from this one iterator: it is ahead of who takes them.
        """
        while count:
            there = self._reader.peek()
            lines = there[: there.rfind(b"\n") + 1].splitlines(keepends=True)[:count]
            if lines:
                self._reader.read(sum(map(len, lines)))
            else:
                lines = [self._line()]
            count -= len(lines)
            yield from lines

    def _line(self) -> bytes:
        line = self._reader.readline(LONGEST_LINE)
        if not line.endswith(b"\r\n"):
            if len(line) == LONGEST_LINE or recognise(self._address, line):
                raise self._strange(line)
            raise _cut_off()
        return line

    def _reply(self) -> Reply:
        line = self._line()
        if line == b"NOT_FOUND\r\n":
            return NOT_FOUND
        word, *values = line.split() or [b""]
        if word not in _WITH_BODY:
            return Reply(word, tuple(values))
        if not values or not values[-1].isdigit():
            raise self._strange(line)
        size = int(values[-1])
        body = self._reader.read(size + 2)
        if len(body) != size + 2:
            raise _cut_off()
        return Reply(word, tuple(values), body[:size])

    def _strange(self, line: bytes) -> errors.NoConnectionError:
        return _no_beanstalkd(self._address, line)


def _cut_off() -> ConnectionError:
    return ConnectionError("the server closed the connection")


def _no_beanstalkd(address: Address, line: bytes) -> errors.NoConnectionError:
    if known := recognise(address, line):
        return errors.NoConnectionError(known)
    return errors.NoConnectionError(f"{address} is no beanstalkd: it answered {line[:60]!r}")


def _batches(commands: Iterable[bytes], ahead_bytes: int) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for command in commands:
        if batch and (len(batch) == MOST_AHEAD or size + len(command) > ahead_bytes):
            yield batch
            batch, size = [], 0
        batch.append(command)
        size += len(command) + 2
    if batch:
        yield batch


@contextlib.contextmanager
def connect(address: Address, timeout_s: float, trust: Trust | None = None) -> Iterator[Connection]:
    """A connection to a server that has answered once; `trust` is for TLS.

    `timeout_s` is for connecting and for each silence of the server. Raises NoConnectionError, also
    when the connection is lost inside the `with` block, and RefusedError where greenstalk says no.
    """
    with contextlib.ExitStack() as stack:
        with in_our_words(address, timeout_s):
            opened = _open(address, timeout_s)
        with _foreign_peers_named(address, timeout_s), in_our_words(address, timeout_s):
            if address.tls:
                opened = _with_tls(opened, address, trust or Trust())
            connection = Connection(opened, address, timeout_s)
            stack.callback(connection.close)
            greeting = connection.ask_one(b"list-tube-used")
        if greeting != Reply(b"USING", (b"default",)):
            raise _no_beanstalkd(address, b" ".join((greeting.word, *greeting.values)))
        # Who loses the connection from here on cannot know what became of the last command.
        with in_our_words(address, timeout_s, "; what was asked last may have been done or not"):
            yield connection


@contextlib.contextmanager
def _foreign_peers_named(address: Address, timeout_s: float) -> Iterator[None]:
    """A server that was reached and does not answer may be none of ours."""
    try:
        yield
    except errors.NoConnectionError as error:
        import ssl

        # Without a cause there was a reply, which the message quotes.
        silent = error.__cause__ is not None
        untrusted = isinstance(error.__cause__, ssl.SSLCertVerificationError)
        if silent and not untrusted and (known := probe(address, timeout_s)):
            raise errors.NoConnectionError(known) from error
        raise


def open_socket(address: Address, timeout_s: float) -> socket.socket:
    """A connected socket, the caller's. Raises NoConnectionError."""
    with in_our_words(address, timeout_s):
        return _open(address, timeout_s)


def _open(address: Address, timeout_s: float) -> socket.socket:
    if address.path:
        return _open_unix(address.path, timeout_s)
    try:
        opened = socket.create_connection((address.host, address.port), timeout=timeout_s)
        # Half a batch must not wait for the acknowledgement of the other half.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    except (socket.gaierror, UnicodeError) as error:
        text = f"no address is known for {address.host}; give --addr HOST:PORT"
        raise errors.NoConnectionError(text) from error
    except (ConnectionRefusedError, FileNotFoundError) as error:
        raise _nobody_there(str(address)) from error
    return opened


def _with_tls(opened: socket.socket, address: Address, trust: Trust) -> socket.socket:
    import ssl

    try:
        return trust.context().wrap_socket(opened, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        opened.close()
        raise errors.NoConnectionError(
            f"{address}: its certificate is not trusted: {error.verify_message};"
            " --tls-ca FILE names whom to trust"
        ) from error
    except ssl.SSLError as error:
        opened.close()
        raise errors.NoConnectionError(f"{address} does not speak TLS: {error.reason}") from error
    except BaseException:
        opened.close()
        raise


def _open_unix(path: str, timeout_s: float) -> socket.socket:
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.settimeout(timeout_s)
        opened.connect(path)
    except (ConnectionRefusedError, FileNotFoundError) as error:
        opened.close()
        raise _nobody_there(f"unix:{path}") from error
    except BaseException:
        opened.close()
        raise
    return opened


def _nobody_there(address: str) -> errors.NoConnectionError:
    return errors.NoConnectionError(
        f"no server at {address}; start one, or give --addr HOST:PORT or unix:PATH"
    )


@contextlib.contextmanager
def in_our_words(address: Address, timeout_s: float, consequence: str = "") -> Iterator[None]:
    """What goes wrong on a connection inside the block, as NoConnectionError or RefusedError."""
    try:
        yield
    except greenstalk.UnknownResponseError as error:
        raise _no_beanstalkd(address, error.status) from error
    except greenstalk.Error as error:
        raise refused(_WORDS.get(type(error), type(error).__name__)) from error
    except TimeoutError as error:
        text = f"{address} does not answer within {timeout_s:g} s; give a longer --timeout"
        raise errors.NoConnectionError(f"{text}{consequence}") from error
    except (OSError, AssertionError) as error:
        # greenstalk asserts that a line it reads is whole: it is not when the server has gone.
        why = getattr(error, "strerror", None) or str(error)
        if isinstance(error, AssertionError) or why == "Unexpected EOF":
            why = str(_cut_off())
        raise errors.NoConnectionError(f"{address}: {why}{consequence}") from error
