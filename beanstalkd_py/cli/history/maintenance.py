"""`history verify`, `expire` and `status`: commands on the whole store and its archiver."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import click

from beanstalkd_py import errors
from beanstalkd_py.cli import output
from beanstalkd_py.cli.argument_types import TimeType
from beanstalkd_py.cli.connection_options import CONTEXT
from beanstalkd_py.cli.history.store_options import DAMAGED, StoreOptions, translate_errors
from beanstalkd_py.cli.options import AS_JSON, option
from beanstalkd_py.cli.server.administration import Connect, control_options
from beanstalkd_py.plural import counted
from beanstalkd_py.quantities import NS_PER_S

if TYPE_CHECKING:
    from beanstalkd_py.history.verify import Fault, Report


@click.command()
@AS_JSON
@click.pass_obj
def verify(options: StoreOptions, as_json: bool) -> int:
    """Compare log, queues and index; print one line for each fault.

    A line is `file:offset: fault`. The command stops after 1000 faults. Data that the files
    dispatched and archived record as durable must exist. Messages of an open store that are not in
    queues and index yet are counted as pending, not as faults. RocketMQ queues in a format that is
    not supported are listed and not compared.

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history verify && echo clean
      beanstalkd-py history --store ./copy-of-a-broker verify --json | jq .faults

    Exit status 1 for a fault.
    """
    from beanstalkd_py.history.verify import verify as check

    recorded, fault = _recorded_end(options)
    with options.reading(check_end=False) as store:
        report = check(store, recorded_end=recorded)
    if fault is not None:
        report.faults.append(fault)
    if as_json:
        output.write_json({"clean": report.is_clean, **dataclasses.asdict(report)})
    else:
        for fault in report.faults:
            output.write_line(str(fault))
        for text in report.unchecked:
            output.notice(f"not compared: {text}")
        output.notice(_summary(report))
    return 0 if report.is_clean else DAMAGED


def _recorded_end(options: StoreOptions) -> tuple[int, Fault | None]:
    """Return the durable end of the log in the file `archived`, and a fault of that file."""
    from beanstalkd_py.archiver.archived_position import ARCHIVED, ArchivedPositions
    from beanstalkd_py.history.files.layout import check_is_store, refusing_foreign_links
    from beanstalkd_py.history.verify import Fault

    with translate_errors(options.folder), refusing_foreign_links(options.folder):
        check_is_store(options.folder)
        try:
            return ArchivedPositions.load(options.folder).log_end, None
        except errors.StoreDamagedError as error:
            path = options.folder / ARCHIVED
            return 0, Fault(str(path), 0, str(error).removeprefix(f"{path} "))


def _summary(report: Report) -> str:
    result = "clean" if report.is_clean else f"damaged; faults: {len(report.faults)}"
    if report.stopped:
        result += " (stopped; there may be more)"
    return (
        f"{result}, messages: {report.messages}, log bytes: {report.log_bytes},"
        f" queue units: {report.units}, index entries: {report.entries}, pending: {report.pending}"
    )


@click.command()
@option("--before", "Remove files whose last write was before TIME.", TimeType(), required=True)
@AS_JSON
@click.pass_obj
def expire(options: StoreOptions, before: int, as_json: bool) -> int:
    """Remove the oldest files of a store that no process has open.

    Removes whole files of the log, in order, if their last write was before TIME; the last file
    always stays. Queue and index files are removed with the last message that they refer to.

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history expire --before 30d
      beanstalkd-py history --store /var/lib/history expire \\
          --before 2026-11-01T00:00:00
    """
    from beanstalkd_py.archiver.store_settings import writing_history
    from beanstalkd_py.history.options import Options, Retention
    from beanstalkd_py.history.store import Store

    now = time.time()
    retention = Retention(
        reserved_seconds=now - before / NS_PER_S, disk_crowded=2.0, files_at_once=2**31
    )
    folder = options.folder
    with translate_errors(folder):
        settings = Options(
            sizes=options.sizes(), create=False, background=False, retention=retention
        )
        with writing_history(folder), Store.open(folder, settings) as store:
            if remade := store.recovered.remade:
                output.notice(f"{folder} lacked a part of its {remade}; rebuilt")
            if missing := store.recovered.missing_bytes:
                output.notice(f"{folder} lacks {missing} durable bytes of its log")
            expired = store.expire(now)
    log, queues = counted(expired.log_files, "log file"), counted(expired.queue_files, "queue file")
    text = f"removed {log}, {queues}, {counted(expired.index_files, 'index file')}"
    output.write_result(as_json, dataclasses.asdict(expired), text)
    return 0


_ROWS = {
    "state": "archiver",
    "pid": "pid",
    "restarts": "restarts",
    "last-error": "last error",
    "archived": "jobs archived since server start",
    "open-jobs": "unfinished jobs",
    "behind-bytes": "bytes of the binlog not read yet",
    "waiting-bytes": "bytes of binlog files kept for it",
    "most-bytes": "limit of kept binlog bytes",
    "store-bytes": "bytes of the history",
    "lost-files": "binlog files removed unread",
    "lost-bytes": "bytes of removed binlog files",
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
        reply = control.ask("history")
    if as_json:
        output.write_json(reply)
    else:
        suffix = ", keeps restarting" if reply["keeps-restarting"] else ""
        shown = {**reply, "state": f"{reply['state']}{suffix}"}
        keys = [key for key in _ROWS if key not in _OPTIONAL or reply[key]]
        rows: list[output.Row] = [(_ROWS[key], shown[key]) for key in keys]
        output.write_table(output.Table(("history", ""), rows))
    is_serving = reply["state"] == "serving" and not reply["keeps-restarting"]
    return 0 if is_serving and not reply["refused"] else 1
