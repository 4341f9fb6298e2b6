"""`beanstalkd-py serve`: all options of C beanstalkd, with long names, and further ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import click

from beanstalkd_py import PROTOCOL_VERSION, __version__, errors
from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.number_arguments import AUTO, INT64_MAX, Number, NumberOrAuto
from beanstalkd_py.cli.output import notice
from beanstalkd_py.cli.path_completion import complete_file, file_option, folder_option
from beanstalkd_py.cli.server.config_layers import WORDS, LayeredCommand
from beanstalkd_py.cli.server.history_options import add_history_options, with_history
from beanstalkd_py.cli.server.limit_options import add_limit_options, with_limits
from beanstalkd_py.server import options
from beanstalkd_py.server.accept.addresses import parse_endpoint
from beanstalkd_py.server.options import LOG_FORMATS, TEXT

NS_PER_MS = 1_000_000
NEVER = "never"

_COLOCATE = re.compile(rf"[-A-Za-z0-9+/;.$_()]{{1,{options.MAX_COLOCATE_BYTES}}}")
_MILLISECONDS = Number("a number of milliseconds", maximum=INT64_MAX // NS_PER_MS)


class _Sourced(NamedTuple):
    """A value, and whether the command line sets it."""

    value: Any
    is_given: bool


def _with_source(ctx: click.Context, param: click.Parameter, value: Any) -> _Sourced:
    source = ctx.get_parameter_source(param.name or "")
    return _Sourced(value, source is not None and source.name == "COMMANDLINE")


def _warn_ignored(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    if value:
        notice(f"option {param.opts[0]} is ignored; the binlog is always compacted continuously")
    return value


def _sync_interval(ctx: click.Context, value: str | None) -> int:
    """Return nanoseconds. -f and -F set one parameter; the last one wins, as in C beanstalkd."""
    if value is None:
        return options.SYNC_EACH
    if value == NEVER:
        return options.SYNC_NEVER
    option = next(param for param in ctx.command.params if "-f" in param.opts)
    milliseconds: int = _MILLISECONDS.convert(value, option, ctx)
    return milliseconds * NS_PER_MS


def _max_job_size(ctx: click.Context, param: click.Parameter, value: int) -> int:
    if value <= options.MAX_JOB_SIZE_LIMIT:
        return value
    notice(f"option -z: lowered to {options.MAX_JOB_SIZE_LIMIT}, the maximum")
    return options.MAX_JOB_SIZE_LIMIT


def _colocate(ctx: click.Context, param: click.Parameter, value: str | None) -> bytes | None:
    if value is None:
        return None
    if not _COLOCATE.fullmatch(value):
        raise click.BadParameter(
            f"invalid separator {value!r}; use 1 to {options.MAX_COLOCATE_BYTES} letters, digits or"
            " - + / ; . $ _ ( )",
            ctx,
            param,
        )
    return value.encode()


def _metrics(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            parse_endpoint(value, param.opts[0])
        except errors.UsageError as error:
            raise click.UsageError(str(error), ctx) from error
    return value


def _option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    return click.option(*names, **{"metavar": None, **settings})


@click.command(cls=LayeredCommand, context_settings=CONTEXT)
@folder_option("-b", "--binlog-dir", help="Store jobs in this folder.  [default: in memory only]")
@_option(
    *("-f", "--fsync-ms", "sync"),
    metavar="MS",
    help="Sync at most once every MS milliseconds; 0 (the default) syncs before each reply.",
)
@_option("-F", "--no-fsync", "sync", flag_value=NEVER, help="Never sync.")
@_option(
    *("-l", "--listen"),
    metavar="ADDR",
    default=options.DEFAULT_LISTEN,
    show_default=True,
    callback=_with_source,
    help="Listen on this address, host name or unix:PATH.",
)
@_option(
    *("-p", "--port"),
    metavar="PORT",
    type=Number("a port number", maximum=65535),
    default=options.DEFAULT_PORT,
    show_default=True,
    callback=_with_source,
    help="Listen on this TCP port.",
)
@_option("-u", "--user", metavar="USER", help="Switch to this user after opening the sockets.")
@_option(
    *("-z", "--max-job-size"),
    metavar="BYTES",
    type=Number("a number of bytes", maximum=10**40),
    default=options.DEFAULT_MAX_JOB_SIZE,
    show_default=True,
    callback=_max_job_size,
    help=f"Maximum size of a job; at most {options.MAX_JOB_SIZE_LIMIT}.",
)
@_option(
    *("-s", "--file-size"),
    metavar="BYTES",
    type=Number("a number of bytes", minimum=1, maximum=INT64_MAX),
    default=options.DEFAULT_FILE_SIZE,
    show_default=True,
    help="Size of a binlog file; files for larger jobs are larger.",
)
@_option("-c", "compact", is_flag=True, callback=_warn_ignored, help="Ignored; for C beanstalkd.")
@_option(
    "-n", "no_compact", is_flag=True, callback=_warn_ignored, help="Ignored; for C beanstalkd."
)
@_option(
    *("--workers",),
    metavar="N",
    type=NumberOrAuto(
        "a number of workers", options.AUTO_WORKERS, minimum=1, maximum=options.MAX_WORKERS
    ),
    default=AUTO,
    show_default=True,
    help=(
        "Number of worker processes that share the tubes. auto keeps the number of the binlog"
        " folder; a new folder gets one worker per usable processor, or a single one with fewer"
        f" than {options.FEW_PROCESSORS} processors."
    ),
)
@_option(
    *("--colocate",),
    metavar="SEP",
    callback=_colocate,
    help="Assign tubes whose names are equal up to SEP to the same worker.",
)
@_option(
    *("--control",),
    metavar="PATH",
    shell_complete=complete_file,
    help="Path of the control socket; none disables it.",
)
@add_history_options
@add_limit_options
@_option(
    *("--metrics",),
    metavar="ADDR",
    callback=_metrics,
    help="Serve Prometheus metrics on HOST:PORT, [IPV6]:PORT or unix:PATH.",
)
@_option(
    *("--metrics-tubes",),
    metavar="N",
    type=Number("a number of tubes", maximum=options.MAX_METRICS_TUBES),
    default=options.DEFAULT_METRICS_TUBES,
    show_default=True,
    help="Number of tubes with metrics of their own: those with the most jobs or traffic.",
)
@file_option(
    *("--config",),
    help="Read options from this TOML file; command line and environment take precedence.",
)
@_option(
    "-V",
    "--verbose",
    "verbosity",
    count=True,
    help="Also log connections; -VV also logs commands and replies.",
)
@_option(
    *("--log-format",),
    type=click.Choice(LOG_FORMATS),
    default=TEXT,
    show_default=True,
    help="Format of log lines.",
)
@_option(
    *("--slow-log", "slow_ms"),
    metavar="MS",
    type=_MILLISECONDS,
    default=0,
    help="Log commands whose reply takes at least MS milliseconds; 0 (the default) logs none.",
)
@click.version_option(
    None,
    "-v",
    "--version",
    message=f"beanstalkd_py {__version__} (beanstalkd {PROTOCOL_VERSION})",
)
@click.pass_context
def serve(ctx: click.Context, /, **given: Any) -> int:
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
    given = ctx.params
    listen, port = given["listen"], given["port"]
    found = options.ServeOptions(
        listen=listen.value,
        port=port.value,
        address_given=listen.is_given or port.is_given,
        binlog_dir=given["binlog_dir"],
        file_size=given["file_size"],
        sync_interval_ns=_sync_interval(ctx, given["sync"]),
        max_job_size=given["max_job_size"],
        user=given["user"],
        verbosity=given["verbosity"],
        workers=given["workers"],
        colocate=given["colocate"],
        control=given["control"],
        metrics=given["metrics"],
        metrics_tubes=given["metrics_tubes"],
        log_format=given["log_format"],
        slow_ns=given["slow_ms"] * NS_PER_MS,
    )
    return with_history(with_limits(found, given), given)


def read_again(words: list[str]) -> options.ServeOptions:
    """Read the options again with the same command line. Raises UsageError."""
    try:
        return serve_options(serve.make_context("serve", list(words)))
    except click.ClickException as error:
        raise errors.UsageError(error.format_message()) from error
