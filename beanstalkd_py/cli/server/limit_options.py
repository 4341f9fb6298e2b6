"""Options of `serve` that protect it: limits, timeouts, who may connect, and TLS.

Here is what they are on a command line; what they do is the server's affair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.number_arguments import Bytes, Limit, Timeout
from beanstalkd_py.cli.path_completion import complete_file
from beanstalkd_py.server import options


class NetworksType(click.ParamType):  # type: ignore[type-arg]
    """Networks, separated by commas."""

    name = "networks"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Their usual forms; fails as click's types do."""
        if isinstance(value, tuple):
            return value
        from beanstalkd_py.server.accept.networks import parse_networks

        try:
            return parse_networks(str(value))
        except errors.UsageError as error:
            self.fail(str(error), param, ctx)


_GUARDS = (
    click.option(
        "--max-connections",
        metavar="N",
        type=Limit("a number of connections", maximum=2**31 - 1),
        default=0,
        help="Close further connections at once.",
    ),
    click.option(
        "--max-memory",
        metavar="BYTES",
        type=Bytes(),
        default=0,
        help="Answer puts with OUT_OF_MEMORY when all jobs take so much; 512M, 4G.",
    ),
    click.option(
        "--max-tubes",
        metavar="N",
        type=Limit("a number of tubes"),
        default=0,
        help="Answer use and watch of a further tube with OUT_OF_MEMORY.",
    ),
    click.option(
        "--idle-timeout",
        metavar="SECONDS",
        type=Timeout(),
        default=0,
        help="Close a connection that is silent so long, holds no job and waits for none.",
    ),
    click.option(
        "--send-timeout",
        metavar="SECONDS",
        type=Timeout(),
        default=0,
        help="Close a connection that stops so long within a command.",
    ),
    click.option(
        "--output-timeout",
        metavar="SECONDS",
        type=Timeout(),
        default=0,
        help="Close a connection that takes no replies for so long.",
    ),
    click.option(
        "--output-limit",
        metavar="BYTES",
        type=Bytes(least=options.LEAST_OUTPUT_LIMIT),
        default=options.DEFAULT_OUTPUT_LIMIT,
        show_default=True,
        help="Execute no more commands of a connection while it leaves so much of replies untaken.",
    ),
    click.option(
        "--allow",
        metavar="CIDR",
        type=NetworksType(),
        multiple=True,
        help="Only from this network; may be repeated. Unix sockets are always allowed.",
    ),
    click.option(
        "--tls-listen", metavar="HOST:PORT", help="Listen there as well, for clients with TLS."
    ),
    click.option(
        "--tls-cert",
        metavar="FILE",
        shell_complete=complete_file,
        help="The certificate, with its chain; PEM.",
    ),
    click.option(
        "--tls-key",
        metavar="FILE",
        shell_complete=complete_file,
        help="The certificate's key; PEM.",
    ),
    click.option(
        "--tls-ca",
        metavar="FILE",
        shell_complete=complete_file,
        help="Ask TLS clients for certificates, signed by these; PEM.",
    ),
)


def guarded(command: Any) -> Any:
    """Adds the options to a command."""
    for option in reversed(_GUARDS):
        command = option(command)
    return command


def guards(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ServeOptions for what a context of such a command has. Raises UsageError."""
    found = {
        "max_connections": given["max_connections"],
        "max_memory": given["max_memory"],
        "max_tubes": given["max_tubes"],
        "idle_timeout_ns": given["idle_timeout"],
        "send_timeout_ns": given["send_timeout"],
        "output_timeout_ns": given["output_timeout"],
        "output_limit": given["output_limit"],
        "allow": _each_once(network for some in given["allow"] for network in some),
        **{name: given[name] for name in ("tls_listen", "tls_cert", "tls_key", "tls_ca")},
    }
    _check_tls(found)
    return found


def _each_once(networks: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(networks))


def _check_tls(found: Mapping[str, Any]) -> None:
    from beanstalkd_py.server.accept.addresses import parse_host_port

    needed = ("tls_cert", "tls_key")
    if found["tls_listen"] is None:
        for name in (*needed, "tls_ca"):
            if found[name] is not None:
                raise click.UsageError(f"option {_long(name)} needs --tls-listen HOST:PORT, too")
        return
    try:
        parse_host_port(found["tls_listen"], "--tls-listen")
    except errors.UsageError as error:
        raise click.UsageError(str(error)) from error
    for name in needed:
        if found[name] is None:
            raise click.UsageError(f"option --tls-listen needs {_long(name)} FILE, too")


def _long(name: str) -> str:
    return f"--{name.replace('_', '-')}"
