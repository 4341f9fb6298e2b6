"""Options from the command line, the environment and a TOML file, in this order of precedence.

Every option with a long name can be set in each: `--max-job-size 1000` is the same as
BEANSTALKD_PY_MAX_JOB_SIZE=1000 and as `max-job-size = 1000`. The settings of file and environment
are inserted before the arguments of the command line, so that click checks all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py.cli.argument_types import Number, Timeout

if TYPE_CHECKING:
    from pathlib import Path

_COUNT = Number("a number", maximum=9)

PREFIX = "BEANSTALKD_PY_"
CONFIG = "config"

FILE = "file"
ENVIRONMENT = "environment"

WORDS = f"{__name__}.words"
"""Key of a context's `meta`: the arguments of the command line alone."""


class ConfigError(click.UsageError):
    """An invalid setting in a configuration file or in the environment (`where`)."""

    def __init__(self, where: str, text: str) -> None:
        super().__init__(f"{where}: {text}")
        self.where = where


@dataclass(frozen=True, slots=True)
class Setting:
    """One option with its value; `words` is its form on a command line."""

    name: str
    source: str
    words: list[str]


def settings_of(command: click.Command) -> dict[str, click.Option]:
    """Return the options that can be set in a file, by their long names without dashes."""
    return {
        name.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option)
        if option.expose_value and not option.hidden and not option.is_eager
        for name in [name for name in option.opts if name.startswith("--")][:1]
    }


class LayeredCommand(click.Command):
    """A command whose options can also be set in a file (`--config`) and in the environment."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the settings of file and environment before the command line."""
        ctx.meta[WORDS] = list(args)
        words = [word for setting in self.layers(ctx, args) for word in setting.words]
        return super().parse_args(ctx, [*words, *args])

    def layers(self, ctx: click.Context, args: list[str]) -> list[Setting]:
        """Return the settings of the file, then of the environment. Raises ConfigError."""
        on_command_line, _, _ = self.make_parser(ctx).parse_args(list(args))
        path = on_command_line.get(CONFIG) or os.environ.get(f"{PREFIX}{CONFIG.upper()}")
        of_file: list[Setting] = []
        if isinstance(path, str) and path:
            from pathlib import Path

            of_file = from_file(self, ctx, Path(path))
        of_environment = from_environment(self, ctx, os.environ)
        replaced = {setting.name for setting in of_environment}
        settings = [setting for setting in of_file if setting.name not in replaced] + of_environment
        # click would add the values of the command line to those of repeatable options.
        options = settings_of(self)
        repeated = {
            name
            for name, option in options.items()
            if (option.count or option.multiple) and on_command_line.get(option.name or "")
        }
        return [setting for setting in settings if setting.name not in repeated]


def from_file(command: click.Command, ctx: click.Context, path: Path) -> list[Setting]:
    """Return the settings of a file. Raises ConfigError for the first invalid one."""
    import tomllib

    from beanstalkd_py.cli.server import policy_settings, schedule_settings

    tables = {
        policy_settings.TABLE: policy_settings.words_of_table,
        schedule_settings.TABLE: schedule_settings.words_of_table,
    }
    where = f"configuration {path}"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(where, f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(where, f"invalid TOML: {error}") from error
    options = settings_of(command)
    settings = []
    for name, value in table.items():
        if name in tables:
            try:
                settings.append(Setting(name, FILE, tables[name](value)))
            except ValueError as error:
                raise ConfigError(where, str(error)) from error
            continue
        if name not in options:
            known = ", ".join(sorted([*options, *tables]))
            raise ConfigError(where, f"unknown setting {name!r}; known settings are {known}")
        value = _plain(options[name], value)
        if not isinstance(value, (str, int)):
            text = "a string, an integer, true or false"
            if options[name].multiple:
                text = "a string or a list of strings"
            raise ConfigError(where, f"{name}: must be {text}")
        settings.append(_setting(options[name], name, value, FILE, ctx, where))
    return settings


def _plain(option: click.Option, value: Any) -> Any:
    """Convert lists (for repeatable options) and fractions of seconds to command-line text."""
    if option.multiple and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value) or "none"
    return str(value) if isinstance(option.type, Timeout) and isinstance(value, float) else value


def from_environment(
    command: click.Command, ctx: click.Context, environ: Mapping[str, str]
) -> list[Setting]:
    """Return the settings of the environment. Raises ConfigError."""
    settings = []
    for name, option in settings_of(command).items():
        variable = PREFIX + name.upper().replace("-", "_")
        value = environ.get(variable)
        if value:
            where = f"environment {variable}"
            settings.append(_setting(option, name, value, ENVIRONMENT, ctx, where))
    return settings


def _setting(
    option: click.Option, name: str, value: Any, source: str, ctx: click.Context, where: str
) -> Setting:
    try:
        if option.is_flag and not option.count:
            words = [f"--{name}"] if click.BOOL.convert(value, option, ctx) else []
        elif isinstance(value, bool):
            raise ConfigError(where, f"{name}: true and false are invalid for this setting")
        elif option.count:
            words = [f"--{name}"] * _COUNT.convert(str(value), option, ctx)
        else:
            option.type.convert(str(value), option, ctx)
            words = [f"--{name}={value}"]
    except click.BadParameter as error:
        raise ConfigError(where, f"{name}: {error.message}") from error
    return Setting(name, source, words)
