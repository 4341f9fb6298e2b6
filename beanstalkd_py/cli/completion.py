"""`beanstalkd-py completion`: the script that teaches a shell to complete commands and tubes."""

from __future__ import annotations

import click

from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.output import PROGRAM, write_line


@click.command(context_settings=CONTEXT)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what completes commands in SHELL.

    Options and the names of tubes are completed, too. Names of tubes are asked of the server at
    --addr or BEANSTALKD_ADDR; if it does not answer within 0.3 s, none are offered.

    \b
    Examples:
      beanstalkd-py completion bash \\
          > ~/.local/share/bash-completion/completions/beanstalkd-py
      source <(beanstalkd-py completion zsh)
      beanstalkd-py completion fish \\
          > ~/.config/fish/completions/beanstalkd-py.fish
    """
    from click.shell_completion import get_completion_class

    from beanstalkd_py.cli.main import cli

    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"this click knows no {shell}")
    variable = f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE"
    write_line(made(cli, {}, PROGRAM, variable).source())
