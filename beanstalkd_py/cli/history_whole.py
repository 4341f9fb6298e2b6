"""`history verify` and `expire`: a store as a whole."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import click

from beanstalkd_py.cli.history_store import AS_JSON, DAMAGED, Place, told
from beanstalkd_py.cli.output import counted, say, write_json, write_line
from beanstalkd_py.cli.owner import become_owner
from beanstalkd_py.cli.times import NS_PER_S, Moment

if TYPE_CHECKING:
    from beanstalkd_py.history.verify import Report


@click.command()
@AS_JSON
@click.pass_obj
def verify(place: Place, as_json: bool) -> int:
    """Compare log, queues and index; one line for each fault.

    A line is `file:offset: what is wrong`. At most 1000 are told. Of a store that is being written,
    messages that queues and index do not have yet are counted as pending and are no fault.

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history verify && echo clean
      beanstalkd-py history --store ./copy-of-a-broker verify --json | jq .faults

    Exit status 1 if anything is wrong.
    """
    from beanstalkd_py.history.verify import verify as check

    with place.reading(with_end=False) as store:
        report = check(store)
    if as_json:
        write_json({"clean": report.is_clean, **dataclasses.asdict(report)})
    else:
        for fault in report.faults:
            write_line(str(fault))
        say(_summary(report))
    return 0 if report.is_clean else DAMAGED


def _summary(report: Report) -> str:
    what = "clean" if report.is_clean else f"damaged; faults: {len(report.faults)}"
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
      beanstalkd-py history --store /var/lib/history expire --before 2026-11-01T00:00:00
    """
    from beanstalkd_py.history.options import Options, Retention
    from beanstalkd_py.history.store import Store

    now = time.time()
    retention = Retention(
        reserved_seconds=now - before / NS_PER_S, disk_crowded=2.0, files_at_once=2**31
    )
    folder = place.folder
    with told(folder):
        options = Options(sizes=place.sizes(), create=False, background=False, retention=retention)
        if folder.is_dir():
            become_owner(folder)
        with Store.open(folder, options) as store:
            expired = store.expire(now)
    if as_json:
        write_json(dataclasses.asdict(expired))
    else:
        log = counted(expired.log_files, "log file")
        queues = counted(expired.queue_files, "queue file")
        write_line(f"removed {log}, {queues}, {counted(expired.index_files, 'index file')}")
    return 0
