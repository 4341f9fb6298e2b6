"""Run time and memory of `timelines` for growing numbers of entries.

The C core writes a binlog with puts, reserves, releases, buries, kicks and deletes. It is read as
that of several hosts. Memory is the sampled maximum of this process, its JVM and its workers.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py import pipeline
from beanstalkd_py.pipeline.jobs.timelines import COLUMNS, timelines

from .processes import process_tree
from .spark import seconds_of, session, write_binlog

JOBS_AT_ONCE = 500
SAMPLE_S = 0.2
SIZES = [1_000_000, 2_000_000, 4_000_000, 10_000_000]
MEMORY = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "32"}


def batches(entries: int) -> Iterator[list[bytes]]:
    """Yield commands that write about `entries` entries, 2.6 for each job."""
    rng = random.Random(1)
    made = job = 0
    while made < entries:
        ids = range(job + 1, job + JOBS_AT_ONCE + 1)
        job += JOBS_AT_ONCE
        commands = [b"use tube-%d\r\n" % (job // JOBS_AT_ONCE % 8)]
        commands += [b"put 1024 0 60 %d\r\n%b\r\n" % (90, b"x" * 90) for _ in ids]
        made += JOBS_AT_ONCE
        yield commands
        commands = []
        for each in ids:
            later, more = _job_commands(each, rng.random())
            commands += later
            made += more
        yield commands


def _job_commands(job: int, draw: float) -> tuple[list[bytes], int]:
    """Return the commands after a put, and their number of entries."""
    reserve, delete = b"reserve-job %d\r\n" % job, b"delete %d\r\n" % job
    if draw < 0.1:
        return [], 0
    if draw < 0.3:
        return [reserve, b"release %d 7 0\r\n" % job, reserve, delete], 2
    if draw < 0.4:
        kick = b"kick-job %d\r\n" % job
        return [reserve, b"bury %d 7\r\n" % job, kick, reserve, delete], 3
    if draw < 0.5:
        return [reserve, b"touch %d\r\n" % job, delete], 3
    return [reserve, delete], 1


@dataclass
class Cost:
    """Memory and CPU seconds of this process and its children.

    On a busy machine CPU seconds are more reliable than run time.
    """

    bytes: int = 0
    cpu_s: float = 0.0


@contextlib.contextmanager
def measured_cost() -> Iterator[Cost]:
    """Measure the `with` block."""
    cost = Cost(cpu_s=-process_tree_usage()[1])
    over = threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            cost.bytes = max(cost.bytes, process_tree_usage()[0])

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield cost
    finally:
        over.set()
        thread.join()
        cost.cpu_s += process_tree_usage()[1]


def process_tree_usage() -> tuple[int, float]:
    """Return resident bytes, shared pages included, and CPU seconds of this process tree."""
    tree = process_tree(os.getpid())
    cpu_ns = sum(stat.cpu_ns + stat.children_cpu_ns for stat in tree)
    return sum(stat.rss_bytes for stat in tree), cpu_ns / 1e9


def measure(folder: Path, entries: int, sizes: list[int]) -> None:
    """Print a row for each size, a multiple of the entries of one host."""
    (folder / "one").mkdir()
    write_binlog(folder / "one", batches(entries), history=True)
    spark = session(MEMORY)
    for size in sizes:
        top = folder / f"hosts-{size}"
        for host in range(max(1, round(size / entries))):
            binlog = top / f"host-{host}" / "binlog"
            binlog.mkdir(parents=True)
            # Links to files, because a linked folder is read only once.
            for path in (folder / "one").glob("binlog.*"):
                (binlog / path.name).hardlink_to(path)
        found = pipeline.read_binlog(spark, f"{top}/*/binlog", columns=list(COLUMNS))
        with measured_cost() as cost:
            took_s = seconds_of(timelines(found))
        count = found.count()
        print(
            f"timelines of {count / 1e6:6.2f} M entries {took_s:7.1f} s {cost.cpu_s:7.1f} CPU s"
            f" {count / cost.cpu_s / 1e6:6.3f} M entries/CPU s {cost.bytes / 1e9:6.2f} GB",
            flush=True,
        )
    spark.stop()
