"""`history status`: how far the archiver of a running server is."""

from __future__ import annotations

from collections.abc import Sequence

import click

from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.output import Table, write_json, write_table
from beanstalkd_py.cli.server.administration import Connect, on_control_socket

_ROWS = {
    "state": "archiver",
    "pid": "its pid",
    "restarts": "its restarts",
    "last-error": "its last error",
    "archived": "jobs archived since the server started",
    "open-jobs": "jobs that have not ended",
    "behind-bytes": "bytes of the binlog not read yet",
    "waiting-bytes": "bytes of binlog files kept for it",
    "most-bytes": "of which there may be",
    "store-bytes": "bytes of the history",
    "lost-files": "binlog files removed unread",
    "lost-bytes": "their bytes",
    "faults": "unreadable places in the binlog",
    "missing-bytes": "bytes missing from its log at a start",
    "orphans": "jobs ended of which nothing was known",
    "bodies-left-out": "bodies left out for their size",
    "freed-bytes": "bytes of binlog files done with",
    "refused": "why nothing is taken",
}

_MAYBE = ("refused", "last-error")
"""Left out when there is nothing to show."""


@click.command(context_settings=CONTEXT)
@on_control_socket(json="A JSON object.")
def status(connect: Connect, as_json: bool) -> int:
    """Show how far the archiver of a running server is.

    It is `serving`, `starting` while it opens the store, `waiting` for its next start, or
    `stopping`; `keeps restarting` stands behind that. Exit status 1: it does not serve, keeps
    restarting, or finds no room.

    \b
    Examples:
      beanstalkd-py history status
      beanstalkd-py history status --json | jq '.["behind-bytes"]'
    """
    with connect() as control:
        said = control.ask("history")
    if as_json:
        write_json(said)
    else:
        repeated = ", keeps restarting" if said["keeps-restarting"] else ""
        shown = {**said, "state": f"{said['state']}{repeated}"}
        rows: list[Sequence[str | int | float]] = [
            (text, shown[key]) for key, text in _ROWS.items() if key not in _MAYBE or said[key]
        ]
        write_table(Table(("history", ""), rows))
    well = said["state"] == "serving" and not said["keeps-restarting"] and not said["refused"]
    return 0 if well else 1
