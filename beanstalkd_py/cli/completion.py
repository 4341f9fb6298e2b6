"""`beanstalkd-py completion`: the completion script of a shell."""

from __future__ import annotations

import click

from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.output import PROGRAM, write_line


@click.command(context_settings=CONTEXT)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    The script completes commands, options and tube names. Tube names come from the server at --addr
    or BEANSTALKD_ADDR, if it replies within 0.3 s.

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

    script = get_completion_class(shell)
    assert script is not None, "click supports these shells"
    variable = f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE"
    write_line(script(cli, {}, PROGRAM, variable).source())
