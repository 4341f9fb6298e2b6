"""`history verify` and `expire`: a store as a whole."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.history.store_options import AS_JSON, DAMAGED, Place, told
from beanstalkd_py.cli.output import counted, say, write_json, write_line
from beanstalkd_py.cli.time_arguments import NS_PER_S, Moment

if TYPE_CHECKING:
    from beanstalkd_py.history.verify import Fault, Report


@click.command()
@AS_JSON
@click.pass_obj
def verify(place: Place, as_json: bool) -> int:
    """Compare log, queues and index; one line for each fault.

    A line is `file:offset: what is wrong`. After 1000 it stops, and says so. What the files
    dispatched and archived record as having been on disk must be there. Of a store that is open,
    newer messages that queues and index do not have yet are counted as pending and are no fault.
    Queues of RocketMQ that this version cannot read are named and not compared.

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history verify && echo clean
      beanstalkd-py history --store ./copy-of-a-broker verify --json | jq .faults

    Exit status 1 if anything is wrong.
    """
    from beanstalkd_py.history.verify import verify as check

    recorded, fault = _recorded_end(place)
    with place.reading(with_end=False) as store:
        report = check(store, recorded_end=recorded)
    if fault is not None:
        report.faults.append(fault)
    if as_json:
        write_json({"clean": report.is_clean, **dataclasses.asdict(report)})
    else:
        for fault in report.faults:
            write_line(str(fault))
        for text in report.unchecked:
            say(f"not compared: {text}")
        say(_summary(report))
    return 0 if report.is_clean else DAMAGED


def _recorded_end(place: Place) -> tuple[int, Fault | None]:
    """Up to where the log was on disk when the archiver wrote `archived`; a fault of that file."""
    from beanstalkd_py.archiver.archived_position import ARCHIVED, ArchivedPositions
    from beanstalkd_py.history.verify import Fault

    with told(place.folder):
        try:
            return ArchivedPositions.load(place.folder).log_end, None
        except errors.StoreDamagedError as error:
            path = place.folder / ARCHIVED
            return 0, Fault(str(path), 0, str(error).removeprefix(f"{path} "))


def _summary(report: Report) -> str:
    what = "clean" if report.is_clean else f"damaged; faults: {len(report.faults)}"
    if report.stopped:
        what += " (stopped here; there may be more)"
    return (
        f"{what}, messages: {report.messages}, log bytes: {report.log_bytes},"
        f" queue units: {report.units}, index entries: {report.entries}, pending: {report.pending}"
    )


@click.command()
@click.option(
    "--before",
    metavar="TIME",
    required=True,
    type=Moment(),
    help="Files that were not written to since then go.",
)
@AS_JSON
@click.pass_obj
def expire(place: Place, before: int, as_json: bool) -> int:
    """Remove the oldest files of a store that nobody has open.

    A file of the log goes as a whole, when its last write was before TIME and all older ones go;
    the last one always stays. Queue and index files go with the last message that they lead to.

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
    folder = place.folder
    with told(folder):
        options = Options(sizes=place.sizes(), create=False, background=False, retention=retention)
        with writing_history(folder), Store.open(folder, options) as store:
            if remade := store.recovered.remade:
                say(f"{folder} lacked a part of its {remade}; all are made again")
            if missing := store.recovered.missing_bytes:
                say(f"{folder} lacks {missing} bytes of its log that had been on disk")
            expired = store.expire(now)
    if as_json:
        write_json(dataclasses.asdict(expired))
    else:
        log = counted(expired.log_files, "log file")
        queues = counted(expired.queue_files, "queue file")
        write_line(f"removed {log}, {queues}, {counted(expired.index_files, 'index file')}")
    return 0
