"""Options of `serve` for the history, limits, timeouts, allowed networks, and TLS."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_types import (
    AUTO,
    ArgumentType,
    Bytes,
    Duration,
    Limit,
    Number,
    NumberOrAuto,
    Timeout,
)
from beanstalkd_py.cli.options import file_option, folder_option, in_order, option
from beanstalkd_py.server import options

MIN_BACKLOG = 1 << 20


class NetworksType(ArgumentType):
    """Networks separated by commas, in canonical form."""

    name = "cidr"

    def parse(self, text: str) -> tuple[str, ...]:
        from beanstalkd_py.server.accept.networks import parse_networks

        try:
            return parse_networks(text)
        except errors.UsageError as error:
            raise ValueError(str(error)) from error


def _distinct(
    ctx: click.Context, param: click.Parameter, lists: tuple[tuple[str, ...], ...]
) -> tuple[str, ...]:
    return tuple(dict.fromkeys(network for networks in lists for network in networks))


limit_options = in_order(
    option(
        "--max-connections",
        "Maximum number of connections; further ones are closed.",
        Limit("a number of connections", maximum=2**31 - 1),
    ),
    option(
        "--max-memory",
        "Reply OUT_OF_MEMORY to puts when all jobs use this much memory; 512M, 4G.",
        Bytes(),
    ),
    option(
        "--body-memory",
        "Keep job bodies of this size in memory, and read others back from the binlog; 512M, 4G.",
        Bytes(),
    ),
    option(
        "--max-tubes",
        "Maximum number of tubes; use and watch of a new one get OUT_OF_MEMORY.",
        Limit("a number of tubes"),
    ),
    option(
        "--idle-timeout idle_timeout_ns",
        "Close a connection that is idle this long, has reserved no job and waits for none.",
        Timeout(),
    ),
    option(
        "--send-timeout send_timeout_ns",
        "Close a connection that pauses this long within a command.",
        Timeout(),
    ),
    option(
        "--output-timeout output_timeout_ns",
        "Close a connection that reads no replies for this long.",
        Timeout(),
    ),
    option(
        "--output-limit",
        "Stop executing commands of a connection with this many bytes of unread replies.",
        Bytes(options.MIN_OUTPUT_LIMIT),
        default=options.DEFAULT_OUTPUT_LIMIT,
    ),
    option(
        "--allow",
        "Accept connections only from this network; may be repeated. Unix sockets are always"
        " allowed.",
        NetworksType(),
        callback=_distinct,
        multiple=True,
    ),
    option("--tls-listen", "Also listen on this address for TLS clients.", metavar="HOST:PORT"),
    file_option("--tls-cert", "Server certificate with its chain; PEM."),
    file_option("--tls-key", "Key of the server certificate; PEM."),
    file_option("--tls-ca", "Require client certificates signed by these CAs; PEM."),
    option(
        "--tls-processes",
        "Number of processes for TLS. auto starts one per two usable processors, or a single"
        f" one with fewer than {options.FEW_PROCESSORS} processors.",
        NumberOrAuto(
            "a number of processes",
            options.AUTO_TLS_PROCESSES,
            minimum=1,
            maximum=options.MAX_TLS_PROCESSES,
        ),
        default=AUTO,
    ),
)


def check_limit_options(params: Mapping[str, Any]) -> None:
    """Raise UsageError if a limit of a context requires another option."""
    if params["body_memory"] and params["binlog_dir"] is None:
        raise click.UsageError("option --body-memory requires a binlog; use -b DIR")


def check_tls_options(params: Mapping[str, Any]) -> None:
    """Raise UsageError if TLS options of a context require others."""
    from beanstalkd_py.server.accept.addresses import parse_host_port

    if params["tls_listen"] is None:
        for name in ("cert", "key", "ca", "processes"):
            if params[f"tls_{name}"]:
                raise click.UsageError(f"option --tls-{name} requires --tls-listen HOST:PORT")
        return
    try:
        parse_host_port(params["tls_listen"], "--tls-listen")
    except errors.UsageError as error:
        raise click.UsageError(str(error)) from error
    for name in ("cert", "key"):
        if params[f"tls_{name}"] is None:
            raise click.UsageError(f"option --tls-listen requires --tls-{name} FILE")


history_options = in_order(
    folder_option(
        "--history", "Store finished jobs in this folder, in the format of Apache RocketMQ."
    ),
    option(
        "--history-age history_age_ns",
        "Remove jobs from the history this long after their end; 12h, 30d.",
        Duration(),
    ),
    option(
        "--history-size",
        "Remove the oldest jobs when the log of the history has this size; 500M, 20G.",
        Bytes(),
    ),
    option(
        "--history-backlog",
        "Drop the oldest jobs when this much of the binlog waits for the archiver.",
        Bytes(MIN_BACKLOG),
        default=options.DEFAULT_HISTORY_BACKLOG,
    ),
    option(
        "--history-sizes",
        "File sizes of a new history: small, or those of a RocketMQ broker.",
        click.Choice(options.HISTORY_SIZES),
        default=options.SMALL_SIZES,
    ),
)


def check_history_options(params: Mapping[str, Any]) -> None:
    """Raise UsageError if history options of a context require or exclude others."""
    from pathlib import Path

    history, binlog_dir = params["history"], params["binlog_dir"]
    if history is None:
        for name, value in (("age", params["history_age_ns"]), ("size", params["history_size"])):
            if value:
                raise click.UsageError(f"option --history-{name} requires --history DIR")
    elif binlog_dir is None:
        raise click.UsageError("option --history requires a binlog; use -b DIR")
    elif Path(history).resolve() == Path(binlog_dir).resolve():
        raise click.UsageError("-b and --history are the same folder; use two folders")


replication_options = in_order(
    option(
        "--replicate",
        "Store the binlog in NATS JetStream before each reply, and take over from another server.",
        metavar="nats://HOST,.../NAME",
    ),
    option(
        "--replicate-address",
        "Where clients and other servers reach this one.  [default: the host's name and -p]",
        metavar="HOST:PORT",
    ),
    option(
        "--replicate-lease replicate_lease_ns",
        "How long a primary may be silent before another server takes over; 12s.",
        Duration(),
        default="12s",
    ),
    option(
        "--replicate-timeout replicate_timeout_ns",
        "Close waiting connections and reject puts when NATS does not reply for this long; 2s, 5s.",
        Duration(),
    ),
    option(
        "--replicate-keep replicate_keep_ns",
        "How long NATS keeps what a server that does not run still needs for its history; 5m.",
        Duration(),
        default="5m",
    ),
    option(
        "--replicate-copies",
        "Number of NATS servers that have a copy of a new stream.",
        Number("a number of copies", minimum=1, maximum=options.MAX_COPIES),
        default=options.DEFAULT_COPIES,
    ),
    file_option("--replicate-creds", "Credentials for NATS, a file of nsc."),
    file_option("--replicate-tls-ca", "Trust NATS servers with certificates of these CAs; PEM."),
)


def check_replication_options(params: Mapping[str, Any]) -> None:
    """Raise UsageError if replication options of a context require or exclude others."""
    from beanstalkd_py.replication.target import parse_target
    from beanstalkd_py.server.accept.addresses import parse_host_port

    if params["replicate"] is None:
        for name in ("address", "creds", "tls_ca", "timeout_ns"):
            if params[f"replicate_{name}"] not in (None, 0):
                flag = f"--replicate-{name.removesuffix('_ns').replace('_', '-')}"
                raise click.UsageError(f"option {flag} requires --replicate nats://HOST,.../NAME")
        return
    if find_spec("nats") is None:
        text = "option --replicate requires nats-py; run pip install 'beanstalkd_py[replication]'"
        raise click.UsageError(text)
    if params["binlog_dir"] is None:
        raise click.UsageError("option --replicate requires a binlog; use -b DIR")
    if params["sync"] not in (None, "0"):
        raise click.UsageError("option --replicate syncs before each reply; omit -f and -F")
    if params["replicate_lease_ns"] < options.MIN_LEASE_NS:
        raise click.UsageError("option --replicate-lease: the shortest lease is 4s")
    try:
        parse_target(params["replicate"])
        if params["replicate_address"] is not None:
            parse_host_port(params["replicate_address"], "--replicate-address")
    except errors.UsageError as error:
        raise click.UsageError(str(error)) from error
