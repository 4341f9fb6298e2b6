"""`beanstalkd-py serve`: C beanstalkd's options, letter for letter, and long names besides."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import click

from beanstalkd_py import PROTOCOL_VERSION, __version__, errors
from beanstalkd_py.cli.number_arguments import AUTO, INT64_MAX, Number, NumberOrAuto
from beanstalkd_py.cli.path_completion import complete_file, complete_folder
from beanstalkd_py.cli.server.config_layers import WORDS, LayeredCommand
from beanstalkd_py.cli.server.history_options import keeping, kept
from beanstalkd_py.cli.server.limit_options import guarded, guards
from beanstalkd_py.server import options
from beanstalkd_py.server.accept.addresses import parse_endpoint
from beanstalkd_py.server.options import LOG_FORMATS, TEXT

NS_PER_MS = 1_000_000
NEVER = "never"

_COLOCATE = re.compile(rf"[-A-Za-z0-9+/;.$_()]{{1,{options.MAX_COLOCATE_BYTES}}}")
_MILLISECONDS = Number("a number of milliseconds", maximum=INT64_MAX // NS_PER_MS)


class _Seen(NamedTuple):
    """A value, and whether it was asked for rather than taken by default."""

    value: Any
    given: bool


def _note_source(ctx: click.Context, param: click.Parameter, value: Any) -> _Seen:
    source = ctx.get_parameter_source(param.name or "")
    return _Seen(value, source is not None and source.name == "COMMANDLINE")


def _tell_ignored(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    if value:
        _tell(f"option {param.opts[0]} is ignored: the binlog is always compacted as it is written")
    return value


def _sync_interval(ctx: click.Context, value: str | None) -> int:
    """Nanoseconds from what -f and -F share, so that the later of them wins as in C beanstalkd."""
    if value is None:
        return options.SYNC_EACH
    if value == NEVER:
        return options.SYNC_NEVER
    return _MILLISECONDS.convert(value, _named(ctx, "-f"), ctx) * NS_PER_MS


def _max_job_size(ctx: click.Context, param: click.Parameter, value: int) -> int:
    if value <= options.MAX_JOB_SIZE_LIMIT:
        return value
    _tell(f"option -z: the maximum job size is lowered to {options.MAX_JOB_SIZE_LIMIT} bytes")
    return options.MAX_JOB_SIZE_LIMIT


def _colocate(ctx: click.Context, param: click.Parameter, value: str | None) -> bytes | None:
    if value is None:
        return None
    if not _COLOCATE.fullmatch(value):
        raise click.BadParameter(
            f"{value!r} can be in no tube's name; give 1 to {options.MAX_COLOCATE_BYTES} of"
            " letters, digits and - + / ; . $ _ ( )",
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


def _named(ctx: click.Context, letter: str) -> click.Parameter:
    return next(param for param in ctx.command.params if letter in param.opts)


def _tell(text: str) -> None:
    click.echo(f"beanstalkd-py: {text}", err=True)


def _option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    return click.option(*names, **{"metavar": None, **settings})


@click.command(cls=LayeredCommand, context_settings={"help_option_names": ["-h", "--help"]})
@_option(
    "-b",
    "--binlog-dir",
    metavar="DIR",
    shell_complete=complete_folder,
    help="Keep the binlog in this folder.",
)
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
    callback=_note_source,
    help="Listen on this address, host name or unix:PATH.",
)
@_option(
    *("-p", "--port"),
    metavar="PORT",
    type=Number("a port number", maximum=65535),
    default=options.DEFAULT_PORT,
    show_default=True,
    callback=_note_source,
    help="Listen on this TCP port.",
)
@_option("-u", "--user", metavar="USER", help="Become this user once the sockets are open.")
@_option(
    *("-z", "--max-job-size"),
    metavar="BYTES",
    type=Number("a number of bytes", maximum=10**40),
    default=options.DEFAULT_MAX_JOB_SIZE,
    show_default=True,
    callback=_max_job_size,
    help=f"Refuse larger jobs; at most {options.MAX_JOB_SIZE_LIMIT}.",
)
@_option(
    *("-s", "--file-size"),
    metavar="BYTES",
    type=Number("a number of bytes", minimum=1, maximum=INT64_MAX),
    default=options.DEFAULT_FILE_SIZE,
    show_default=True,
    help="Size of one binlog file; a job that needs more gets a larger one.",
)
@_option("-c", "compact", is_flag=True, callback=_tell_ignored, help="Ignored; C has it.")
@_option("-n", "no_compact", is_flag=True, callback=_tell_ignored, help="Ignored; C has it.")
@_option(
    *("--workers",),
    metavar="N",
    type=NumberOrAuto(
        "a number of workers", options.AUTO_WORKERS, minimum=1, maximum=options.MAX_WORKERS
    ),
    default=AUTO,
    show_default=True,
    help=(
        "Divide the tubes among N processes. auto keeps the number that the binlog folder has; a"
        f" new one gets a process per usable processor, but a single one below"
        f" {options.FEW_PROCESSORS} processors."
    ),
)
@_option(
    *("--colocate",),
    metavar="SEP",
    callback=_colocate,
    help="Keep tubes whose names are the same up to SEP in one worker.",
)
@_option(
    *("--control",),
    metavar="PATH",
    shell_complete=complete_file,
    help="Put the control socket there instead of in the usual folder; none: have none.",
)
@keeping
@guarded
@_option(
    *("--metrics",),
    metavar="ADDR",
    callback=_metrics,
    help="Serve metrics for Prometheus on HOST:PORT, [IPV6]:PORT or unix:PATH.",
)
@_option(
    *("--metrics-tubes",),
    metavar="N",
    type=Number("a number of tubes", maximum=options.MAX_METRICS_TUBES),
    default=options.DEFAULT_METRICS_TUBES,
    show_default=True,
    help="Have metrics of their own for N tubes, those with the most jobs or the most traffic.",
)
@_option(
    *("--config",),
    metavar="FILE",
    shell_complete=complete_file,
    help="Read options from this TOML file; those given here or in the environment count more.",
)
@_option(
    "-V",
    "--verbose",
    "verbosity",
    count=True,
    help="Log connections, too; -VV: each command and reply.",
)
@_option(
    *("--log-format",),
    type=click.Choice(LOG_FORMATS),
    default=TEXT,
    show_default=True,
    help="Lines of the log are text, or JSON objects.",
)
@_option(
    *("--slow-log", "slow_ms"),
    metavar="MS",
    type=_MILLISECONDS,
    default=0,
    help="Log commands whose reply takes MS milliseconds or longer; 0 (the default): none.",
)
@click.version_option(
    None,
    "-v",
    "--version",
    message=f"beanstalkd_py {__version__} (beanstalkd {PROTOCOL_VERSION})",
)
@click.pass_context
def serve(ctx: click.Context, /, **given: Any) -> int:
    """Run the server, with C beanstalkd's options.

    Options can also stand in a file (--config), as max-job-size = 1000, and in the environment, as
    BEANSTALKD_PY_MAX_JOB_SIZE=1000.

    It leaves with 0 after SIGTERM or SIGINT, 5 for a wrong option or value, 10 if the binlog
    folder is missing or locked, 74 if the binlog cannot be written, 111 if the address cannot be
    bound. SIGUSR1 makes it refuse new jobs, SIGHUP read its options again.
    """
    from beanstalkd_py.server.parent.start import serve as serve_with

    return serve_with(serve_options(ctx), partial(read_again, list(ctx.meta[WORDS])))


def serve_options(ctx: click.Context) -> options.ServeOptions:
    """What a context of `serve` asks for. Raises click's errors."""
    given = ctx.params
    listen, port = given["listen"], given["port"]
    return options.ServeOptions(
        listen=listen.value,
        port=port.value,
        address_given=listen.given or port.given,
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
        **guards(given),
        **kept(given),
        log_format=given["log_format"],
        slow_ns=given["slow_ms"] * NS_PER_MS,
    )


def read_again(words: list[str]) -> options.ServeOptions:
    """The options as they are now, with the same command line. Raises UsageError."""
    try:
        return serve_options(serve.make_context("serve", list(words)))
    except click.ClickException as error:
        raise errors.UsageError(error.format_message()) from error
