"""What every command that talks to a server takes: where it is, how long to wait, and --json.

Imports no client; `Server.connect` does when it is called.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.admin.address import DEFAULT_ADDRESS, Address, parse_address
from beanstalkd_py.admin.tls_options import Trust
from beanstalkd_py.admin.tube_name import TUBE_NAMES, is_tube_name
from beanstalkd_py.cli.path_completion import complete_file

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from beanstalkd_py.admin.connection import Connection

DEFAULT_TIMEOUT_S = 10.0
COMPLETION_TIMEOUT_S = 0.3
ADDRESS_VARIABLE = "BEANSTALKD_ADDR"
LONGEST_S = 10.0**9

CONTEXT = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class Server:
    """Where a command is to go to."""

    address: Address
    timeout_s: float
    trust: Trust

    @contextlib.contextmanager
    def connect(self) -> Iterator[Connection]:
        """An open connection. Raises NoConnectionError, RefusedError."""
        from beanstalkd_py.admin.connection import connect

        with connect(self.address, self.timeout_s, self.trust) as connection:
            yield connection


class AddressType(click.ParamType):  # type: ignore[type-arg]
    """HOST:PORT, tls://HOST:PORT or unix:PATH."""

    name = "address"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        """The address; fails as click's types do."""
        if isinstance(value, Address):
            return value
        try:
            return parse_address(str(value))
        except errors.ToolUsageError as error:
            self.fail(str(error), param, ctx)


class Seconds(click.ParamType):  # type: ignore[type-arg]
    """A time in seconds, which may have a fraction."""

    name = "seconds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; fails as click's types do."""
        try:
            seconds = float(str(value))
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= LONGEST_S:
            self.fail(f"{value!r} is no number of seconds above 0", param, ctx)
        return seconds


class TubeType(click.ParamType):  # type: ignore[type-arg]
    """A tube's name, completed from what the server has."""

    name = "tube"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The name; fails as click's types do."""
        text = str(value)
        if not is_tube_name(text):
            self.fail(f"{text!r} can be no tube's name; give {TUBE_NAMES}", param, ctx)
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """Tubes of the server that begin so; none if it does not answer soon."""
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
    return click.option(
        f"--tls-{name}",
        metavar="FILE",
        shell_complete=complete_file,
        envvar=variable,
        show_envvar=True,
        help=text,
    )


def on_server(*, waits: bool = False, json: str = "") -> Callable[[Any], Any]:
    """Adds --addr, --timeout, --json and --tls-...; the command gets `server` and `as_json`.

    Everywhere --connect-timeout is --timeout, but in a command that `waits` for something else.
    `json` is the help of --json, if the command has one.
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
            server = Server(addr, timeout_s, Trust(tls_ca, tls_cert, tls_key))
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
                help="The server, HOST:PORT, tls://HOST:PORT or unix:PATH.",
            ),
            click.option(
                *timeout_names,
                "timeout_s",
                metavar="SECONDS",
                type=Seconds(),
                default=DEFAULT_TIMEOUT_S,
                show_default=True,
                help="How long to wait for a connection, and for each answer.",
            ),
        ]
        options += [
            _tls_option("ca", "Trust servers whose certificate one of these has signed."),
            _tls_option("cert", "Our own certificate, if the server asks for one."),
            _tls_option("key", "Its key, if that is in another file."),
        ]
        if json:
            options.append(click.option("--json", "as_json", is_flag=True, help=json))
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
