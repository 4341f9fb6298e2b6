"""Checks of a binlog folder: permissions, lock, layout, and damage."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.binlog.folders import Folder, holder_of
from beanstalkd_py.binlog.layout import LOCK, TOP_LOCK
from beanstalkd_py.binlog.verify import Verdict as Verified
from beanstalkd_py.doctor.finding import Finding, ok, problem, size_text, unknown, warning
from beanstalkd_py.doctor.machine import read_text
from beanstalkd_py.plural import counted

MAX_READ_BYTES = 1 << 30
"""Larger binlogs are read only with --full."""


def check_permissions(folders: list[Path], uid: int, gids: frozenset[int], user: str) -> Finding:
    """Check that the user can use the folders and all files of a server in them."""
    name = "permissions"
    for folder in folders:
        if not _has_permission(folder.stat(), uid, gids, 0o7):
            return problem(name, f"{user} cannot use {folder}", f"chown -R {user} {folder}")
        for path in sorted(folder.iterdir()):
            status = path.lstat()
            # A symbolic link marks a divided folder.
            if not stat.S_ISREG(status.st_mode):
                continue
            # C beanstalkd creates read-only files. Only locks need write permission, because a
            # server writes only to files that it has created itself.
            locks = path.name in (LOCK, TOP_LOCK)
            if not _has_permission(status, uid, gids, 0o6 if locks else 0o4):
                found = f"{user} cannot {'read and write' if locks else 'read'} {path}"
                return problem(name, found, f"chown {user} {path}")
    exposed = _world_readable(folders)
    if exposed is not None:
        found = f"{user} can use it, and every user can read jobs in {exposed}"
        return warning(name, found, f"chmod 700 {folders[0]}, unless other users read jobs")
    return ok(name, f"{user} can use all files")


def _world_readable(folders: list[Path]) -> Path | None:
    """Return a binlog file that any user can open. The first folder contains the other folders."""
    if not folders[0].stat().st_mode & stat.S_IXOTH:
        return None
    for folder in folders:
        if folder.stat().st_mode & stat.S_IXOTH:
            for path in sorted(folder.glob("binlog.*")):
                if path.lstat().st_mode & stat.S_IROTH:
                    return path
    return None


def _has_permission(status: os.stat_result, uid: int, gids: frozenset[int], bits: int) -> bool:
    if uid == 0:
        return True
    shift = 6 if status.st_uid == uid else 3 if status.st_gid in gids else 0
    return status.st_mode >> shift & bits == bits


def check_lock(top: Path, proc: Path, server: tuple[int, ...] = ()) -> Finding:
    """Check the holder of the lock; `server` has the process ids of the checked server, if any."""
    for lock in (top / TOP_LOCK, top / LOCK):
        holder = holder_of(lock)
        if holder is None:
            continue
        found = f"held by {_described(holder, proc)}"
        if holder and server and holder not in server:
            found += f", but the server on this address is process {server[0]}"
            return warning("lock", found, "use --addr and the folder of the same server")
        return ok("lock", found)
    return ok("lock", "not held: no server runs on this folder")


def _described(pid: int, proc: Path) -> str:
    if pid == 0:
        return "a process of another container"
    name = read_text(proc / str(pid) / "comm").strip()
    return f"process {pid} ({name})" if name else f"process {pid}"


def check_layout(folder: Folder, set_aside: list[Path], workers: int | None) -> Finding:
    """Check the shards; `set_aside` are damaged files, `workers` is the configured number."""
    name = "layout"
    if folder.missing:
        found = f"{', '.join(folder.missing)} missing"
        return problem(name, found, "restore them, or their jobs are lost")
    if folder.foreign_files:
        found = f"{', '.join(folder.foreign_files)} of another server beside shards"
        advice = "move them to a folder of their own and serve it: their job ids may collide"
        return problem(name, found, advice)
    if set_aside:
        files = counted(len(set_aside), "damaged file")
        found = f"{folder.layout}; {files} set aside, such as {set_aside[0]}"
        return warning(name, found, "inspect them (binlog repair), then move them away")
    if workers is not None and workers != folder.layout.workers:
        found = f"{folder.layout} now; the next start reshards it to {counted(workers, 'worker')}"
        return ok(name, found)
    return ok(name, str(folder.layout))


def too_large_to_read(folder: Folder, size: int) -> Finding:
    advice = f"run doctor --full, or 'beanstalkd-py binlog verify {folder.top}'"
    return unknown("binlog health", f"{size_text(size)} not read", advice)


def check_health(folder: Folder, verified: Verified) -> Finding:
    if verified.clean:
        entries = counted(verified.entries, "entry")
        files, jobs = counted(verified.files, "file"), counted(verified.jobs, "live job")
        return ok("binlog health", f"{entries} in {files}, {jobs}")
    found = f"{counted(len(verified.damage), 'damaged place')}; {verified.damage[0]}"
    return problem("binlog health", found, f"beanstalkd-py binlog repair {folder.top}")


def unusable(error: errors.BinlogFolderError) -> Finding:
    found, _, advice = str(error).partition("; ")
    if os.strerror(errno.EACCES) in found:
        advice = "run doctor as the server's user, or as root"
    return problem("layout", found, advice or "use the folder of -b")
