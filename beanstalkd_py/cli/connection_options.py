"""Options of every command that talks to a server: its address, timeouts, TLS, and --json.

Imports the client only when `Server.connect` is called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.admin.address import DEFAULT_ADDRESS, Address, parse_address
from beanstalkd_py.admin.tls_options import TlsOptions
from beanstalkd_py.admin.tube_name import TUBE_NAMES, is_tube_name
from beanstalkd_py.cli.argument_types import ArgumentType, Seconds
from beanstalkd_py.cli.options import Decorator, complete_file, file_option, in_order, option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from beanstalkd_py.admin.connection import Connection

DEFAULT_TIMEOUT_S = 10.0
COMPLETION_TIMEOUT_S = 0.3
ADDRESS_VARIABLE = "BEANSTALKD_ADDR"

CONTEXT = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class Server:
    address: Address
    timeout_s: float
    tls_options: TlsOptions

    @contextlib.contextmanager
    def connect(self) -> Iterator[Connection]:
        """Open a connection. Raises NoConnectionError, RefusedError."""
        from beanstalkd_py.admin.connection import connect

        with connect(self.address, self.timeout_s, self.tls_options) as connection:
            yield connection


class AddressType(ArgumentType):
    name = "host:port"

    def parse(self, text: str) -> Address:
        try:
            return parse_address(text)
        except errors.ToolUsageError as error:
            raise ValueError(str(error)) from error


class TubeType(ArgumentType):
    """A tube's name, completed with the server's tubes."""

    name = "tube"

    def parse(self, text: str) -> str:
        if not is_tube_name(text):
            raise ValueError(f"invalid tube name {text!r}; use {TUBE_NAMES}")
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """Return the server's tubes with this prefix; none if it does not reply in time."""
        from click.shell_completion import CompletionItem

        from beanstalkd_py.admin.connection import connect
        from beanstalkd_py.admin.statistics import tube_names

        address = ctx.params.get("addr") or parse_address(DEFAULT_ADDRESS)
        with (
            contextlib.suppress(errors.BeanstalkdError),
            connect(address, COMPLETION_TIMEOUT_S) as connection,
        ):
            names = [name for name in tube_names(connection) if name.startswith(incomplete)]
            return [CompletionItem(name) for name in names]
        return []


def _tls_option(name: str, text: str) -> Decorator:
    variable = f"BEANSTALKD_TLS_{name.upper()}"
    return file_option(f"--tls-{name}", text, envvar=variable, show_envvar=True)


CONTROL_OPTION = option(
    "--control",
    "Control socket of the server.  [default: found by the port of --addr]",
    metavar="PATH",
    shell_complete=complete_file,
    envvar="BEANSTALKD_CONTROL",
    show_envvar=True,
)


_ADDRESS_OPTION = option(
    "--addr",
    "Server address: HOST:PORT, tls://HOST:PORT or unix:PATH.",
    AddressType(),
    default=DEFAULT_ADDRESS,
    envvar=ADDRESS_VARIABLE,
    show_envvar=True,
    is_eager=True,
)
_TLS_OPTIONS = (
    _tls_option("ca", "Trust only servers with certificates signed by these CAs."),
    _tls_option("cert", "Client certificate, if the server requires one."),
    _tls_option("key", "Key of the client certificate, if in a separate file."),
)


def server_options(*, waits: bool = False, json: str = "") -> Decorator:
    """Add --addr, --timeout, --json and --tls-...; the command gets `server` and `as_json`.

    --connect-timeout is another name of --timeout, and its only name in a command that `waits` for
    something else. `json` is the help of --json; a command without it has no --json.
    """
    timeout = option(
        f"{'' if waits else '--timeout '}--connect-timeout timeout_s",
        "Timeout for connecting and for each reply.",
        Seconds(),
        default=DEFAULT_TIMEOUT_S,
    )
    options = [_ADDRESS_OPTION, timeout, *_TLS_OPTIONS]
    if json:
        options.append(option("--json as_json", json, is_flag=True))

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(
            *args: Any,
            addr: Address,
            timeout_s: float,
            tls_ca: str | None,
            tls_cert: str | None,
            tls_key: str | None,
            **settings: Any,
        ) -> Any:
            server = Server(addr, timeout_s, TlsOptions(tls_ca, tls_cert, tls_key))
            return function(*args, server=server, **settings)

        decorated: Callable[..., Any] = in_order(*options)(command)
        return decorated

    return decorate
