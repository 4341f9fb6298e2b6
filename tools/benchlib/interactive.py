"""Run time and CPU time of `tube-metrics` and `report` over a small binlog, with their starts.

CPU time is that of all processes, Java and the workers included, sampled until each ends.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from .processes import process_tree
from .spark import write_binlog
from .timelines import batches

ENTRIES = 52_000
"""Of 20,000 jobs."""
SAMPLE_S = 0.05


def measure(folder: Path, rounds: int) -> None:
    binlog = folder / "small"
    binlog.mkdir()
    write_binlog(binlog, batches(ENTRIES), history=True)
    page = str(folder / "report.html")
    commands = {"tube-metrics": ("run", "tube-metrics"), "report": ("report", "-o", page)}
    for _ in range(rounds):
        for name, words in commands.items():
            run_s, cpu_s = cost_of(*words, "-i", str(binlog))
            print(f"{name:12} of 20,000 jobs {run_s:7.1f} s {cpu_s:7.1f} CPU s", flush=True)


def cost_of(*words: str) -> tuple[float, float]:
    """Return run time and CPU time of a command of the pipeline, which must succeed."""
    command = [sys.executable, "-m", "beanstalkd_py", "pipeline", *words]
    begin, used = time.perf_counter(), dict[tuple[int, int], int]()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            used |= {(one.pid, one.start_ticks): one.cpu_ns for one in process_tree(process.pid)}
            time.sleep(SAMPLE_S)
    run_s = time.perf_counter() - begin
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed")
    return run_s, sum(used.values()) / 1e9
