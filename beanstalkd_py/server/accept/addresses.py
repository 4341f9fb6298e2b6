"""Parses listening addresses. Opens no socket and resolves no name."""

from __future__ import annotations

from dataclasses import dataclass

from beanstalkd_py import errors

UNIX_PREFIX = "unix:"
UNIX_PATH_MAX = 107
"""Bytes that fit into sockaddr_un.sun_path with the terminating zero."""
PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class InetAddress:
    """A host name or address, and a TCP port; the kernel chooses a port for 0."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The path of a Unix socket."""

    path: str

    def __str__(self) -> str:
        return f"{UNIX_PREFIX}{self.path}"


Address = InetAddress | UnixAddress


def parse_address(listen: str, port: int) -> Address:
    """Parse -l and -p. Raises UsageError."""
    if listen.startswith(UNIX_PREFIX):
        return _parse_unix(listen.removeprefix(UNIX_PREFIX))
    host = listen
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host:
        raise errors.UsageError("option -l: the address is empty; give one, such as 127.0.0.1")
    return InetAddress(host, port)


def parse_endpoint(text: str, option: str) -> Address:
    """Parse HOST:PORT, [IPV6]:PORT or unix:PATH. Raises UsageError."""
    if text.startswith(UNIX_PREFIX):
        return _parse_unix(text.removeprefix(UNIX_PREFIX), option)
    return parse_host_port(text, option)


def parse_host_port(text: str, option: str) -> InetAddress:
    """Parse HOST:PORT or [IPV6]:PORT. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or (":" in bare and bare == host) or not _is_port(port):
        raise errors.UsageError(
            f"option {option}: {text!r} is not an address; give HOST:PORT, such as"
            " 127.0.0.1:11380 or [::1]:11380"
        )
    return InetAddress(bare, int(port))


def _is_port(text: str) -> bool:
    short = len(text) <= len(str(PORT_MAX))
    return short and text.isascii() and text.isdigit() and int(text) <= PORT_MAX


def _parse_unix(path: str, option: str = "-l") -> UnixAddress:
    if not path:
        raise errors.UsageError(f"option {option}: no path after 'unix:'; give unix:PATH")
    if len(path.encode()) > UNIX_PATH_MAX:
        raise errors.UsageError(
            f"option {option}: the socket path is longer than {UNIX_PATH_MAX} bytes: {path!r}"
        )
    return UnixAddress(path)
