"""Help and usage errors with their hints."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from cli.operator import Operator

from beanstalkd_py.cli.main import cli

NOBODY = Operator("127.0.0.1:1")
SECTIONS = ["Server:", "Jobs:", "Tubes:", "Binlog:", "History:", "Analysis:", "Shell:"]


def below(command: click.Command, context: click.Context, name: str) -> click.Context:
    """With the command's settings, because commands keep the option of their first help."""
    return click.Context(command, context, name, **command.context_settings)


def groups(group: click.Group, context: click.Context) -> Iterator[tuple[click.Group, str]]:
    """Yield a group and its subgroups with their help."""
    yield group, group.get_help(context)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from groups(command, below(command, context, name))


ALL = list(groups(cli, click.Context(cli, info_name="beanstalkd-py")))


def test_commands_are_in_sections() -> None:
    lines = NOBODY.do("--help").lines
    at = lines.index(SECTIONS[0])
    assert [line for line in lines[at:] if line and line[0] != " "] == SECTIONS
    named = [line.split()[0] for line in lines[at:] if line.startswith("  ")]
    assert sorted(named) == cli.list_commands(click.Context(cli))


@pytest.mark.parametrize(("group", "text"), ALL, ids=[str(group.name) for group, _ in ALL])
def test_each_command_has_one_whole_line(group: click.Group, text: str) -> None:
    lines = text.splitlines()
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None and command.help
        summary = command.help.strip().splitlines()[0]
        (line,) = [line for line in lines if line.split(maxsplit=1) == [name, summary]]
        assert len(line) <= 80


def helps(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the path and the 80-column help of a command and its subcommands."""
    context.terminal_width = 80
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from helps(inner, below(inner, context, name))


def test_all_help_fits_80_columns() -> None:
    """Includes text that click does not wrap, such as examples."""
    every = dict(helps(cli, click.Context(cli, info_name="beanstalkd-py")))
    assert len(every) > 40
    wide = {
        path: [line for line in text.splitlines() if len(line) > 80] for path, text in every.items()
    }
    assert {path: lines for path, lines in wide.items() if lines} == {}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["stat"], 'no such command "stat"; did you mean "stats"?'),
        (["binlog", "verfy"], 'no such command "verfy"; did you mean "verify"?'),
        (["history", "lst", "x"], 'no such command "lst"; did you mean "ls"?'),
        (["config", "chekc"], 'no such command "chekc"; did you mean "check"?'),
        (
            ["verify", "x"],
            'no such command "verify"; did you mean "backup verify" or "binlog verify"',
        ),
        (["qqqqq"], 'no such command "qqqqq"; "beanstalkd-py --help" lists all'),
        (["binlog"], 'missing command; "beanstalkd-py binlog --help" lists all commands'),
        (["binlog", "qqqqq"], '"beanstalkd-py binlog --help" lists all'),
        (["peek", "--redy"], 'unknown option --redy; did you mean "--ready"?'),
        (["binlog", "verify", "--qqqqq"], '"beanstalkd-py binlog verify --help" lists all'),
        (["binlog", "verify"], 'missing argument FOLDER; see "beanstalkd-py binlog verify --'),
        (["delete", "abc"], "argument ID...: invalid number 'abc'; use a job id; see "),
        (["peek"], 'see "beanstalkd-py peek --help"'),
        (["move", "mails", "mails"], 'FROM and TO are the same tube; see "beanstalkd-py move'),
        (
            ["history", "replay"],
            'missing argument TUBE; see "beanstalkd-py history replay --help"',
        ),
        (
            ["history", "ls", "--store", "x"],
            '--store goes before the command: "beanstalkd-py history --store DIR ls"',
        ),
        (
            ["history", "get", "4711", "--index-slots=3"],
            'before the command: "beanstalkd-py history --index-slots N get"',
        ),
        (
            ["history", "ls", "--version"],
            'unknown option --version; "beanstalkd-py history ls --he',
        ),
        (["put", "--tube"], 'option --tube requires a value; see "beanstalkd-py put --help"'),
    ],
)
def test_usage_errors_have_a_hint(words: list[str], text: str) -> None:
    assert text in NOBODY.fail(2, *words)


@pytest.mark.parametrize("option", ["-p", "--port", "-l", "--host"])
@pytest.mark.parametrize("command", ["stats", "put", "workers", "top"])
def test_address_options_of_serve(command: str, option: str) -> None:
    expected = f"unknown option {option}; use --addr HOST:PORT for the server"
    assert NOBODY.fail(2, command, option, "11300") == expected


@pytest.mark.parametrize("option", ["-p", "--addr"])
def test_options_before_the_command(option: str) -> None:
    expected = 'put options after the command: "beanstalkd-py stats --addr HOST:PORT"'
    assert expected in NOBODY.fail(5, option, "11300", "stats")


def test_usage_error_status_of_serve() -> None:
    assert "did you mean" in NOBODY.fail(5, "--binlog-dri", "x")
    assert 'see "beanstalkd-py serve --help"' in NOBODY.fail(5, "serve", "-b")
