"""Shell completion of commands, options, files and folders."""

from __future__ import annotations

import click
import pytest
from click.shell_completion import ShellComplete

from beanstalkd_py.cli.main import PROGRAM, cli

FILES = {"FILE", "PATH"}
FOLDERS = {"DIR", "FOLDER"}


def offered(words: list[str], incomplete: str = "") -> list[tuple[str, str]]:
    """Return type and value of each completion."""
    completion = ShellComplete(cli, {}, PROGRAM, "_COMPLETE")
    return [(item.type, item.value) for item in completion.get_completions(words, incomplete)]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["serve", "-b"], "dir"),
        (["-b"], "dir"),
        (["-p", "11300", "--config"], "file"),
        (["serve", "--history"], "dir"),
        (["serve", "--config"], "file"),
        (["serve", "--tls-cert"], "file"),
        (["stats", "--tls-ca"], "file"),
        (["workers", "--control"], "file"),
        (["doctor", "-b"], "dir"),
        (["doctor", "--config"], "file"),
        (["import", "tube"], "file"),
        (["config", "check"], "file"),
        (["binlog", "verify"], "dir"),
        (["binlog", "compact"], "dir"),
        (["binlog", "reshard", "--workers", "2"], "dir"),
        (["binlog", "repair", "-o"], "dir"),
        (["history", "--store"], "dir"),
        (["history", "export", "-o"], "file"),
        (["pipeline", "run", "-i"], "file"),
    ],
)
def test_files_and_folders(words: list[str], kind: str) -> None:
    assert offered(words, "/var/l") == [(kind, "/var/l")]


def all_parameters(group: click.Group) -> list[tuple[str, click.Parameter]]:
    context = click.Context(group)
    found: list[tuple[str, click.Parameter]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += [(name, parameter) for parameter in command.params]
        if isinstance(command, click.Group):
            found += all_parameters(command)
    return found


def test_every_path_parameter_has_completion() -> None:
    context = click.Context(cli)
    for name, parameter in all_parameters(cli):
        place = parameter.metavar or parameter.human_readable_name
        kinds = {item.type for item in parameter.shell_complete(context, "x")}
        if place in FILES | FOLDERS:
            assert kinds & {"file", "dir"}, f"{name} {parameter.name}"
        if place in FOLDERS:
            assert kinds == {"dir"}, f"{name} {parameter.name}"


def test_commands_and_options() -> None:
    assert ("plain", "stats") in offered([], "st")
    assert ("plain", "verify") in offered(["binlog"], "v")
    assert ("plain", "--tube") in offered(["stats"], "--t")
