"""Run time and memory of `timelines` for growing numbers of entries.

The C core writes a binlog with puts, reserves, releases, buries, kicks and deletes. It is read as
that of several hosts. Memory is the sampled maximum of this process, its JVM and its workers.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

from pyspark.sql import DataFrame, SparkSession

from beanstalkd_py import pipeline
from beanstalkd_py.core.clocks import read_clocks
from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.shared_memory import new_shared
from beanstalkd_py.pipeline.jobs.timelines import COLUMNS, timelines

FILE_BYTES = 10 << 20
JOBS_AT_ONCE = 500
SAMPLE_S = 0.2
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
SIZES = [1_000_000, 2_000_000, 4_000_000, 10_000_000]
DRIVER_MEMORY = "2g"
SHUFFLE_PARTITIONS = "32"


def make(folder: Path, entries: int) -> None:
    """Write about `entries` entries, 2.6 for each job."""
    shared, now = new_shared(), read_clocks()
    core = Core(CoreConfig(str(folder), FILE_BYTES, -1, 65535, history=True), shared, now)
    core.recover(now)
    session = core.open(now)
    rng = random.Random(1)
    made = job = 0
    while made < entries:
        ids = range(job + 1, job + JOBS_AT_ONCE + 1)
        job += JOBS_AT_ONCE
        commands = [b"use tube-%d\r\n" % (job // JOBS_AT_ONCE % 8)]
        commands += [b"put 1024 0 60 %d\r\n%b\r\n" % (90, b"x" * 90) for _ in ids]
        made += JOBS_AT_ONCE
        _feed(core, session, commands)
        commands = []
        for each in ids:
            later, more = _job_commands(each, rng.random())
            commands += later
            made += more
        _feed(core, session, commands)
    core.stop()
    core.close()


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


def _feed(core: Core, session: int, commands: list[bytes]) -> None:
    now = read_clocks()
    core.feed(session, b"".join(commands), now)
    core.commit(now)
    while core.output(session):
        pass
    for _ in core.events():
        pass


class Cost:
    """Memory and CPU seconds of this process and its children.

    On a busy machine CPU seconds are more reliable than run time.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.cpu_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Cost:
        self.cpu_s = -process_tree_usage()[1]
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self.cpu_s += process_tree_usage()[1]

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.bytes = max(self.bytes, process_tree_usage()[0])


def process_tree_usage() -> tuple[int, float]:
    """Return resident bytes, shared pages included, and CPU seconds of this process tree."""
    parents: dict[int, int] = {}
    used_by: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text().rpartition(")")[2].split()
            pages = int((path / "statm").read_text().split()[1])
        except (OSError, IndexError):
            continue  # the process has ended
        parents[int(path.name)] = int(stat[1])
        used_by[int(path.name)] = pages * PAGE, sum(map(int, stat[11:15]))
    size = ticks = 0
    for process, (its_size, its_ticks) in used_by.items():
        above = process
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        if above:
            size += its_size
            ticks += its_ticks
    return size, ticks / TICKS


def session() -> SparkSession:
    """Start a session with two threads and fixed memory."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def through(frame: DataFrame) -> float:
    """Compute all rows and return the seconds."""
    start = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


def measure(folder: Path, entries: int, sizes: list[int]) -> None:
    """Print a row for each size, a multiple of the entries of one host."""
    (folder / "one").mkdir()
    make(folder / "one", entries)
    spark = session()
    for size in sizes:
        top = folder / f"hosts-{size}"
        for host in range(max(1, round(size / entries))):
            binlog = top / f"host-{host}" / "binlog"
            binlog.mkdir(parents=True)
            # Links to files, because a linked folder is read only once.
            for path in (folder / "one").glob("binlog.*"):
                (binlog / path.name).hardlink_to(path)
        found = pipeline.read_binlog(spark, f"{top}/*/binlog", columns=list(COLUMNS))
        with Cost() as cost:
            took = through(timelines(found))
        count = found.count()
        print(
            f"timelines of {count / 1e6:6.2f} M entries {took:7.1f} s {cost.cpu_s:7.1f} CPU s"
            f" {count / cost.cpu_s / 1e6:6.3f} M entries/CPU s {cost.bytes / 1e9:6.2f} GB",
            flush=True,
        )
    spark.stop()
