"""`beanstalkd-py top`: the command, and its output without a terminal."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py.cli.argument_types import Seconds
from beanstalkd_py.cli.connection_options import CONTEXT, CONTROL_OPTION, Server, server_options
from beanstalkd_py.cli.options import count_option, option
from beanstalkd_py.cli.output import Row, Table, table_text, write, write_json
from beanstalkd_py.cli.server.tubes import TEXTS, typed_values
from beanstalkd_py.cli.top.table import BY_NAME, COLUMNS, Selection

if TYPE_CHECKING:
    from beanstalkd_py.admin.tube_survey import Survey, Surveyor, TubeRow

DEFAULT_INTERVAL_S = 2.0


@click.command(context_settings=CONTEXT)
@option("--interval interval_s", "Time between two polls.", Seconds(), default=DEFAULT_INTERVAL_S)
@count_option("--count", "Exit after N polls.", "polls", minimum=1)
@option(
    "--sort",
    f"Sort by one of {', '.join(BY_NAME)}.",
    click.Choice(list(BY_NAME)),
    metavar="COLUMN",
    default="ready",
)
@option("--reverse", "Reverse the order.", is_flag=True)
@option(
    "--filter pattern",
    "Only tubes whose name contains TEXT, or matches it if TEXT is a glob.",
    metavar="TEXT",
    default="",
)
@count_option(
    "--limit", "Only the first N tubes, if the output is not a terminal.", "tubes", minimum=1
)
@CONTROL_OPTION
@server_options(json="Print a JSON object per poll, one per line.")
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
    """Show live statistics and rates of all tubes of a server.

    On a terminal, `?` lists the keys for sorting, filtering, scrolling and pausing, and q quits.
    Without a terminal, and with --json, the command prints each poll until --count or Ctrl-C.

    It works with any beanstalkd. The control socket of a beanstalkd-py on this machine also
    provides reserves per second and the age of the oldest ready job (oldest) of each tube, and
    costs the server less: 4 ms for 10,000 tubes. The first poll has no rates.

    \b
    Examples:
      beanstalkd-py top
      beanstalkd-py top --sort oldest --filter 'mail.*'
      beanstalkd-py top --json --count 2 | tail -n 1 \\
          | jq '.tubes[] | select(.buried > 0)'
    """
    from beanstalkd_py.admin.tube_survey import open_surveyor
    from beanstalkd_py.cli.top.sampler import Sampler
    from beanstalkd_py.cli.top.view import View

    selection = Selection(sort, reverse, pattern)
    path = None if control is None else Path(control)
    opening = partial(open_surveyor, server.address, server.timeout_s, path, server.tls_options)
    if as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        with opening() as opened:
            _print(server, opened, selection, interval_s, count, limit, as_json)
        return
    from beanstalkd_py.cli.top.screen import show

    sampler = Sampler(opening, interval_s)
    sampler.start()
    show(sampler, View(selection, interval_s), str(server.address), count)


def _print(
    server: Server,
    surveyor: Surveyor,
    selection: Selection,
    interval_s: float,
    count: int | None,
    limit: int | None,
    as_json: bool,
) -> None:
    from beanstalkd_py.admin.tube_survey import RateTracker
    from beanstalkd_py.cli.top.header import header_lines

    for number, survey in enumerate(surveyor.surveys(RateTracker()), 1):
        rows = selection.apply(survey.tubes)[:limit]
        if as_json:
            write_json(_as_json(survey, rows))
        else:
            lines = header_lines(survey, str(server.address), interval_s)
            text = "".join(f"{line}\n" for line in [*lines, ""])
            write(f"{text}{table_text(_table(rows))}\n".encode())
        if number == count:
            return
        time.sleep(interval_s)


def _as_json(survey: Survey, rows: list[TubeRow]) -> dict[str, Any]:
    return {
        "at": round(survey.at, 3),
        "server": typed_values(survey.server, TEXTS),
        "per_s": survey.rates._asdict(),
        "workers": survey.workers,
        "tubes": [row._asdict() for row in rows],
    }


def _table(rows: list[TubeRow]) -> Table:
    shown: list[Row] = [[_cell(getattr(row, column.field)) for column in COLUMNS] for row in rows]
    return Table([column.name for column in COLUMNS], shown)


def _cell(value: str | float | None) -> str | int | float:
    if value is None:
        return "-"
    return round(value, 1) if isinstance(value, float) else value
