"""Checks of the disk under a binlog folder: space, inodes, file system, latency of syncs."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py.doctor.finding import Finding, ok, problem, size_text, unknown, warning
from beanstalkd_py.plural import counted

FEW_INODES = 1_000
NO_INODES = 50
SYNC_BYTES = 4096
MAX_SYNCS = 100
SYNC_LIMIT_S = 2.0
SLOW_SYNC_S = 0.02
SLOW_P99_S = 0.5
TOO_FAST_S = 0.00003
"""The latency of the fastest durable disks."""
TOO_FAST_ROTATING_S = 0.001

_VIRTUAL = ("vd", "xvd", "dm-", "md", "loop")
_IN_MEMORY = ("tmpfs", "ramfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "afs")


def check_space(free: int, used: int, needed: int) -> Finding:
    """Check bytes: free on the disk, used by the binlog, needed for the next files of workers."""
    found = f"{size_text(free)} free, the binlog uses {size_text(used)}"
    if free < needed:
        advice = f"free at least {size_text(needed)} for the next files, or puts will be refused"
        return problem("disk space", found, advice)
    if free < used + needed:
        advice = "free more: a reshard, repair or compact writes a second copy of the binlog"
        return warning("disk space", found, advice)
    return ok("disk space", found)


def check_inodes(free: int, total: int) -> Finding:
    """Check numbers of inodes. File systems without a limit have a total of 0."""
    if total == 0:
        return ok("inodes", "this file system has no limit")
    found = f"{free} of {total} free"
    if free < NO_INODES:
        return problem("inodes", found, "remove files: the binlog soon cannot create new ones")
    if free < FEW_INODES:
        return warning("inodes", found, "remove unused files from this file system")
    return ok("inodes", found)


@dataclass(frozen=True, slots=True)
class Mount:
    point: str
    kind: str
    source: str
    options: frozenset[str]


def mount_of(folder: Path, mountinfo: str) -> Mount | None:
    """Find the mount of an absolute folder in the text of /proc/self/mountinfo."""
    best: Mount | None = None
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if not dash or len(fields) < 6 or len(rest) < 3:
            continue
        point = fields[4].encode().decode("unicode_escape")
        inside = folder == Path(point) or Path(point) in folder.parents
        # The last mount on a mount point hides earlier ones.
        if inside and (best is None or len(point) >= len(best.point)):
            options = frozenset([*fields[5].split(","), *rest[2].split(",")])
            best = Mount(point, rest[0], rest[1], options)
    return best


def check_filesystem(mount: Mount | None) -> Finding:
    """Check whether acknowledged jobs survive a power cut."""
    name = "file system"
    if mount is None:
        return unknown(name, "the folder's mount is not in /proc/self/mountinfo")
    found = f"{mount.kind} on {mount.source}, mounted at {mount.point}"
    if mount.kind in _IN_MEMORY:
        return problem(name, found, "move the binlog to a disk: a restart erases this file system")
    if "ro" in mount.options:
        return problem(name, f"{found}, read-only", "remount it: mount -o remount,rw")
    if mount.kind == "overlay":
        advice = "mount a volume: the container's layer is slow and is removed with the container"
        return warning(name, found, advice)
    if mount.kind in _REMOTE or mount.kind.startswith("fuse"):
        advice = "use a local disk: replies wait for the network, and locks depend on its server"
        return warning(name, found, advice)
    if "nobarrier" in mount.options or "barrier=0" in mount.options:
        advice = "mount it with barriers: without them, a power cut can lose synced data"
        return warning(name, f"{found}, without barriers", advice)
    return ok(name, found)


def measure_sync(
    folder: Path, sync: Callable[[int], None] = os.fdatasync, limit_s: float = SYNC_LIMIT_S
) -> list[float]:
    """Return the seconds of each sync of a temporary file in the folder. Raises OSError."""
    times: list[float] = []
    # On most file systems the file has no name, so that a kill leaves nothing behind.
    with tempfile.TemporaryFile(dir=folder, prefix=".beanstalkd-py-doctor-") as file:
        end = time.monotonic() + limit_s
        while len(times) < MAX_SYNCS and time.monotonic() < end:
            os.write(file.fileno(), os.urandom(SYNC_BYTES))
            begin = time.perf_counter()
            sync(file.fileno())
            times.append(time.perf_counter() - begin)
    return times


def check_sync(times: list[float], rotates: bool | None) -> Finding:
    """Check the seconds of syncs. `rotates` is whether the disk rotates, None if unknown."""
    name = "fsync latency"
    if len(times) < 2:
        found = f"{counted(len(times), 'sync')} in {SYNC_LIMIT_S:g} s"
        return problem(name, found, "check the disk (dmesg, smartctl): every reply waits for it")
    median = statistics.median(times)
    p99 = statistics.quantiles(times, n=100, method="inclusive")[98]
    found = f"median {median * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms, of {len(times)}"
    if median < (TOO_FAST_ROTATING_S if rotates else TOO_FAST_S):
        advice = (
            "too fast for a disk: make sure that its cache survives a power cut,"
            " or disable the cache (hdparm -W0)"
        )
        return warning(name, found, advice)
    if median > SLOW_SYNC_S:
        advice = "use a faster disk, or use -f MS to acknowledge jobs before they are synced"
        return warning(name, found, advice)
    if p99 > SLOW_P99_S:
        advice = "find other writers to this disk (iostat -x 1): replies wait for them"
        return warning(name, found, advice)
    return ok(name, found)


def rotates(device: int, sys_folder: Path) -> bool | None:
    """Return whether the disk with this device number rotates; None if unknown."""
    block = sys_folder / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"
    if block.resolve().name.startswith(_VIRTUAL):
        return None  # virtual devices report arbitrary values
    for queue in (block / "queue", block.resolve().parent / "queue"):
        try:
            return (queue / "rotational").read_text().strip() == "1"
        except OSError:
            continue
    return None
