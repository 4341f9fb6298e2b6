"""The disk under a binlog folder: its room, its kind, and how long it takes to have something."""

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
SYNC_MOST = 100
SYNC_LIMIT_S = 2.0
SLOW_SYNC_S = 0.02
SLOW_WORST_S = 0.5
TOO_FAST_S = 0.00003
"""Not even a good disk has something on it so soon."""
TOO_FAST_ROTATING_S = 0.001

_VIRTUAL = ("vd", "xvd", "dm-", "md", "loop")
_IN_MEMORY = ("tmpfs", "ramfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "afs")


def check_space(free: int, used: int, needed: int) -> Finding:
    """Bytes: free on the disk, used by the binlog, needed for the next files of all workers."""
    found = f"{size_text(free)} free, the binlog has {size_text(used)}"
    if free < needed:
        advice = f"make room: at least {size_text(needed)} for the next files, or puts are refused"
        return problem("disk space", found, advice)
    if free < used + needed:
        advice = "another number of workers, repair and compact write a second copy: make room"
        return warning("disk space", found, advice)
    return ok("disk space", found)


def check_inodes(free: int, total: int) -> Finding:
    """Files that can still be made; file systems without such a limit have a total of 0."""
    if total == 0:
        return ok("inodes", "this file system has no limit of them")
    found = f"{free} of {total} are free"
    if free < NO_INODES:
        return problem("inodes", found, "remove files: the binlog cannot begin new ones soon")
    if free < FEW_INODES:
        return warning("inodes", found, "remove files that nobody needs from this file system")
    return ok("inodes", found)


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a folder lies: mount point, kind of file system, device, and options."""

    point: str
    kind: str
    source: str
    options: frozenset[str]


def mount_of(folder: Path, mountinfo: str) -> Mount | None:
    """The mount of an absolute folder, by the text of /proc/self/mountinfo."""
    best: Mount | None = None
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if not dash or len(fields) < 6 or len(rest) < 3:
            continue
        point = fields[4].encode().decode("unicode_escape")
        inside = folder == Path(point) or Path(point) in folder.parents
        # Of mounts on one place the last one counts.
        if inside and (best is None or len(point) >= len(best.point)):
            options = frozenset([*fields[5].split(","), *rest[2].split(",")])
            best = Mount(point, rest[0], rest[1], options)
    return best


def check_filesystem(mount: Mount | None) -> Finding:
    """Whether what is acknowledged is still there after a power cut."""
    name = "file system"
    if mount is None:
        return unknown(name, "the folder's mount is not in /proc/self/mountinfo")
    found = f"{mount.kind} on {mount.source}, mounted at {mount.point}"
    if mount.kind in _IN_MEMORY:
        advice = "put the binlog on a disk: what is in memory is lost with the machine"
        return problem(name, found, advice)
    if "ro" in mount.options:
        return problem(name, f"{found}, read-only", "mount it for writing: mount -o remount,rw")
    if mount.kind == "overlay":
        advice = (
            "mount a volume there: a container's own layer is lost with the container, and slow"
        )
        return warning(name, found, advice)
    if mount.kind in _REMOTE or mount.kind.startswith("fuse"):
        advice = (
            "use a local disk: each reply waits for the network, and locks depend on the server"
        )
        return warning(name, found, advice)
    if "nobarrier" in mount.options or "barrier=0" in mount.options:
        advice = "mount it with barriers: without, a power cut can lose what was synced"
        return warning(name, f"{found}, without barriers", advice)
    return ok(name, found)


def measure_sync(
    folder: Path, sync: Callable[[int], None] = os.fdatasync, limit_s: float = SYNC_LIMIT_S
) -> list[float]:
    """Seconds of each of some syncs of a file in the folder, which is removed. Raises OSError."""
    taken: list[float] = []
    # It has no name if the file system can do that, so nothing is left whatever happens.
    with tempfile.TemporaryFile(dir=folder, prefix=".beanstalkd-py-doctor-") as file:
        end = time.monotonic() + limit_s
        while len(taken) < SYNC_MOST and time.monotonic() < end:
            os.write(file.fileno(), os.urandom(SYNC_BYTES))
            begin = time.perf_counter()
            sync(file.fileno())
            taken.append(time.perf_counter() - begin)
    return taken


def check_sync(taken: list[float], rotates: bool | None) -> Finding:
    """Seconds that syncs took; whether the disk rotates, None if that is not known."""
    name = "fsync latency"
    if len(taken) < 2:
        return problem(
            name,
            f"{counted(len(taken), 'sync')} in {SYNC_LIMIT_S:g} s",
            "look at the disk (dmesg, smartctl): every reply waits for it",
        )
    median = statistics.median(taken)
    worst = statistics.quantiles(taken, n=100, method="inclusive")[98]
    found = f"median {median * 1e3:.2f} ms, p99 {worst * 1e3:.2f} ms, of {len(taken)}"
    if median < (TOO_FAST_ROTATING_S if rotates else TOO_FAST_S):
        advice = (
            "that is faster than a disk can be: make sure that its cache outlives a power cut,"
            " or turn the cache off (hdparm -W0)"
        )
        return warning(name, found, advice)
    if median > SLOW_SYNC_S:
        advice = "use a faster disk, or give -f MS: replies are acknowledged before they are synced"
        return warning(name, found, advice)
    if worst > SLOW_WORST_S:
        advice = "see who else writes to this disk (iostat -x 1): replies wait as long as that"
        return warning(name, found, advice)
    return ok(name, found)


def rotates(device: int, sys_folder: Path) -> bool | None:
    """Whether a disk, by its device number, has a rotating plate; None if that is not known."""
    block = sys_folder / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"
    if block.resolve().name.startswith(_VIRTUAL):
        return None  # what they say of it is nothing that anybody has looked up
    for place in (block / "queue", block.resolve().parent / "queue"):
        try:
            return (place / "rotational").read_text().strip() == "1"
        except OSError:
            continue
    return None
