"""Options from three places: the command line, the environment, a TOML file, in this order.

Every option with a long name can stand in each: `--max-job-size 1000` is the same as
BEANSTALKD_PY_MAX_JOB_SIZE=1000 and as `max-job-size = 1000`. What stands in the file and in the
environment is put before the words of the command line, so one set of types and errors serves all
three. Must not know what the options mean.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py.cli.number_arguments import Number, Timeout

if TYPE_CHECKING:
    from pathlib import Path

_COUNT = Number("a number", maximum=9)

PREFIX = "BEANSTALKD_PY_"
CONFIG = "config"

FILE = "file"
ENVIRONMENT = "environment"

WORDS = f"{__name__}.words"
"""In a context's `meta`: the words of the command line alone."""


class ConfigError(click.UsageError):
    """Something in a configuration file or in the environment; `where` says which of them."""

    def __init__(self, where: str, text: str) -> None:
        super().__init__(f"{where}: {text}")
        self.where = where


@dataclass(frozen=True, slots=True)
class Setting:
    """One option as it was given; `words` is what it is on a command line."""

    name: str
    source: str
    words: list[str]


def setting_name(option: click.Option) -> str | None:
    """The long name, without dashes; None for an option that has none or is no setting."""
    names = [name for name in option.opts if name.startswith("--")]
    if not names or option.hidden or option.is_eager or not option.expose_value:
        return None
    name = names[0].removeprefix("--")
    return None if name == CONFIG else name


def settings_of(command: click.Command) -> dict[str, click.Option]:
    """All options that can be set in a file, by their long names."""
    options = (param for param in command.params if isinstance(param, click.Option))
    named = ((setting_name(option), option) for option in options)
    return {name: option for name, option in named if name is not None}


class LayeredCommand(click.Command):
    """A command whose options may stand in a file (`--config`) and in the environment, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the words of the file and of the environment before those of the command line."""
        ctx.meta[WORDS] = list(args)
        words = [word for one in self.layers(ctx, args) for word in one.words]
        return super().parse_args(ctx, [*words, *args])

    def layers(self, ctx: click.Context, args: list[str]) -> list[Setting]:
        """The settings of the file, then those of the environment. Raises ConfigError."""
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        path = given.get(CONFIG) or os.environ.get(f"{PREFIX}{CONFIG.upper()}")
        found: list[Setting] = []
        if isinstance(path, str) and path:
            from pathlib import Path

            found = from_file(self, ctx, Path(path))
        found += from_environment(self, ctx, os.environ)
        return [one for n, one in enumerate(found) if not self._is_overruled(one, found[n:], given)]

    def _is_overruled(
        self, setting: Setting, later: list[Setting], given: Mapping[str, object]
    ) -> bool:
        """Options that add up would be, and flags taken back; of others the last one counts."""
        option = settings_of(self)[setting.name]
        again = sum(one.name == setting.name for one in later) > 1
        if option.is_flag and not option.count:
            return again
        return (option.count or option.multiple) and (again or bool(given.get(option.name or "")))


def from_file(command: click.Command, ctx: click.Context, path: Path) -> list[Setting]:
    """What a file sets. Raises ConfigError for the first thing in it that is wrong."""
    import tomllib

    where = f"configuration {path}"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(where, f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(where, f"is no TOML: {error}") from error
    options = settings_of(command)
    found = []
    for name, value in table.items():
        if name not in options:
            known = ", ".join(sorted(options))
            raise ConfigError(where, f"there is no setting {name!r}; there are {known}")
        value = _plain(options[name], value)
        if not isinstance(value, (str, int)):
            raise ConfigError(where, f"{name}: give {_wanted(options[name])}")
        found.append(_setting(options[name], name, value, FILE, ctx, where))
    return found


def _plain(option: click.Option, value: Any) -> Any:
    """Lists for options that may be repeated, and fractions of seconds, as on a command line."""
    if option.multiple and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value) or "none"
    return str(value) if isinstance(option.type, Timeout) and isinstance(value, float) else value


def _wanted(option: click.Option) -> str:
    if option.multiple:
        return "a text, or a list of texts"
    return "a text, a whole number, true or false"


def from_environment(
    command: click.Command, ctx: click.Context, environ: Mapping[str, str]
) -> list[Setting]:
    """What the environment sets. Raises ConfigError."""
    found = []
    for name, option in settings_of(command).items():
        variable = PREFIX + name.upper().replace("-", "_")
        value = environ.get(variable)
        if value:
            where = f"environment {variable}"
            found.append(_setting(option, name, value, ENVIRONMENT, ctx, where))
    return found


def _setting(
    option: click.Option, name: str, value: Any, source: str, ctx: click.Context, where: str
) -> Setting:
    try:
        if option.is_flag and not option.count:
            words = [f"--{name}"] if click.BOOL.convert(value, option, ctx) else []
        elif isinstance(value, bool):
            raise ConfigError(where, f"{name}: true and false are not for this setting")
        elif option.count:
            words = [f"--{name}"] * _COUNT.convert(str(value), option, ctx)
        else:
            option.type.convert(str(value), option, ctx)
            words = [f"--{name}={value}"]
    except click.BadParameter as error:
        raise ConfigError(where, f"{name}: {error.message}") from error
    return Setting(name, source, words)
