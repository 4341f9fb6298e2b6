"""`beanstalkd-py serve`: C beanstalkd's options, letter for letter, and long names besides."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from beanstalkd_py import PROTOCOL_VERSION, __version__
from beanstalkd_py.cli.numbers import INT64_MAX, Number, NumberOrAuto
from beanstalkd_py.server import options

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


def _named(ctx: click.Context, letter: str) -> click.Parameter:
    return next(param for param in ctx.command.params if letter in param.opts)


def _tell(text: str) -> None:
    click.echo(f"beanstalkd-py: {text}", err=True)


def _option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    return click.option(*names, **{"metavar": None, **settings})


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@_option("-b", "--binlog-dir", metavar="DIR", help="Keep the binlog in this folder.")
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
    type=Number("a number of bytes", minimum=1, maximum=INT64_MAX - options.FILE_SIZE_UNIT),
    default=options.DEFAULT_FILE_SIZE,
    show_default=True,
    help="Size of one binlog file, rounded up to a multiple of 4096.",
)
@_option("-c", "compact", is_flag=True, callback=_tell_ignored, help="Ignored; C has it.")
@_option("-n", "no_compact", is_flag=True, callback=_tell_ignored, help="Ignored; C has it.")
@_option(
    *("--workers",),
    metavar="N",
    type=NumberOrAuto(
        "a number of workers", options.usable_workers, minimum=1, maximum=options.MAX_WORKERS
    ),
    default=options.DEFAULT_WORKERS,
    show_default=True,
    help="Divide the tubes among N processes; auto is one for each usable processor.",
)
@_option(
    *("--colocate",),
    metavar="SEP",
    callback=_colocate,
    help="Keep tubes whose names are the same up to SEP in one worker.",
)
@_option("-V", "--verbose", "verbosity", count=True, help="Say more; -VV says most.")
@click.version_option(
    None,
    "-v",
    "--version",
    message=f"beanstalkd_py {__version__} (beanstalkd {PROTOCOL_VERSION})",
)
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    binlog_dir: str | None,
    sync: str | None,
    listen: _Seen,
    port: _Seen,
    user: str | None,
    max_job_size: int,
    file_size: int,
    workers: int,
    colocate: bytes | None,
    verbosity: int,
    **_ignored: bool,
) -> int:
    """Run the server, with C beanstalkd's options.

    It leaves with 0 after SIGTERM or SIGINT, 5 for a wrong option or value, 10 if the binlog
    folder is missing or locked, 74 if the binlog cannot be written, 111 if the address cannot be
    bound. SIGUSR1 makes it refuse new jobs.
    """
    from beanstalkd_py.server.start import serve as serve_with

    return serve_with(
        options.ServeOptions(
            listen=listen.value,
            port=port.value,
            address_given=listen.given or port.given,
            binlog_dir=binlog_dir,
            file_size=options.round_file_size(file_size),
            sync_interval_ns=_sync_interval(ctx, sync),
            max_job_size=max_job_size,
            user=user,
            verbosity=verbosity,
            workers=workers,
            colocate=colocate,
        )
    )
