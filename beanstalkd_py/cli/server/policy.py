"""`beanstalkd-py policy`: show, set and unset the tube policies of a running server."""

from __future__ import annotations

import click

from beanstalkd_py.cli import output
from beanstalkd_py.cli.command_group import CommandGroup
from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.server.administration import Connect, control_options
from beanstalkd_py.plural import counted
from beanstalkd_py.server.policy_settings import parse_policy
from beanstalkd_py.server.tube_policies import policy_values


@click.group(cls=CommandGroup, context_settings=CONTEXT)
def policy() -> None:
    """Show or change the tube policies of a running server.

    A tube has the first policy whose pattern matches. Policies that are set here come before those
    of the configuration file, the last one first. The binlog folder keeps them.
    """


@policy.command()
@control_options(json="Print a JSON array with an object per policy.")
def show(connect: Connect, as_json: bool) -> None:
    """Show all policies in the order in which the server tests them.

    \b
    Example:
      beanstalkd-py policy show
    """
    with connect() as control:
        rows = list(control.parts("policies"))
    if as_json:
        output.write_json(rows)
        return
    headings = ("pattern", "from", "settings")
    output.write_table(output.Table(headings, [_cells(row) for row in rows]))


def _cells(row: dict[str, str | int]) -> output.Row:
    settings = {name: value for name, value in row.items() if name not in ("pattern", "from")}
    text = " ".join(f"{name}={value}" for name, value in settings.items())
    return row["pattern"], row["from"], text or "-"


@policy.command(name="set")
@click.argument("pattern")
@click.argument("settings", nargs=-1, metavar="NAME=VALUE...")
@control_options(json="Print a JSON object: online, the number of online policies.")
def set_(connect: Connect, as_json: bool, pattern: str, settings: tuple[str, ...]) -> None:
    """Set the policy of the tubes whose names match PATTERN.

    Replaces the policy that was set for this pattern. Without settings these tubes have no limits,
    whatever the configuration file has. The names and values are those of the file.

    \b
    Examples:
      beanstalkd-py policy set 'mails.*' max-jobs=100000 rate=100/s
      beanstalkd-py policy set mails max-reserves=5 then=move:mails.dead
    """
    values = dict(_setting(text) for text in settings)
    try:
        requested = parse_policy(pattern, values)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with connect() as control:
        reply = control.ask("policy-set", policy=policy_values(requested))
    _report(as_json, reply["online"])


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"setting {text!r} has no value; use NAME=VALUE")
    return name, value


@policy.command()
@click.argument("pattern")
@control_options(json="Print a JSON object: online, the number of online policies.")
def unset(connect: Connect, as_json: bool, pattern: str) -> None:
    """Unset a policy that was set online.

    Other policies, online or of the configuration file, apply again.

    \b
    Example:
      beanstalkd-py policy unset 'mails.*'
    """
    with connect() as control:
        reply = control.ask("policy-unset", pattern=pattern)
    _report(as_json, reply["online"])


def _report(as_json: bool, online: int) -> None:
    output.write_result(as_json, {"online": online}, f"{counted(online, 'policy')} set online")
