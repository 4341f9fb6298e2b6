"""`history replay`: finished jobs, put into a server again."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.connection_options import Server, TubeType, on_server
from beanstalkd_py.cli.history.replay_preview import show_preview
from beanstalkd_py.cli.history.replay_request import Wish, asked_for, default_state
from beanstalkd_py.cli.history.replay_run import replay_into
from beanstalkd_py.cli.history.search import FILTER, chooser, explained
from beanstalkd_py.cli.history.store_options import Place, StoredTube
from beanstalkd_py.cli.number_arguments import Number
from beanstalkd_py.cli.time_arguments import Said, SaidMoment

_UINT32_MAX = 2**32 - 1


class Rate(click.ParamType):  # type: ignore[type-arg]
    """Jobs per second, which may be fewer than one."""

    name = "rate"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; fails as click's types do."""
        try:
            rate = float(str(value))
        except ValueError:
            rate = math.nan
        if not 1e-6 <= rate <= 1e9:
            self.fail(f"{value!r} is no number of jobs per second; give one such as 50", param, ctx)
        return rate


def _number(name: str, what: str, text: str) -> Callable[[Any], Any]:
    kind = Number(what, maximum=_UINT32_MAX)
    return click.option(f"--{name}", metavar="N", type=kind, help=text)


@click.command()
@click.option(
    "--from", "since", metavar="TIME", type=SaidMoment(), help="Only jobs that ended then or later."
)
@click.option(
    "--to", "until", metavar="TIME", type=SaidMoment(), help="Only before then.  [default: now]"
)
@click.option("--into", metavar="TUBE", type=TubeType(), help="Put them there instead.")
@FILTER
@click.option(
    "--rate",
    metavar="JOBS",
    type=Rate(),
    help="Put so many jobs per second, evenly.  [default: as fast as it goes]",
)
@_number("pri", "a priority", "Give all of them this priority instead of their own.")
@_number("delay", "a number of seconds", "Delay all of them by so many seconds.")
@click.option("--keep-delay", is_flag=True, help="Delay each as it was when it was put last.")
@_number("ttr", "a number of seconds", "Give all of them this TTR instead of their own.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be put; connect to nothing.")
@click.option(
    "--state",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to note how far it has come.",
)
@click.option("--restart", is_flag=True, help="Begin anew, whatever was put before.")
@on_server(json="One JSON object at the end.")
@click.argument("tube", metavar="TUBE", type=StoredTube())
@click.pass_obj
@explained
def replay(
    place: Place,
    server: Server,
    tube: str,
    into: str | None,
    since: Said | None,
    until: Said | None,
    filters: tuple[str, ...],
    rate: float | None,
    pri: int | None,
    delay: int | None,
    keep_delay: bool,
    ttr: int | None,
    dry_run: bool,
    state: Path | None,
    restart: bool,
    as_json: bool,
) -> int:
    """Put finished jobs of TUBE into a server again.

    They are put in the order in which they ended. They get new ids, keep priority and TTR, and are
    ready at once. Without --from it begins with the oldest. Messages of RocketMQ are put with
    priority 65536, no delay and a TTR of 60 s.

    A replay that was interrupted, by Ctrl-C, a kill, or a server that went away or took no more,
    goes on where it stopped when the same command is given again. What was acknowledged is noted
    in a file, without --state one under ~/.local/state/beanstalkd-py (or $XDG_STATE_HOME) for this
    store, server, tube, range, --into and --filter. No job is left out. After a kill, or when the
    connection was lost, up to 128 may be put twice: those that were under way. (After a power cut
    here, those of the last second too.) What TIMEs such as 2h, and no --to, mean is settled at the
    first start. A replay that is finished puts nothing again; --restart does it anew.

    A job whose body the store does not have cannot be put, nor one that is larger than the server
    takes, is damaged, or has expired from the store meanwhile. That is said, and counted.

    CONDITIONS

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history replay mails \\
          --from 12h --dry-run --rate 50
      beanstalkd-py history --store /var/lib/history replay mails \\
          --from 12h --rate 50
      beanstalkd-py history replay mails --into retry \\
          --filter 'buries>0' --filter 'body~ann'

    Exit status 1 if the server took no more, or a job could not be put.
    """
    from beanstalkd_py.replay.jobs import Terms

    if keep_delay and delay is not None:
        raise errors.ToolUsageError("give --delay or --keep-delay, not both")
    terms = Terms(pri, delay, ttr, keep_delay)
    wish = Wish(
        server, tube, into, since, until, filters, rate, terms, state, restart, as_json
    )  # fmt: skip
    chooser(filters)  # a mistake in it is told before anything is looked at
    with place.reading() as store:
        asked = asked_for(place, store, wish)
        path = state or default_state(asked, server)
        if dry_run:
            return show_preview(place, store, wish, asked, path)
        return replay_into(place, store, wish, asked, path)
