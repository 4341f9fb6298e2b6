"""Read CPU time and memory of a process and all its descendants from /proc."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessStat:
    """The used fields of /proc/PID/stat. The pid may be reused; pid and start are unique.

    `children_cpu_ns` is the CPU time of ended children.
    """

    pid: int
    parent: int
    start_ticks: int
    cpu_ns: int
    children_cpu_ns: int
    rss_bytes: int


def process_stat(pid: int) -> ProcessStat | None:
    """Return None if the process has ended, also if it is a zombie."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name in parentheses may contain spaces and parentheses, so count from its end.
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return ProcessStat(
        pid=pid,
        parent=int(fields[1]),
        start_ticks=int(fields[19]),
        cpu_ns=(int(fields[11]) + int(fields[12])) * TICK_NS,
        children_cpu_ns=(int(fields[13]) + int(fields[14])) * TICK_NS,
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


def process_tree(root: int) -> list[ProcessStat]:
    """Return the process `root` and all its running descendants."""
    everyone = [process_stat(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit()]
    children: dict[int, list[ProcessStat]] = {}
    for stat in everyone:
        if stat is not None:
            children.setdefault(stat.parent, []).append(stat)
    first = process_stat(root)
    tree = [first] if first is not None else []
    for stat in tree:
        tree.extend(children.get(stat.pid, ()))
    return tree


def thread_cpu_ns(pid: int) -> int:
    """Return the CPU time of all threads from schedstat, in nanoseconds instead of ticks."""
    total = 0
    for task in (PROC / str(pid) / "task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total


def tree_cpu_ns(root: int) -> int:
    """Return user and system time of the process and its descendants."""
    total = 0
    for stat in process_tree(root):
        try:
            total += thread_cpu_ns(stat.pid) or stat.cpu_ns
        except OSError:  # the kernel has no schedstat, or a thread has just ended
            total += stat.cpu_ns
    return total


def tree_rss_bytes(root: int) -> int:
    """Return the resident memory of the process and its descendants, shared pages included."""
    return sum(stat.rss_bytes for stat in process_tree(root))


def filesystem_type(path: Path) -> str:
    """Return the type of the file system of `path`, because syncs on tmpfs measure nothing."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in (PROC / "self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"


def machine_facts(folder: Path) -> str:
    """Return CPU model, cores, kernel and the disk's file system in one line."""
    model = "unknown CPU"
    for line in (PROC / "cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return (
        f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, "
        f"binlogs on {filesystem_type(folder)}, Python {platform.python_version()}"
    )
