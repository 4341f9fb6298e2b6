"""`beanstalkd-py config`: what the options of `serve` are, and whether a file of them is right."""

from __future__ import annotations

import json
from pathlib import Path

import click

from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.server.config_layers import from_file, settings_of
from beanstalkd_py.cli.server.serve import serve, serve_options
from beanstalkd_py.server.option_changes import shown

DEFAULT = "default"
COMMAND_LINE = "command line"


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
def config() -> None:
    """Check or show the options of `serve`.

    They come from the command line, the environment and a file, in this order of precedence.

    \b
    A file has a line for each option, by its long name:
        listen = "127.0.0.1"
        port = 11300
        binlog-dir = "/var/lib/beanstalkd-py"
        max-job-size = 1048576
    """


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def check(file: str) -> int:
    """Check a file of options.

    The status is 0, or 1 with one line about what is wrong.

    \b
    Example:
        beanstalkd-py config check /etc/beanstalkd-py.toml
    """
    context = click.Context(serve, info_name="serve")
    try:
        words = [word for one in from_file(serve, context, Path(file)) for word in one.words]
        serve_options(serve.make_context("serve", words))
    except click.ClickException as error:
        text = error.format_message()
        click.echo(text if file in text else f"configuration {file}: {text}", err=True)
        return 1
    click.echo(f"{file} is right")
    return 0


@config.command(context_settings={"ignore_unknown_options": True})
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for machines.")
@click.argument("words", nargs=-1, metavar="[SERVE OPTIONS]", type=click.UNPROCESSED)
def show(as_json: bool, words: tuple[str, ...]) -> None:
    """Print every option of `serve`, and where its value comes from.

    Give the same options as to `serve`, --config among them. In JSON each is {"value", "from"};
    sizes are bytes, fsync-ms milliseconds or "never".

    \b
    Examples:
        beanstalkd-py config show --config /etc/beanstalkd-py.toml
        beanstalkd-py config show --json -p 11400
    """
    context = serve.make_context("serve", list(words))
    origin = {one.name: one.source for one in serve.layers(context, list(words))}
    given, _, _ = serve.make_parser(context).parse_args(list(words))
    for name, option in settings_of(serve).items():
        if given.get(option.name or ""):
            origin[name] = COMMAND_LINE
    values = shown(serve_options(context))
    if as_json:
        table = {
            name: {"value": value, "from": origin.get(name, DEFAULT)}
            for name, value in values.items()
        }
        click.echo(json.dumps(table, indent=2))
        return
    width = max(map(len, values))
    for name, value in values.items():
        text = "-" if value is None else value
        click.echo(f"{name:<{width}}  {text!s:<24}  {origin.get(name, DEFAULT)}")
