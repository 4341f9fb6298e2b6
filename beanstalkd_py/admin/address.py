"""Server addresses as users write them: HOST:PORT, tls://HOST:PORT or unix:PATH."""

from __future__ import annotations

from dataclasses import dataclass

from beanstalkd_py import errors

DEFAULT_ADDRESS = "127.0.0.1:11300"
DEFAULT_PORT = 11300
_UNIX = "unix:"
_TLS = "tls://"


@dataclass(frozen=True)
class Address:
    """Either a host and a TCP port, with or without TLS, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""
    tls: bool = False

    def __str__(self) -> str:
        if self.path:
            return f"{_UNIX}{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_TLS if self.tls else ''}{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse [tls://]HOST[:PORT], [tls://][IPV6]:PORT or unix:PATH; the default port is 11300.

    Raises ToolUsageError.
    """
    if text.startswith(_UNIX):
        path = text.removeprefix(_UNIX)
        if not path:
            raise _invalid(text, "the path after unix: is missing")
        return Address(path=path)
    host, port = _split(text.removeprefix(_TLS))
    if not host:
        raise _invalid(text, "the host is missing")
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise _invalid(text, f"invalid port number {port!r}")
    return Address(host=host, port=int(port), tls=text.startswith(_TLS))


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":") or str(DEFAULT_PORT)
    if text.count(":") > 1:
        # A bare IPv6 address has no port.
        return text, str(DEFAULT_PORT)
    host, colon, port = text.partition(":")
    return host, port if colon else str(DEFAULT_PORT)


def _invalid(text: str, reason: str) -> errors.ToolUsageError:
    return errors.ToolUsageError(
        f"address {text!r}: {reason}; use HOST:PORT, tls://HOST:PORT or unix:PATH"
    )
