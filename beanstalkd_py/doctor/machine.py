"""The machine and its kernel: limits, queues, clock, memory, processors."""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py.doctor.finding import Finding, ok, problem, size_text, unknown, warning
from beanstalkd_py.plural import counted

BACKLOG = 4096
"""What the server asks for; see server/accept/listeners.py."""
FEW_DESCRIPTORS = 4096
LEAST_KERNEL = (4, 14)
SPARE_SHARE = 0.8
_TIME_ERROR = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """Descriptors of a process: soft and hard limit, and how many it has open, None: unknown."""

    soft: int
    hard: int
    open: int | None


def limits_of(pid: int | str, proc: Path) -> Limits | None:
    """Of a process, by the text of its /proc/PID/limits; None if that cannot be read."""
    try:
        text = (proc / str(pid) / "limits").read_text()
    except OSError:
        return None
    found = re.search(r"^Max open files\s+(\S+)\s+(\S+)", text, re.MULTILINE)
    if found is None:
        return None
    soft, hard = (1 << 30 if word == "unlimited" else int(word) for word in found.groups())
    try:
        opened: int | None = len(list((proc / str(pid) / "fd").iterdir()))
    except OSError:
        opened = None
    return Limits(soft, hard, opened)


def check_descriptors(limits: Limits | None, whose: str, unit: str | None) -> Finding:
    """A connection takes one. `unit` is the systemd unit that runs the server, if one does."""
    name = "descriptors"
    if limits is None:
        return unknown(name, f"the limits of {whose} cannot be read", "run doctor as its user")
    where = f"LimitNOFILE= of {unit}" if unit else "ulimit -n, or LimitNOFILE= of its unit,"
    advice = f"raise {where} to 1048576: each connection takes one"
    used = "" if limits.open is None else f", {limits.open} in use"
    found = f"{whose} may have {limits.soft}{used}"
    if limits.open is not None and limits.open > SPARE_SHARE * limits.soft:
        return problem(name, found, advice)
    if limits.soft < FEW_DESCRIPTORS:
        return warning(name, found, advice)
    return ok(name, found)


def number_in(path: Path) -> int | None:
    """The number that a file of /proc or /sys holds; None without one."""
    try:
        return int(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def check_queue(name: str, setting: str, length: int | None) -> Finding:
    """A queue of the kernel in which new connections wait."""
    if length is None:
        return unknown(name, f"{setting} cannot be read here")
    found = f"{setting} is {length}"
    if length < 1024:
        advice = f"sysctl -w {setting}={BACKLOG}: when many clients connect at once, some wait"
        return warning(name, found, f"{advice} a second or more")
    return ok(name, found)


def read_clock_state() -> int | None:
    """What adjtimex says: 5 is not synchronised. None where it cannot be asked."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        # More than any struct timex has; zeros ask, and change nothing.
        state: int = libc.adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state


def check_clock(state: int | None, jump_s: float, newest_s: float | None, now_s: float) -> Finding:
    """`jump_s`: how far it went from the steady clock while doctor ran.

    `newest_s` is when the binlog was written last, seconds since the epoch.
    """
    if newest_s is not None and newest_s > now_s + 1:
        found = f"the binlog was written {newest_s - now_s:.0f} s in the future"
        return problem("clock", found, "set the clock: delays of jobs in the binlog count by it")
    if abs(jump_s) > 0.1:
        found = f"it jumped by {jump_s:+.1f} s just now"
        return warning("clock", found, "have it steered slowly: chrony or systemd-timesyncd")
    if state is None:
        return unknown("clock", "the kernel does not tell whether it is synchronised")
    if state == _TIME_ERROR:
        advice = "run chrony or systemd-timesyncd: ages and delays over a restart count by it"
        return warning("clock", "it is not synchronised", advice)
    return ok("clock", "it is synchronised")


def read_memory(proc: Path, cgroup: Path) -> tuple[int, int] | None:
    """Bytes that there are and that are free for this process; a container's limit counts."""
    try:
        text = (proc / "meminfo").read_text()
        found = dict(re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE))
        total, free = int(found["MemTotal"]) << 10, int(found["MemAvailable"]) << 10
    except (OSError, KeyError):
        return None
    limit, used = number_in(cgroup / "memory.max"), number_in(cgroup / "memory.current")
    if limit is not None and used is not None and limit < total:
        return limit, min(free, max(0, limit - used))
    return total, free


def check_memory(memory: tuple[int, int] | None, live: int | None, used: int | None) -> Finding:
    """Bytes: total and free; `live` of jobs in the binlog; `used` by the server, if it runs."""
    if memory is None:
        return unknown("memory", "/proc/meminfo cannot be read")
    total, free = memory
    found = f"{size_text(free)} of {size_text(total)} free"
    if used is not None:
        found += f", the server has {size_text(used)}"
    if live is not None:
        found += f", live jobs take {size_text(live)} of the binlog"
    needed = live if live is not None and used is None else 0
    if needed > free:
        advice = "all jobs are kept in memory: add memory, or delete jobs before the next start"
        return problem("memory", found, advice)
    if free < total // 10 or needed > free // 2:
        return warning("memory", found, "add memory, or see who else uses it: all jobs are in it")
    return ok("memory", found)


def check_overcommit(mode: int | None) -> Finding:
    """vm.overcommit_memory."""
    if mode is None:
        return unknown("overcommit", "vm.overcommit_memory cannot be read here")
    if mode == 2:
        advice = "watch CommitLimit in /proc/meminfo: puts get OUT_OF_MEMORY when it is reached"
        return warning("overcommit", "vm.overcommit_memory is 2: no more than there is", advice)
    return ok("overcommit", f"vm.overcommit_memory is {mode}")


def check_oom_score(adjustment: int | None) -> Finding:
    """/proc/PID/oom_score_adj of the server."""
    if adjustment is None:
        return unknown("oom killer", "no server runs here whose score could be read")
    found = f"the server's oom_score_adj is {adjustment}"
    if adjustment > 0:
        return warning("oom killer", found, "set OOMScoreAdjust=-500 in its unit: it goes first")
    return ok("oom killer", found)


def check_workers(workers: int, processors: int) -> Finding:
    """One worker keeps one processor busy at most."""
    found = f"{counted(workers, 'worker')}, {counted(processors, 'usable processor')}"
    if workers > processors:
        advice = f"give --workers {processors}: more of them wait for each other"
        return warning("workers", found, advice)
    return ok("workers", found)


def check_kernel(release: str) -> Finding:
    """Whether the system calls that the server needs are there."""
    found = re.match(r"(\d+)\.(\d+)", release)
    if found is None:
        return unknown("kernel", f"{release!r} is no version that is known here")
    version = int(found[1]), int(found[2])
    if version < LEAST_KERNEL:
        least = ".".join(map(str, LEAST_KERNEL))
        return problem("kernel", f"Linux {release}", f"use {least} or newer")
    return ok("kernel", f"Linux {release}")


def usable_processors() -> int:
    """Those that this process may run on."""
    return len(os.sched_getaffinity(0))
