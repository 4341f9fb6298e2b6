"""The entry point: which command is meant, and how errors and statuses leave the program.

Commands are imported when they are used, so that help and `serve` start quickly.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from beanstalkd_py import PROTOCOL_VERSION, __version__, errors
from beanstalkd_py.cli.layers import ConfigError
from beanstalkd_py.server.exits import EXIT_TOOL_USAGE, EXIT_USAGE, exit_status

PROGRAM = "beanstalkd-py"
VERSION_TEXT = f"beanstalkd_py {__version__} (beanstalkd {PROTOCOL_VERSION})"

# Name of a command: where its click object is.
COMMANDS = {
    "bench": "beanstalkd_py.cli.bench:bench",
    "binlog": "beanstalkd_py.cli.binlog:binlog",
    "bury": "beanstalkd_py.cli.jobs:bury",
    "compact": "beanstalkd_py.cli.administration:compact",
    "completion": "beanstalkd_py.cli.completion:completion",
    "config": "beanstalkd_py.cli.config:config",
    "conns": "beanstalkd_py.cli.administration:conns",
    "delete": "beanstalkd_py.cli.jobs:delete",
    "doctor": "beanstalkd_py.cli.doctor:doctor",
    "drain": "beanstalkd_py.cli.administration:drain",
    "export": "beanstalkd_py.cli.transfer:export",
    "history": "beanstalkd_py.cli.history:history",
    "import": "beanstalkd_py.cli.transfer:import_",
    "kick": "beanstalkd_py.cli.jobs:kick",
    "move": "beanstalkd_py.cli.transfer:move",
    "pause": "beanstalkd_py.cli.tubes:pause",
    "peek": "beanstalkd_py.cli.jobs:peek",
    "pipeline": "beanstalkd_py.cli.pipeline:pipeline",
    "put": "beanstalkd_py.cli.jobs:put",
    "reload": "beanstalkd_py.cli.administration:reload",
    "reserve": "beanstalkd_py.cli.jobs:reserve",
    "serve": "beanstalkd_py.cli.serve:serve",
    "stats": "beanstalkd_py.cli.tubes:stats",
    "tail": "beanstalkd_py.cli.tubes:tail",
    "top": "beanstalkd_py.cli.top:top",
    "truncate": "beanstalkd_py.cli.transfer:truncate",
    "tubes": "beanstalkd_py.cli.tubes:tubes",
    "workers": "beanstalkd_py.cli.administration:workers",
}

EXIT_READER_GONE = 141
_STDERR = 2
"""Nobody reads the output any more: what a shell shows for SIGPIPE."""

_GROUP_OPTIONS = ("--help", "--version")


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None for an unknown name."""
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=LazyGroup, invoke_without_command=True)
@click.version_option(__version__, message=VERSION_TEXT)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A drop-in beanstalkd.

    If the first argument is an option, `serve` is meant: `beanstalkd-py -b DIR` is
    `beanstalkd-py serve -b DIR`.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def have_standard_descriptors() -> None:
    """Opens what is closed of 0, 1 and 2, before anything else gets their numbers.

    A line for stderr would be written there otherwise, be it a binlog or shared memory.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command line (without the program's name) and exits."""
    have_standard_descriptors()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0].startswith("-") and words[0] not in _GROUP_OPTIONS:
        words.insert(0, "serve")
    sys.exit(_run(words))


def _run(words: list[str]) -> int:
    try:
        status = cli.main(words, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        return _say(_one_line(error), _usage_status(words))
    except errors.ReaderGoneError:
        return EXIT_READER_GONE
    except errors.BeanstalkdError as error:
        return _say(str(error), exit_status(error))
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", 130)
    return status if isinstance(status, int) else 0


def _usage_status(words: list[str]) -> int:
    command = words[0] if words else ""
    return EXIT_TOOL_USAGE if command in COMMANDS and command != "serve" else EXIT_USAGE


def _say(text: str, status: int) -> int:
    click.echo(f"{PROGRAM}: {text}", err=True)
    return status


def _one_line(error: click.ClickException) -> str:
    """What is wrong and what to do, on one line."""
    match error:
        case ConfigError():
            return error.message
        case click.NoSuchOption():
            command = error.ctx.command_path if error.ctx else PROGRAM
            return f"unknown option {error.option_name}; '{command} --help' lists all"
        case click.MissingParameter(param=click.Option() as option):
            return f"option {'/'.join(option.opts)} is missing"
        case click.BadParameter(param=click.Option() as option):
            return f"option {'/'.join(option.opts)}: {error.message}"
        case click.BadOptionUsage():
            return f"option {error.option_name} needs a value"
    text = " ".join(error.format_message().split()).rstrip(".")
    return f"{text[:1].lower()}{text[1:]}; '{PROGRAM} --help' tells what there is"
