"""Options of `serve` that protect the server: limits, timeouts, allowed networks, and TLS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_type import ArgumentType
from beanstalkd_py.cli.number_arguments import Bytes, Limit, Timeout
from beanstalkd_py.cli.path_completion import file_option
from beanstalkd_py.server import options


class NetworksType(ArgumentType):
    """Networks separated by commas, in canonical form."""

    name = "networks"

    def parse(self, text: str) -> tuple[str, ...]:
        from beanstalkd_py.server.accept.networks import parse_networks

        try:
            return parse_networks(text)
        except errors.UsageError as error:
            raise ValueError(str(error)) from error


_OPTIONS = (
    click.option(
        "--max-connections",
        metavar="N",
        type=Limit("a number of connections", maximum=2**31 - 1),
        default=0,
        help="Maximum number of connections; further ones are closed.",
    ),
    click.option(
        "--max-memory",
        metavar="BYTES",
        type=Bytes(),
        default=0,
        help="Reply OUT_OF_MEMORY to puts when all jobs use this much memory; 512M, 4G.",
    ),
    click.option(
        "--max-tubes",
        metavar="N",
        type=Limit("a number of tubes"),
        default=0,
        help="Maximum number of tubes; use and watch of a new one get OUT_OF_MEMORY.",
    ),
    click.option(
        "--idle-timeout",
        metavar="SECONDS",
        type=Timeout(),
        default=0,
        help="Close a connection that is idle this long, has reserved no job and waits for none.",
    ),
    click.option(
        "--send-timeout",
        metavar="SECONDS",
        type=Timeout(),
        default=0,
        help="Close a connection that pauses this long within a command.",
    ),
    click.option(
        "--output-timeout",
        metavar="SECONDS",
        type=Timeout(),
        default=0,
        help="Close a connection that reads no replies for this long.",
    ),
    click.option(
        "--output-limit",
        metavar="BYTES",
        type=Bytes(options.LEAST_OUTPUT_LIMIT),
        default=options.DEFAULT_OUTPUT_LIMIT,
        show_default=True,
        help="Stop executing commands of a connection with this many bytes of unread replies.",
    ),
    click.option(
        "--allow",
        metavar="CIDR",
        type=NetworksType(),
        multiple=True,
        help="Accept connections only from this network; may be repeated. Unix sockets are always"
        " allowed.",
    ),
    click.option(
        "--tls-listen", metavar="HOST:PORT", help="Also listen on this address for TLS clients."
    ),
    file_option("--tls-cert", help="Server certificate with its chain; PEM."),
    file_option("--tls-key", help="Key of the server certificate; PEM."),
    file_option("--tls-ca", help="Require client certificates signed by these CAs; PEM."),
)


def add_limit_options(command: Any) -> Any:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def with_limits(base: options.ServeOptions, given: Mapping[str, Any]) -> options.ServeOptions:
    """Return `base` with the limits of a context. Raises UsageError."""
    _check_tls(given)
    return replace(
        base,
        max_connections=given["max_connections"],
        max_memory=given["max_memory"],
        max_tubes=given["max_tubes"],
        idle_timeout_ns=given["idle_timeout"],
        send_timeout_ns=given["send_timeout"],
        output_timeout_ns=given["output_timeout"],
        output_limit=given["output_limit"],
        allow=tuple(dict.fromkeys(network for some in given["allow"] for network in some)),
        tls_listen=given["tls_listen"],
        tls_cert=given["tls_cert"],
        tls_key=given["tls_key"],
        tls_ca=given["tls_ca"],
    )


def _check_tls(given: Mapping[str, Any]) -> None:
    from beanstalkd_py.server.accept.addresses import parse_host_port

    if given["tls_listen"] is None:
        for name in ("tls_cert", "tls_key", "tls_ca"):
            if given[name] is not None:
                raise click.UsageError(f"option {_long(name)} requires --tls-listen HOST:PORT")
        return
    try:
        parse_host_port(given["tls_listen"], "--tls-listen")
    except errors.UsageError as error:
        raise click.UsageError(str(error)) from error
    for name in ("tls_cert", "tls_key"):
        if given[name] is None:
            raise click.UsageError(f"option --tls-listen requires {_long(name)} FILE")


def _long(name: str) -> str:
    return f"--{name.replace('_', '-')}"
