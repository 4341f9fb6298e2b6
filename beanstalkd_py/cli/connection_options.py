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
from beanstalkd_py.cli.argument_type import ArgumentType
from beanstalkd_py.cli.number_arguments import MAX_S, parse_float
from beanstalkd_py.cli.path_completion import complete_file, file_option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from beanstalkd_py.admin.connection import Connection

DEFAULT_TIMEOUT_S = 10.0
COMPLETION_TIMEOUT_S = 0.3
ADDRESS_VARIABLE = "BEANSTALKD_ADDR"

CONTEXT = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class Server:
    """The server that the options name."""

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
    name = "address"

    def parse(self, text: str) -> Address:
        try:
            return parse_address(text)
        except errors.ToolUsageError as error:
            raise ValueError(str(error)) from error


class Seconds(ArgumentType):
    """A positive number of seconds, or 0 if `zero_allowed`."""

    name = "seconds"

    def __init__(self, zero_allowed: bool = False) -> None:
        self._zero_allowed = zero_allowed

    def parse(self, text: str) -> float:
        seconds = parse_float(text)
        if 0 < seconds <= MAX_S or (self._zero_allowed and seconds == 0):
            return seconds
        raise ValueError(f"invalid number of seconds {text!r}; use a number above 0")


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


def _tls_option(name: str, text: str) -> Callable[[Any], Any]:
    variable = f"BEANSTALKD_TLS_{name.upper()}"
    return file_option(f"--tls-{name}", envvar=variable, show_envvar=True, help=text)


CONTROL_OPTION = click.option(
    "--control",
    metavar="PATH",
    shell_complete=complete_file,
    envvar="BEANSTALKD_CONTROL",
    show_envvar=True,
    help="Control socket of the server.  [default: found by the port of --addr]",
)


def server_options(*, waits: bool = False, json: str = "") -> Callable[[Any], Any]:
    """Add --addr, --timeout, --json and --tls-...; the command gets `server` and `as_json`.

    --connect-timeout is another name of --timeout, and its only name in a command that `waits` for
    something else. `json` is the help of --json; a command without it has no --json.
    """
    timeout_names = ["--connect-timeout"] if waits else ["--timeout", "--connect-timeout"]

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

        options = [
            click.option(
                "--addr",
                metavar="HOST:PORT",
                type=AddressType(),
                default=DEFAULT_ADDRESS,
                envvar=ADDRESS_VARIABLE,
                show_default=True,
                show_envvar=True,
                is_eager=True,
                help="Server address: HOST:PORT, tls://HOST:PORT or unix:PATH.",
            ),
            click.option(
                *timeout_names,
                "timeout_s",
                metavar="SECONDS",
                type=Seconds(),
                default=DEFAULT_TIMEOUT_S,
                show_default=True,
                help="Timeout for connecting and for each reply.",
            ),
            _tls_option("ca", "Trust only servers with certificates signed by these CAs."),
            _tls_option("cert", "Client certificate, if the server requires one."),
            _tls_option("key", "Key of the client certificate, if in a separate file."),
        ]
        if json:
            options.append(click.option("--json", "as_json", is_flag=True, help=json))
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
