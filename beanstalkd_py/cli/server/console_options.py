"""Options of a console, which the command `console` and `serve` have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_types import ArgumentType
from beanstalkd_py.cli.options import Decorator, file_option, in_order, option
from beanstalkd_py.server.accept.addresses import parse_host_port
from beanstalkd_py.server.options import CONSOLE_ROLES, DEFAULT_CONSOLE_ROLE

if TYPE_CHECKING:
    from beanstalkd_py.console.settings import ConsoleSettings

NONE = "none"


class _Names(ArgumentType):
    """Host names separated by commas."""

    name = "name"

    def parse(self, text: str) -> tuple[str, ...]:
        names = () if text == NONE else tuple(text.split(","))
        if not all(names):
            raise ValueError(f"{text!r} has an empty name; use NAME or NAME,NAME")
        return names


def _distinct(
    ctx: click.Context, param: click.Parameter, lists: tuple[tuple[str, ...], ...]
) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in lists for name in names))


def console_options(prefix: str) -> Decorator:
    """Return the options whose names begin with the prefix, which ends with a dash or is empty."""
    prefix = f"--{prefix}"
    return in_order(
        file_option(
            f"{prefix}users", "Users with roles and hashed passwords; lines of console-user."
        ),
        option(
            f"{prefix}role",
            f"What everybody may do on a console of this machine without {prefix}users.",
            click.Choice(CONSOLE_ROLES),
            default=DEFAULT_CONSOLE_ROLE,
        ),
        option(
            f"{prefix}host",
            "Another name under which browsers reach the console. May be repeated.",
            _Names(),
            multiple=True,
            callback=_distinct,
        ),
        option(
            f"{prefix}user-header",
            f"Trust this header of a proxy for the name of the user, who is in {prefix}users.",
            metavar="NAME",
        ),
        option(f"{prefix}https", "Browsers use https, by a proxy.", is_flag=True),
        file_option(f"{prefix}audit-log", "Append a line for each login and each change."),
    )


def console_settings(params: Mapping[str, Any], listen: str, prefix: str) -> ConsoleSettings:
    """Return the checked settings of a context. `listen` is the option with the address.

    Raises UsageError.
    """
    from beanstalkd_py.console.settings import ConsoleSettings

    of_name = f"{prefix.replace('-', '_')}%s"
    address = parse_host_port(params[listen], f"--{listen}")
    settings = ConsoleSettings(
        address.host,
        params[of_name % "users"],
        params[of_name % "role"],
        params[of_name % "host"],
        params[of_name % "user_header"],
        params[of_name % "https"],
        params[of_name % "audit_log"],
    )
    settings.check(f"--{listen}", f"--{prefix}")
    return settings


def check_console_options(params: Mapping[str, Any]) -> None:
    """Raise UsageError if console options of a context of `serve` require or exclude others."""
    if params["console"] is not None:
        try:
            console_settings(params, "console", "console-")
        except errors.UsageError as error:
            raise click.UsageError(str(error)) from error
        return
    for name in ("users", "role", "host", "user_header", "https", "audit_log"):
        if params[f"console_{name}"] not in (None, DEFAULT_CONSOLE_ROLE, (), False):
            flag = f"--console-{name.replace('_', '-')}"
            raise click.UsageError(f"option {flag} requires --console HOST:PORT")
