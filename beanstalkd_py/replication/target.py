"""The value of --replicate: nats://HOST[:PORT][,HOST[:PORT]...]/NAME."""

from __future__ import annotations

import re
from dataclasses import dataclass

from beanstalkd_py import errors

SCHEMES = ("nats", "tls")
DEFAULT_PORT = 4222

_URL = re.compile(r"(nats|tls)://([^/\s]+)/([A-Za-z0-9_-]{1,32})")
_ENDPOINT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Target:
    """The servers of the log, as URLs, and the name of the replicated queue there."""

    servers: tuple[str, ...]
    name: str

    @property
    def bucket(self) -> str:
        return f"beanstalkd-{self.name}"

    def __str__(self) -> str:
        return ", ".join(server.partition("//")[2] for server in self.servers)

    def signal(self, name: str) -> str:
        return f"bs.{self.name}.{name}"

    def stream(self, worker: int) -> str:
        return f"beanstalkd-{self.name}-{worker}"

    def subject(self, worker: int) -> str:
        return f"bs.{self.name}.{worker}"  # each message has it


def parse_target(text: str) -> Target:
    """Parse the option's value. Raises UsageError."""
    match = _URL.fullmatch(text)
    if match is None:
        raise errors.UsageError(
            f"invalid target {text!r}; use nats://HOST[:PORT],HOST[:PORT],.../NAME, with a NAME of"
            " 1 to 32 letters, digits, - or _"
        )
    scheme, hosts, name = match.groups()
    return Target(tuple(_server(scheme, endpoint) for endpoint in hosts.split(",")), name)


def _server(scheme: str, endpoint: str) -> str:
    match = _ENDPOINT.fullmatch(endpoint)
    port = int(match[2] or DEFAULT_PORT) if match is not None else 0
    if match is None or not 0 < port < 65536:
        raise errors.UsageError(f"invalid server {endpoint!r}; use HOST or HOST:PORT")
    return f"{scheme}://{match[1]}:{port}"
