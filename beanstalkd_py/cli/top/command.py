"""`beanstalkd-py top`: all tubes of a server, live."""

from __future__ import annotations

import sys
import time
from itertools import count as counting
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py.cli.connection_options import CONTEXT, Seconds, Server, on_server
from beanstalkd_py.cli.number_arguments import Number
from beanstalkd_py.cli.output import Row, Table, table_text, write, write_json
from beanstalkd_py.cli.path_completion import complete_file
from beanstalkd_py.cli.server.tubes import TEXTS, as_values

if TYPE_CHECKING:
    from beanstalkd_py.admin.tube_survey import Survey
    from beanstalkd_py.cli.top.table import Choice

DEFAULT_INTERVAL_S = 2.0
# As top_table has them; asked for there, which takes the client's modules, when it is run.
SORTS = (
    *("tube", "puts", "reserves", "deletes", "ready", "reserved", "delayed", "buried"),
    *("waiting", "oldest", "urgent", "using", "watching", "paused", "total"),
)


@click.command(context_settings=CONTEXT)
@click.option(
    "--interval",
    "interval_s",
    metavar="SECONDS",
    type=Seconds(),
    default=DEFAULT_INTERVAL_S,
    show_default=True,
    help="Time between two looks.",
)
@click.option(
    "--count",
    metavar="N",
    type=Number("a number of looks", minimum=1),
    help="End after N looks.",
)
@click.option(
    "--sort",
    metavar="COLUMN",
    type=click.Choice(SORTS),
    default="ready",
    show_default=True,
    help=f"One of {', '.join(SORTS)}.",
)
@click.option("--reverse", is_flag=True, help="Turn the order round: the smallest first.")
@click.option(
    "--filter",
    "pattern",
    metavar="TEXT",
    default="",
    help="Only tubes with TEXT in their names, or that match it if it is a glob.",
)
@click.option(
    "--limit",
    metavar="N",
    type=Number("a number of tubes", minimum=1),
    help="Only the first N tubes, where the output is no terminal.",
)
@click.option(
    "--control",
    metavar="PATH",
    shell_complete=complete_file,
    envvar="BEANSTALKD_CONTROL",
    show_envvar=True,
    help="The control socket; otherwise it is looked for by the port of --addr.",
)
@on_server(json="A JSON object for each look, on a line of its own.")
def top(
    server: Server,
    as_json: bool,
    interval_s: float,
    count: int | None,
    sort: str,
    reverse: bool,
    pattern: str,
    limit: int | None,
    control: str | None,
) -> None:
    """Show all tubes of a server and what happens to them, live.

    On a terminal: `?` lists the keys that sort, filter, scroll and pause, and q ends it. Elsewhere,
    and with --json, it prints each look and goes on until --count or Ctrl-C.

    It works with any beanstalkd. With the control socket of a beanstalkd-py on this machine, it
    also shows how many jobs of each tube are reserved per second, and for how long the job that is
    next could have been reserved (oldest); and it costs the server least: 10,000 tubes take it
    4 ms. Rates are counted from the look before, so the first one has none.

    \b
    Examples:
      beanstalkd-py top
      beanstalkd-py top --sort oldest --filter 'mail.*'
      beanstalkd-py top --json --count 2 | tail -n 1 \\
          | jq '.tubes[] | select(.buried > 0)'
    """
    from beanstalkd_py.cli.top.sampler import Sampler
    from beanstalkd_py.cli.top.table import Choice
    from beanstalkd_py.cli.top.view import View

    choice = Choice(sort, reverse, pattern)
    place = None if control is None else Path(control)
    if not as_json and sys.stdout.isatty() and sys.stdin.isatty():
        from beanstalkd_py.cli.top.screen import show

        sampler = Sampler(server.address, server.timeout_s, place, interval_s, server.trust)
        sampler.start()
        show(sampler, View(choice, interval_s), str(server.address), count)
    else:
        _print(server, place, choice, interval_s, count, limit, as_json)


def _print(
    server: Server,
    control: Path | None,
    choice: Choice,
    interval_s: float,
    count: int | None,
    limit: int | None,
    as_json: bool,
) -> None:
    from beanstalkd_py.admin.tube_survey import Before, surveyor
    from beanstalkd_py.cli.top.header import head_lines

    with surveyor(server.address, server.timeout_s, control, server.trust) as opened:
        surveys = opened.surveys(Before())
        for number in counting(1):
            survey = next(surveys)
            rows = choice.apply(survey.tubes)[:limit]
            if as_json:
                write_json(_as_json(survey, rows))
            else:
                lines = head_lines(survey, str(server.address), interval_s)
                text = "".join(f"{line}\n" for line in [*lines, ""])
                write(f"{text}{table_text(_table(rows))}\n".encode())
            if number == count:
                return
            time.sleep(interval_s)


def _as_json(survey: Survey, rows: list[Any]) -> dict[str, Any]:
    return {
        "at": round(survey.at, 3),
        "server": as_values(survey.server, TEXTS),
        "per_s": survey.rates._asdict(),
        "workers": survey.workers,
        "tubes": [row._asdict() for row in rows],
    }


def _table(rows: list[Any]) -> Table:
    from beanstalkd_py.cli.top.table import COLUMNS

    shown: list[Row] = [[_cell(getattr(row, one.field)) for one in COLUMNS] for row in rows]
    return Table([column.name for column in COLUMNS], shown)


def _cell(value: str | float | None) -> str | int | float:
    if value is None:
        return "-"
    return round(value, 1) if isinstance(value, float) else value
