"""Checks of the machine and its kernel: limits, queues, clock, memory, processors."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py.doctor.finding import Finding, ok, problem, size_text, unknown, warning
from beanstalkd_py.plural import counted

BACKLOG = 4096
"""The value of server/accept/listeners.py."""
FEW_DESCRIPTORS = 4096
MIN_KERNEL = (4, 14)
MAX_USED_SHARE = 0.8
_TIME_ERROR = 5
"""TIME_ERROR of adjtimex(2): the clock is not synchronised."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A process's limits of open files and its number of open files; None is unknown."""

    soft: int
    hard: int
    open: int | None


def read_text(path: Path) -> str:
    """Return the text of a kernel file, or "" if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def read_limits(pid: int | str, proc: Path) -> Limits | None:
    text = read_text(proc / str(pid) / "limits")
    found = re.search(r"^Max open files\s+(\S+)\s+(\S+)", text, re.MULTILINE)
    if found is None:
        return None
    soft, hard = (1 << 30 if word == "unlimited" else int(word) for word in found.groups())
    try:
        return Limits(soft, hard, len(list((proc / str(pid) / "fd").iterdir())))
    except OSError:
        return Limits(soft, hard, None)


def check_descriptors(limits: Limits | None, process: str, unit: str | None) -> Finding:
    """Check the limit of open files. `process` is a name, `unit` the server's systemd unit."""
    name = "descriptors"
    if limits is None:
        return unknown(name, f"cannot read the limits of {process}", "run doctor as its user")
    where = f"LimitNOFILE= of {unit}" if unit else "ulimit -n or LimitNOFILE= of its unit"
    advice = f"raise {where} to 1048576: each connection uses one"
    used = "" if limits.open is None else f", {limits.open} in use"
    found = f"limit of {process} is {limits.soft}{used}"
    if limits.open is not None and limits.open > MAX_USED_SHARE * limits.soft:
        return problem(name, found, advice)
    if limits.soft < FEW_DESCRIPTORS:
        return warning(name, found, advice)
    return ok(name, found)


def read_number(path: Path) -> int | None:
    try:
        return int(read_text(path).split()[0])
    except (ValueError, IndexError):
        return None


def check_queue(name: str, setting: str, length: int | None) -> Finding:
    if length is None:
        return unknown(name, f"cannot read {setting}")
    found = f"{setting} is {length}"
    if length < 1024:
        advice = f"sysctl -w {setting}={BACKLOG}: bursts of connections wait a second or more"
        return warning(name, found, advice)
    return ok(name, found)


def read_clock_state() -> int | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        # Larger than any struct timex; zeros only query.
        state: int = libc.adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state


def check_clock(state: int | None, jump_s: float, newest_s: float | None, now_s: float) -> Finding:
    """Check the clock.

    `jump_s` is how far the clock moved against the monotonic clock while doctor ran. `newest_s` is
    the last write of the binlog in seconds since the epoch.
    """
    if newest_s is not None and newest_s > now_s + 1:
        found = f"the last write of the binlog is {newest_s - now_s:.0f} s in the future"
        return problem("clock", found, "set the clock: delays in the binlog depend on it")
    if abs(jump_s) > 0.1:
        found = f"it jumped by {jump_s:+.1f} s"
        return warning("clock", found, "use chrony or systemd-timesyncd, which adjust it slowly")
    if state is None:
        return unknown("clock", "the kernel does not report its state")
    if state == _TIME_ERROR:
        advice = "run chrony or systemd-timesyncd: delays across restarts depend on the clock"
        return warning("clock", "not synchronised", advice)
    return ok("clock", "synchronised")


def read_memory(proc: Path, cgroup: Path) -> tuple[int, int] | None:
    """Return total and available bytes, within the limit of a container."""
    kib = dict(re.findall(r"^(\w+):\s+(\d+) kB", read_text(proc / "meminfo"), re.MULTILINE))
    if "MemTotal" not in kib or "MemAvailable" not in kib:
        return None
    total, free = int(kib["MemTotal"]) << 10, int(kib["MemAvailable"]) << 10
    limit, used = read_number(cgroup / "memory.max"), read_number(cgroup / "memory.current")
    if limit is not None and used is not None and limit < total:
        return limit, min(free, max(0, limit - used))
    return total, free


def check_memory(memory: tuple[int, int] | None, live: int | None, used: int | None) -> Finding:
    """Check bytes: (total, free); `live` is the size of live jobs, `used` that of the server."""
    if memory is None:
        return unknown("memory", "cannot read /proc/meminfo")
    total, free = memory
    found = f"{size_text(free)} of {size_text(total)} free"
    if used is not None:
        found += f", the server uses {size_text(used)}"
    if live is not None:
        found += f", live jobs use {size_text(live)} of the binlog"
    needed = live if live is not None and used is None else 0
    if needed > free:
        advice = "add memory, or delete jobs before the next start: all jobs are in memory"
        return problem("memory", found, advice)
    if free < total // 10 or needed > free // 2:
        advice = "add memory, or stop other processes: all jobs are in memory"
        return warning("memory", found, advice)
    return ok("memory", found)


def check_overcommit(mode: int | None) -> Finding:
    if mode is None:
        return unknown("overcommit", "cannot read vm.overcommit_memory")
    if mode == 2:
        advice = "monitor CommitLimit in /proc/meminfo: above it, puts get OUT_OF_MEMORY"
        return warning("overcommit", "vm.overcommit_memory is 2: no overcommit", advice)
    return ok("overcommit", f"vm.overcommit_memory is {mode}")


def check_oom_score(adjustment: int | None) -> Finding:
    if adjustment is None:
        return unknown("oom killer", "no running server found")
    found = f"the server's oom_score_adj is {adjustment}"
    if adjustment > 0:
        advice = "set OOMScoreAdjust=-500 in its unit: the kernel kills it early"
        return warning("oom killer", found, advice)
    return ok("oom killer", found)


def check_workers(workers: int, processors: int) -> Finding:
    found = f"{counted(workers, 'worker')}, {counted(processors, 'usable processor')}"
    if workers > processors:
        advice = f"use --workers {processors}: more workers compete for processors"
        return warning("workers", found, advice)
    return ok("workers", found)


def check_kernel(release: str) -> Finding:
    version = re.match(r"(\d+)\.(\d+)", release)
    if version is None:
        return unknown("kernel", f"unknown version {release!r}")
    if (int(version[1]), int(version[2])) < MIN_KERNEL:
        minimum = ".".join(map(str, MIN_KERNEL))
        return problem("kernel", f"Linux {release}", f"use {minimum} or newer")
    return ok("kernel", f"Linux {release}")
