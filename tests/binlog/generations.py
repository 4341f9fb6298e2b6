"""Contents of a folder of jobs, resharded or not, as the independent reader sees them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from binlog.reader import Entry, read_folder
from binlog.workload import Actor, run_steps
from core.rig import Rig, RigClient, put_line

from beanstalkd_py import errors
from beanstalkd_py.binlog import layout as layouts
from beanstalkd_py.binlog.layout import Layout
from beanstalkd_py.binlog.reshard import reshard, settle
from beanstalkd_py.binlog.steps import Steps
from beanstalkd_py.core.clocks import read_clocks
from beanstalkd_py.core.placement import shard_of

FILE = 4096
KILLED = 77


@dataclass(frozen=True)
class Stored:
    """The stored fields of a job. `at` is its deadline or the time of its last event."""

    tube: bytes
    body: bytes
    pri: int
    delay: int
    ttr: int
    created_at: int
    at: int
    counters: tuple[int, ...]
    state: str


Contents = dict[int, Stored]


def contents(folders: list[Path]) -> Contents:
    """Return every job of these folders; assert that no job is in two of them."""
    found: Contents = {}
    for folder in folders:
        jobs = _jobs_of(folder)
        assert not jobs.keys() & found.keys(), f"{folder} has jobs that another has, too"
        found |= jobs
    return found


def _jobs_of(folder: Path) -> Contents:
    jobs: Contents = {}
    for entry in read_folder(folder):
        old = jobs.pop(entry.id, None)
        if entry.state == "invalid" or (old is None and not entry.full):
            continue
        jobs[entry.id] = _stored(entry, old)
    return jobs


def _stored(entry: Entry, old: Stored | None) -> Stored:
    tube = entry.tube if entry.tube is not None else old and old.tube
    body = entry.body if entry.body is not None else old and old.body
    assert tube is not None and body is not None
    counters = (entry.reserves, entry.timeouts, entry.releases, entry.buries, entry.kicks)
    return Stored(
        tube,
        body,
        entry.pri,
        entry.delay,
        entry.ttr,
        entry.created_at,
        entry.deadline_at,
        counters,
        entry.state,
    )


def fill(folder: Path, steps: int = 150) -> None:
    """Fill an undivided folder with jobs of every kind, and abandon it as by a kill."""
    with Rig(folder, file_size=FILE, now=read_clocks()) as rig:
        client = rig.client()
        run_steps(Actor("filler", put_share=0.5), client, steps)
        put_buried(rig, client)


def put_buried(rig: Rig, client: RigClient) -> None:
    """Put jobs into ten tubes, and bury them in another order than that of their ids."""
    jobs = {}
    for i in range(20):
        client.send(b"use buried-%d\r\n" % (i % 10) + put_line(b"b%d" % i, ttr=1000))
        jobs[i] = int(client.read().split()[-1])
    for i in (*range(1, 20, 2), *range(18, -1, -2)):
        rig.advance(1_000_000)
        client.bury(jobs[i], pri=i)


def divided_as(top: Path, layout: Layout) -> Contents:
    """Check the folder's layout, and that each job is in its tube's shard; return all jobs."""
    names = {path.name for path in top.iterdir() if path.name[0].isalpha()}
    kept = {name for name in names if ".bad" in name}
    folders = layouts.folders_of(top, layout)
    if layout == layouts.WHOLE:
        assert not (top / "lock").is_symlink()
        own = {path.name for path in layouts.binlog_files(top)} | {"lock", "layout.lock"}
        assert names - kept <= own
        return contents(folders)
    assert (top / "lock").is_symlink()
    assert names - kept == {"lock", "layout", "layout.lock", *(path.name for path in folders)}
    for number, folder in enumerate(folders):
        for job in contents([folder]).values():
            assert shard_of(job.tube, layout.workers, layout.colocate) == number
    return contents(folders)


def bring_to(top: Path, layout: Layout, steps: Steps | None = None, file_size: int = FILE) -> None:
    """Reshard as the server's parent and the command do."""
    lock = layouts.lock_top(top)
    try:
        reshard(top, layout, file_size, steps)
    finally:
        lock.close()


def settled(top: Path) -> Contents:
    """Return the jobs that a start finds, whatever the layout."""
    lock = layouts.lock_top(top)
    try:
        return divided_as(top, settle(top, Steps()))
    finally:
        lock.close()


def check_settled(top: Path, before: Contents, new: Layout) -> None:
    """Check an interrupted reshard at once, after a start, and after a repeated reshard."""
    if not (top / "lock").is_symlink():
        # C beanstalkd could be started on this folder: all jobs must be here, and nowhere else.
        assert layouts.is_whole(top)
        assert contents([top]) == before
    assert settled(top) == before
    bring_to(top, new)
    assert divided_as(top, new) == before


class Countdown:
    """Acts at the n-th step: kills the process or raises an error."""

    def __init__(self, nth: int, error: int | None = None) -> None:
        self.left = nth
        self.error = error
        self.steps: list[str] = []

    def __call__(self, step: str) -> None:
        self.steps.append(step)
        self.left -= 1
        if self.left == 0 and self.error is None:
            os._exit(KILLED)
        if self.left == 0 and self.error is not None:
            raise OSError(self.error, os.strerror(self.error))


def killed_at(top: Path, layout: Layout, nth: int) -> bool:
    """Reshard in a process that dies at its nth step; return False if there are fewer steps."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            bring_to(top, layout, Steps(Countdown(nth)))
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, KILLED)
    return status == KILLED


def fails_at(top: Path, layout: Layout, nth: int, error: int) -> bool:
    """Reshard while the nth step fails; return False if there are fewer steps."""
    countdown = Countdown(nth, error)
    try:
        bring_to(top, layout, Steps(countdown))
    except errors.BinlogFolderError as failure:
        assert os.strerror(error) in str(failure)
        return True
    return countdown.left <= 0  # cleaning up after an error may fail silently
