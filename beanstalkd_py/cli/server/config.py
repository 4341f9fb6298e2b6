"""`beanstalkd-py config`: check and show the options of `serve`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.options import option
from beanstalkd_py.cli.server.config_layers import from_file, settings_of
from beanstalkd_py.cli.server.serve import serve, serve_options
from beanstalkd_py.server.option_changes import option_values, value_text
from beanstalkd_py.server.options import ServeOptions

DEFAULT = "default"
COMMAND_LINE = "command line"


@click.group(cls=CommandGroup, context_settings=CONTEXT)
def config() -> None:
    """Check or show the options of `serve`.

    Precedence: command line, environment, file.

    \b
    A file is TOML with the long names of options:
        listen = "127.0.0.1"
        port = 11300
        binlog-dir = "/var/lib/beanstalkd-py"
        max-job-size = 1048576
    """


def options_of(file: str) -> ServeOptions:
    """Return the options of a configuration file. Raises click's errors."""
    context = click.Context(serve, info_name="serve")
    settings = from_file(serve, context, Path(file))
    words = [word for setting in settings for word in setting.words]
    return serve_options(serve.make_context("serve", words))


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def check(file: str) -> int:
    """Check a configuration file.

    \b
    Example:
        beanstalkd-py config check /etc/beanstalkd-py.toml

    Exit status 1 if the file is invalid; stderr has the first error.
    """
    try:
        options_of(file)
    except click.ClickException as error:
        text = error.format_message()
        click.echo(text if file in text else f"configuration {file}: {text}", err=True)
        return 1
    click.echo(f"{file} is valid")
    return 0


@config.command(context_settings={"ignore_unknown_options": True})
@option("--json as_json", "Print a JSON object.", is_flag=True)
@click.argument("words", nargs=-1, metavar="[SERVE OPTIONS]", type=click.UNPROCESSED)
def show(as_json: bool, words: tuple[str, ...]) -> None:
    """Print every option of `serve` with the source of its value.

    Takes the options of `serve`, including --config. In JSON each option is an object: value, from.
    Sizes are bytes; fsync-ms is milliseconds or "never".

    \b
    Examples:
        beanstalkd-py config show --config /etc/beanstalkd-py.toml
        beanstalkd-py config show --json -p 11400
    """
    context = serve.make_context("serve", list(words))
    origin = {setting.name: setting.source for setting in serve.layers(context, list(words))}
    on_command_line, _, _ = serve.make_parser(context).parse_args(list(words))
    for name, setting in settings_of(serve).items():
        if on_command_line.get(setting.name or ""):
            origin[name] = COMMAND_LINE
    values = option_values(serve_options(context))
    if as_json:
        table = {
            name: {"value": value, "from": origin.get(name, DEFAULT)}
            for name, value in values.items()
        }
        click.echo(json.dumps(table, indent=2))
        return
    width = max(map(len, values))
    for name, value in values.items():
        text = "-" if value is None else value_text(name, value)
        click.echo(f"{name:<{width}}  {text!s:<24}  {origin.get(name, DEFAULT)}")
