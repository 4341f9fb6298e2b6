"""Entry point of the command line: finds the command, prints errors, and sets the exit status.

Commands are imported when they are used, so that help and `serve` start quickly.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from beanstalkd_py import __version__, errors
from beanstalkd_py.cli.command_group import CommandGroup, Sections, UnknownCommandError
from beanstalkd_py.cli.output import PROGRAM, VERSION_TEXT, notice
from beanstalkd_py.cli.server.config_layers import ConfigError
from beanstalkd_py.cli.startup import open_standard_descriptors, with_command
from beanstalkd_py.server.process import exit_status

COMMANDS: Sections = {
    "Server": {
        "serve": "beanstalkd_py.cli.server.serve:serve",
        "config": "beanstalkd_py.cli.server.config:config",
        "stats": "beanstalkd_py.cli.server.tubes:stats",
        "top": "beanstalkd_py.cli.top.command:top",
        "workers": "beanstalkd_py.cli.server.administration:workers",
        "conns": "beanstalkd_py.cli.server.administration:conns",
        "drain": "beanstalkd_py.cli.server.administration:drain",
        "reload": "beanstalkd_py.cli.server.administration:reload",
        "policy": "beanstalkd_py.cli.server.policy:policy",
        "schedule": "beanstalkd_py.cli.server.schedule:schedule",
        "cluster": "beanstalkd_py.cli.server.cluster:cluster",
        "console": "beanstalkd_py.cli.server.console:console",
        "console-user": "beanstalkd_py.cli.server.console:console_user",
        "doctor": "beanstalkd_py.cli.server.doctor:doctor",
        "bench": "beanstalkd_py.cli.server.bench:bench",
    },
    "Jobs": {
        "put": "beanstalkd_py.cli.jobs.job_commands:put",
        "reserve": "beanstalkd_py.cli.jobs.job_commands:reserve",
        "peek": "beanstalkd_py.cli.jobs.job_commands:peek",
        "delete": "beanstalkd_py.cli.jobs.job_commands:delete",
        "bury": "beanstalkd_py.cli.jobs.job_commands:bury",
        "kick": "beanstalkd_py.cli.jobs.job_commands:kick",
    },
    "Tubes": {
        "tubes": "beanstalkd_py.cli.server.tubes:tubes",
        "tail": "beanstalkd_py.cli.server.tubes:tail",
        "pause": "beanstalkd_py.cli.server.tubes:pause",
        "move": "beanstalkd_py.cli.jobs.tube_transfer:move",
        "truncate": "beanstalkd_py.cli.jobs.tube_transfer:truncate",
        "export": "beanstalkd_py.cli.jobs.tube_transfer:export",
        "import": "beanstalkd_py.cli.jobs.tube_transfer:import_",
    },
    "Binlog": {
        "binlog": "beanstalkd_py.cli.binlog.group:binlog",
        "compact": "beanstalkd_py.cli.server.administration:compact",
        "backup": "beanstalkd_py.cli.binlog.backup:backup",
    },
    "History": {"history": "beanstalkd_py.cli.history.group:history"},
    "Analysis": {"pipeline": "beanstalkd_py.cli.pipeline.group:pipeline"},
    "Shell": {"completion": "beanstalkd_py.cli.completion:completion"},
}

_NAMES = {name for section in COMMANDS.values() for name in section}

EXIT_READER_GONE = 141
"""The status that a shell shows for SIGPIPE."""

_ADDRESS_OPTIONS = ("-p", "--port", "-l", "--listen", "-H", "--host")
"""Options of `serve` and of other programs for which client commands have --addr."""


class _Program(CommandGroup):
    """All commands; options before a command are those of `serve`, also for completion."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if extra.get("resilient_parsing"):
            args = with_command(args)
        return super().make_context(info_name, args, parent, **extra)


@click.group(cls=_Program, sections=COMMANDS, invoke_without_command=True)
@click.version_option(__version__, message=VERSION_TEXT)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A drop-in replacement for beanstalkd.

    If the first argument is an option, the command is `serve`: `beanstalkd-py -b DIR` is the same
    as `beanstalkd-py serve -b DIR`.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    open_standard_descriptors()
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_run(with_command(words)))


def _run(words: list[str]) -> int:
    try:
        status = cli.main(words, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        is_serve = words[:1] == ["serve"]
        status = exit_status.EXIT_USAGE if is_serve else exit_status.EXIT_TOOL_USAGE
        return _fail(_misplaced(error, words) or _one_line(error), status)
    except errors.ReaderGoneError:
        return EXIT_READER_GONE
    except errors.BeanstalkdError as error:
        return _fail(str(error), exit_status.exit_status(error))
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", exit_status.EXIT_INTERRUPTED)
    return status if isinstance(status, int) else 0


def _misplaced(error: click.ClickException, words: list[str]) -> str:
    """Return a message if options stand before a command; otherwise an empty string."""
    command = next((word for word in words[1:] if word in _NAMES), None)
    if words[:1] != ["serve"] or command is None:
        return ""
    if isinstance(error, click.NoSuchOption):
        problem = f"serve has no option {error.option_name}"
    elif type(error) is click.UsageError:
        problem = "only serve has options before a command"
    else:
        return ""
    return f'{problem}; put options after the command: "{PROGRAM} {command} --addr HOST:PORT"'


def _fail(text: str, status: int) -> int:
    notice(text)
    return status


def _one_line(error: click.ClickException) -> str:
    if isinstance(error, ConfigError | UnknownCommandError) or not isinstance(
        error, click.UsageError
    ):
        return error.message
    command = error.ctx.command_path if error.ctx else PROGRAM
    if isinstance(error, click.NoSuchOption):
        return _unknown_option(error, command)
    return f'{_problem(error)}; see "{command} --help"'


def _problem(error: click.UsageError) -> str:
    match error:
        case click.MissingParameter(param=click.Option() as option):
            return f"missing option {'/'.join(option.opts)}"
        case click.MissingParameter(param=click.Argument() as argument):
            return f"missing argument {argument.human_readable_name}"
        case click.BadParameter(param=click.Option() as option):
            return f"option {'/'.join(option.opts)}: {error.message.rstrip('.')}"
        case click.BadParameter(param=click.Argument() as argument):
            return f"argument {argument.human_readable_name}: {error.message.rstrip('.')}"
        case click.BadOptionUsage():
            return f"option {error.option_name} requires a value"
    text = " ".join(error.format_message().split()).rstrip(".")
    starts_with_name = text[1:2].isupper()  # "FROM and TO are ..."
    return text if starts_with_name else f"{text[:1].lower()}{text[1:]}"


def _unknown_option(error: click.NoSuchOption, command: str) -> str:
    name = error.option_name
    parameters = error.ctx.command.params if error.ctx else []
    rest = f'"{command} --help" lists all options'
    if name in _ADDRESS_OPTIONS and any(parameter.name == "addr" for parameter in parameters):
        return f"unknown option {name}; use --addr HOST:PORT for the server"
    group = error.ctx.parent if error.ctx else None
    for parameter in group.command.params if group else []:
        if name in parameter.opts and isinstance(parameter, click.Option):
            assert group is not None and error.ctx is not None
            value = "" if parameter.is_flag else f" {parameter.make_metavar(error.ctx)}"
            line = f"{group.command_path} {name}{value} {error.ctx.info_name}"
            return f'option {name} goes before the command: "{line}"'
    known = [
        text.lstrip("-") for parameter in parameters for text in parameter.opts if text[:2] == "--"
    ]
    import difflib

    if nearest := difflib.get_close_matches(name.lstrip("-"), [*known, "help"], 1):
        return f'unknown option {name}; did you mean "--{nearest[0]}"? {rest}'
    return f"unknown option {name}; {rest}"
