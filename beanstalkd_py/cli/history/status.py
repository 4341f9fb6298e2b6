"""`history status`: state of the archiver of a running server."""

from __future__ import annotations

import click

from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.output import Row, Table, write_json, write_table
from beanstalkd_py.cli.server.administration import Connect, control_options

_ROWS = {
    "state": "archiver",
    "pid": "pid",
    "restarts": "restarts",
    "last-error": "last error",
    "archived": "jobs archived since server start",
    "open-jobs": "unfinished jobs",
    "behind-bytes": "bytes of the binlog not read yet",
    "waiting-bytes": "bytes of binlog files kept for it",
    "most-bytes": "limit of these",
    "store-bytes": "bytes of the history",
    "lost-files": "binlog files removed unread",
    "lost-bytes": "bytes of these",
    "faults": "damaged places in the binlog",
    "missing-bytes": "bytes missing from its log at start",
    "orphans": "finished jobs without earlier events",
    "bodies-left-out": "bodies omitted for their size",
    "freed-bytes": "bytes of archived binlog files",
    "refused": "why nothing is stored",
}

_OPTIONAL = ("refused", "last-error")


@click.command(context_settings=CONTEXT)
@control_options(json="Print a JSON object.")
def status(connect: Connect, as_json: bool) -> int:
    """Show the state and progress of the archiver of a running server.

    The state is `serving`, `starting` while the archiver opens the store, `waiting` before its next
    start, or `stopping`; `keeps restarting` is added.

    \b
    Examples:
      beanstalkd-py history status
      beanstalkd-py history status --json | jq '.["behind-bytes"]'

    Exit status 1 if the archiver is not serving, keeps restarting, or has no disk space.
    """
    with connect() as control:
        found = control.ask("history")
    if as_json:
        write_json(found)
    else:
        suffix = ", keeps restarting" if found["keeps-restarting"] else ""
        shown = {**found, "state": f"{found['state']}{suffix}"}
        keys = [key for key in _ROWS if key not in _OPTIONAL or found[key]]
        rows: list[Row] = [(_ROWS[key], shown[key]) for key in keys]
        write_table(Table(("history", ""), rows))
    healthy = found["state"] == "serving" and not found["keeps-restarting"] and not found["refused"]
    return 0 if healthy else 1
