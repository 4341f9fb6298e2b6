"""Create and remove backups, for test_backup_power_cut.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from binlog.generations import FILE, KILLED, fill
from crash.steps_of_work import record_ranges

from beanstalkd_py.backup.create import create
from beanstalkd_py.backup.target import Target
from beanstalkd_py.binlog.compact import compact
from beanstalkd_py.binlog.folders import locked_folder
from beanstalkd_py.pipeline.sources import remote


def jobs_of(folder: Path) -> Path:
    """Fill a folder that is not recorded."""
    jobs = folder.parents[1] / "jobs"
    jobs.mkdir()
    fill(jobs)
    return jobs


def create_after_kill(folder: Path) -> Iterator[None]:
    """Kill a backup before it has synced the name of its last chunk, and create another one."""
    jobs = jobs_of(folder)
    other = folder.parents[1] / "other"
    create(jobs, Target(str(other)), "one")
    chunks = len(list((other / "chunks").iterdir()))
    child = os.fork()
    if child == 0:
        sync = remote._sync

        def sync_or_end(path: str) -> None:
            if path.endswith("chunks") and len(list(Path(path).iterdir())) == chunks:
                os._exit(KILLED)
            sync(path)

        remote._sync = sync_or_end
        create(jobs, Target(str(folder)), "killed")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED
    yield
    create(jobs, Target(str(folder)), "one")
    yield


def remove(folder: Path) -> Iterator[None]:
    jobs = jobs_of(folder)
    target = Target(str(folder))
    create(jobs, target, "one")
    with locked_folder(jobs, writing=True) as found:
        compact(found, FILE)  # so that the next one has other chunks
    create(jobs, target, "two")
    yield
    target.remove(["one"])
    yield


if __name__ == "__main__":
    record_ranges({"create": create_after_kill, "remove": remove})
