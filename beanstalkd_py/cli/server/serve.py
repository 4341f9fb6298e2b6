"""`beanstalkd-py serve`: all options of C beanstalkd, with long names, and further ones."""

from __future__ import annotations

import re
import socket
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_types import AUTO, ArgumentType, Number, NumberOrAuto
from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.options import (
    complete_file,
    count_option,
    file_option,
    folder_option,
    option,
)
from beanstalkd_py.cli.output import VERSION_TEXT, notice
from beanstalkd_py.cli.server import policy_settings, schedule_settings
from beanstalkd_py.cli.server.config_layers import WORDS, LayeredCommand
from beanstalkd_py.cli.server.console_options import check_console_options, console_options
from beanstalkd_py.cli.server.serve_options import (
    check_history_options,
    check_limit_options,
    check_replication_options,
    check_tls_options,
    history_options,
    limit_options,
    replication_options,
)
from beanstalkd_py.quantities import INT64_MAX
from beanstalkd_py.server import options
from beanstalkd_py.server.accept.addresses import parse_endpoint
from beanstalkd_py.server.options import LOG_FORMATS, TEXT

NS_PER_MS = 1_000_000
NEVER = "never"

_COLOCATE = re.compile(rf"[-A-Za-z0-9+/;.$_()]{{1,{options.MAX_COLOCATE_BYTES}}}")


class _Milliseconds(Number):
    """Milliseconds, as nanoseconds."""

    name = "ms"

    def __init__(self) -> None:
        super().__init__("a number of milliseconds", maximum=INT64_MAX // NS_PER_MS)

    def parse(self, text: str) -> int:
        return super().parse(text) * NS_PER_MS


class _Separator(ArgumentType):
    name = "sep"

    def parse(self, text: str) -> bytes:
        if _COLOCATE.fullmatch(text):
            return text.encode()
        raise ValueError(
            f"invalid separator {text!r}; use 1 to {options.MAX_COLOCATE_BYTES} letters, digits or"
            " - + / ; . $ _ ( )"
        )


def _warn_ignored(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        notice(f"option {param.opts[0]} is ignored; the binlog is always compacted continuously")


def _sync_interval(ctx: click.Context, value: str | None) -> int:
    """Return nanoseconds. -f and -F set one parameter; the last one wins, as in C beanstalkd."""
    if value is None:
        return options.SYNC_EACH
    if value == NEVER:
        return options.SYNC_NEVER
    param = next(param for param in ctx.command.params if "-f" in param.opts)
    interval_ns: int = _Milliseconds().convert(value, param, ctx)
    return interval_ns


def _limit_max_job_size(ctx: click.Context, param: click.Parameter, value: int) -> int:
    if value <= options.MAX_JOB_SIZE_LIMIT:
        return value
    notice(f"option -z: lowered to {options.MAX_JOB_SIZE_LIMIT}, the maximum")
    return options.MAX_JOB_SIZE_LIMIT


def _check_metrics(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            parse_endpoint(value, param.opts[0])
        except errors.UsageError as error:
            raise click.UsageError(str(error), ctx) from error
    return value


_ignored = partial(
    option,
    text="Ignored; for C beanstalkd.",
    is_flag=True,
    callback=_warn_ignored,
    expose_value=False,
)


@click.command(cls=LayeredCommand, context_settings=CONTEXT)
@folder_option("-b --binlog-dir", "Store jobs in this folder.  [default: in memory only]")
@option(
    "-f --fsync-ms sync",
    "Sync at most once every MS milliseconds; 0 (the default) syncs before each reply.",
    metavar="MS",
)
@option("-F --no-fsync sync", "Never sync.", flag_value=NEVER)
@option(
    "-l --listen",
    "Listen on this address, host name or unix:PATH.",
    metavar="ADDR",
    default=options.DEFAULT_LISTEN,
)
@option(
    "-p --port",
    "Listen on this TCP port.",
    Number("a port number", maximum=65535),
    metavar="PORT",
    default=options.DEFAULT_PORT,
)
@option("-u --user", "Switch to this user after opening the sockets.", metavar="USER")
@count_option(
    "-z --max-job-size",
    f"Maximum size of a job; at most {options.MAX_JOB_SIZE_LIMIT}.",
    "bytes",
    maximum=10**40,
    metavar="BYTES",
    default=options.DEFAULT_MAX_JOB_SIZE,
    callback=_limit_max_job_size,
)
@count_option(
    "-s --file-size",
    "Size of a binlog file; files for larger jobs are larger.",
    "bytes",
    minimum=1,
    metavar="BYTES",
    default=options.DEFAULT_FILE_SIZE,
)
@_ignored("-c compact")
@_ignored("-n no_compact")
@option(
    "--workers",
    "Number of worker processes that share the tubes. auto keeps the number of the binlog"
    " folder; a new folder gets one worker per usable processor, or a single one with fewer"
    f" than {options.FEW_PROCESSORS} processors.",
    NumberOrAuto(
        "a number of workers", options.AUTO_WORKERS, minimum=1, maximum=options.MAX_WORKERS
    ),
    default=AUTO,
)
@option(
    "--colocate", "Assign tubes whose names are equal up to SEP to the same worker.", _Separator()
)
@option(
    "--control",
    "Path of the control socket; none disables it.",
    metavar="PATH",
    shell_complete=complete_file,
)
@history_options
@replication_options
@limit_options
@option(
    "--metrics",
    "Serve Prometheus metrics on HOST:PORT, [IPV6]:PORT or unix:PATH.",
    metavar="ADDR",
    callback=_check_metrics,
)
@count_option(
    "--metrics-tubes",
    "Number of tubes with metrics of their own: those with the most jobs or traffic.",
    "tubes",
    maximum=options.MAX_METRICS_TUBES,
    default=options.DEFAULT_METRICS_TUBES,
)
@option("--console", "Serve the web console for this server.", metavar="HOST:PORT")
@console_options("console-")
@option(
    f"{policy_settings.OPTION} policies",
    kind=policy_settings.PoliciesType(),
    hidden=True,
    default=(),
)
@option(
    f"{schedule_settings.OPTION} schedules",
    kind=schedule_settings.SchedulesType(),
    hidden=True,
    default=(),
)
@file_option(
    "--config",
    "Read options from this TOML file; command line and environment take precedence.",
    expose_value=False,
)
@option(
    "-V --verbose verbosity",
    "Also log connections; -VV also logs commands and replies.",
    count=True,
)
@option("--log-format", "Format of log lines.", click.Choice(LOG_FORMATS), default=TEXT)
@option(
    "--slow-log slow_ns",
    "Log commands whose reply takes at least MS milliseconds; 0 (the default) logs none.",
    _Milliseconds(),
)
@click.version_option(None, "-v", "--version", message=VERSION_TEXT)
@click.pass_context
def serve(ctx: click.Context, /, **_settings: Any) -> int:
    """Run the server.

    Accepts all options of C beanstalkd. Options can also be set in a file (--config), as
    max-job-size = 1000, and in the environment, as BEANSTALKD_PY_MAX_JOB_SIZE=1000.

    Signals: SIGTERM and SIGINT stop the server, SIGUSR1 drains it (it rejects new jobs), SIGHUP
    reloads its options.

    \b
    Exit statuses: 0    stopped by a signal
                   5    invalid option or value
                   10   binlog folder missing or locked
                   74   binlog cannot be written
                   111  address cannot be bound
    """
    from beanstalkd_py.server.parent.start import serve as serve_with

    return serve_with(serve_options(ctx), partial(read_again, list(ctx.meta[WORDS])))


def serve_options(ctx: click.Context) -> options.ServeOptions:
    """Return the options of a context of `serve`. Raises click's errors."""
    check_tls_options(ctx.params)
    check_history_options(ctx.params)
    check_limit_options(ctx.params)
    check_replication_options(ctx.params)
    check_console_options(ctx.params)
    try:
        schedule_settings.check_bodies(ctx.params["schedules"], ctx.params["max_job_size"])
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    settings = {name: value for name, value in ctx.params.items() if value is not None}
    if "replicate" in settings and "replicate_address" not in settings:
        settings["replicate_address"] = f"{socket.gethostname()}:{settings['port']}"
    sources = {ctx.get_parameter_source(name) for name in ("listen", "port")}
    return options.ServeOptions(
        address_given=ParameterSource.COMMANDLINE in sources,
        sync_interval_ns=_sync_interval(ctx, settings.pop("sync", None)),
        **settings,
    )


def read_again(words: list[str]) -> options.ServeOptions:
    """Read the options again with the same command line. Raises UsageError."""
    try:
        return serve_options(serve.make_context("serve", list(words)))
    except click.ClickException as error:
        raise errors.UsageError(error.format_message()) from error
