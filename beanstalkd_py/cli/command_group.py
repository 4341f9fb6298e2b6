"""Command groups with lazy imports, help in sections, and suggestions for mistyped names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from beanstalkd_py.cli.startup import exiting_on_interrupt

Sections = Mapping[str, Mapping[str, str]]
"""Maps section titles to commands by name, each with its click object as MODULE:NAME."""
_NO_LIMIT = 1 << 16


class UnknownCommandError(click.UsageError):
    """The command does not exist. The message needs no hint."""


class CommandGroup(click.Group):
    """A group whose help has a line for each command; imports commands of `sections` lazily."""

    def __init__(self, *args: Any, sections: Sections | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._sections = sections or {}
        self._targets = {
            name: target for section in self._sections.values() for name, target in section.items()
        }

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not (args or ctx.resilient_parsing or self.invoke_without_command):
            raise UnknownCommandError(
                f'missing command; "{ctx.command_path} --help" lists all commands', ctx
            )
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self.commands, *self._targets])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self._targets.get(cmd_name)
        if target is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = target.partition(":")
        with exiting_on_interrupt():
            command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections with names aligned over all of them."""
        sections: dict[str, list[str]] = {
            title: list(names) for title, names in self._sections.items()
        }
        if self.commands:
            sections.setdefault("Commands", []).extend(sorted(self.commands))
        width = max(len(name) for names in sections.values() for name in names)
        for title, names in sections.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(width), command.get_short_help_str(_NO_LIMIT))
                        for name, command in commands
                        if command is not None
                    ]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            raise UnknownCommandError(self._no_such_command(ctx, name), ctx)
        return super().resolve_command(ctx, args)

    def _no_such_command(self, ctx: click.Context, name: str) -> str:
        import difflib

        commands = {each: self.get_command(ctx, each) for each in self.list_commands(ctx)}
        in_groups = [
            f"{group_name} {name}"
            for group_name, group in commands.items()
            if isinstance(group, click.Group) and name in group.list_commands(ctx)
        ]
        if suggestions := in_groups or difflib.get_close_matches(name, commands, 1):
            quoted = " or ".join(f'"{each}"' for each in suggestions)
            return f'no such command "{name}"; did you mean {quoted}?'
        return f'no such command "{name}"; "{ctx.command_path} --help" lists all commands'

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and add its context to usage errors."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = ctx.invoked_subcommand
            command = self.get_command(ctx, name) if name else None
            if error.ctx is None and command is not None:
                error.ctx = click.Context(command, parent=ctx, info_name=name)
            raise
