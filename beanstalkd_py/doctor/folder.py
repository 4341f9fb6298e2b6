"""A binlog folder itself: who may use it, who does, and whether its entries can be read."""

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
from beanstalkd_py.plural import counted

HEALTH_BYTES = 1 << 30
"""Read at most, unless all of it is wanted."""


def check_permissions(folders: list[Path], uid: int, gids: frozenset[int], who: str) -> Finding:
    """Whether this user can use the folders and all files of a server in them."""
    name = "permissions"
    for folder in folders:
        if not _may(folder.stat(), uid, gids, 0o7):
            return problem(name, f"{who} may not use {folder}", f"chown -R {who} {folder}")
        for path in sorted(folder.iterdir()):
            status = path.lstat()
            # A symbolic link is the guard of a divided folder.
            if not stat.S_ISREG(status.st_mode):
                continue
            # C beanstalkd makes its files read-only. Only locks need more than that, because a
            # server writes to files that it has made itself.
            locks = path.name in (LOCK, TOP_LOCK)
            if not _may(status, uid, gids, 0o6 if locks else 0o4):
                found = f"{who} may not {'read and write' if locks else 'read'} {path}"
                return problem(name, found, f"chown {who} {path}")
    exposed = _readable_by_everybody(folders)
    if exposed is not None:
        found = f"{who} may use it, and everybody may read jobs in {exposed}"
        return warning(name, found, f"chmod 700 {folders[0]}, unless others are to read jobs")
    return ok(name, f"{who} may use all files")


def _readable_by_everybody(folders: list[Path]) -> Path | None:
    """A binlog file that any user can open; the folders below the first are inside it."""
    if not folders[0].stat().st_mode & stat.S_IXOTH:
        return None
    for folder in folders:
        if folder.stat().st_mode & stat.S_IXOTH:
            for path in sorted(folder.glob("binlog.*")):
                if path.lstat().st_mode & stat.S_IROTH:
                    return path
    return None


def _may(status: os.stat_result, uid: int, gids: frozenset[int], bits: int) -> bool:
    if uid == 0:
        return True
    shift = 6 if status.st_uid == uid else 3 if status.st_gid in gids else 0
    return status.st_mode >> shift & bits == bits


def check_lock(top: Path, proc: Path, server: tuple[int, ...] = ()) -> Finding:
    """Who has the folder; `server` are the processes of the one that is looked at, if any."""
    for lock in (top / TOP_LOCK, top / LOCK):
        holder = holder_of(lock)
        if holder is None:
            continue
        found = f"{_described(holder, proc)} has it"
        if holder and server and holder not in server:
            found += f", and process {server[0]} is the server that is looked at"
            return warning("lock", found, "give --addr and the folder of the same server")
        return ok("lock", found)
    return ok("lock", "nobody has it: no server runs on this folder")


def _described(pid: int, proc: Path) -> str:
    if pid == 0:
        return "a process of another container"
    try:
        name = (proc / str(pid) / "comm").read_text().strip()
    except OSError:
        name = ""
    return f"process {pid} ({name})" if name else f"process {pid}"


def check_layout(folder: Folder, kept: list[Path], workers: int | None) -> Finding:
    """Its shards; `kept` are files set aside as damaged, `workers` what the server is to have."""
    name = "layout"
    if folder.missing:
        found = f"{', '.join(folder.missing)} missing"
        return problem(name, found, "restore them, or their jobs are lost")
    if folder.strangers:
        return problem(
            name,
            f"{', '.join(folder.strangers)} beside shards, from another server",
            "move them to a folder of their own and serve that: their ids mean other jobs",
        )
    if kept:
        return warning(
            name,
            f"{folder.layout}; {counted(len(kept), 'damaged file')} kept, such as {kept[0]}",
            "look into them (binlog repair), then move them away",
        )
    if workers is not None and workers != folder.layout.workers:
        found = f"{folder.layout} now, {workers} at the next start, which divides it anew"
        return ok(name, found)
    return ok(name, str(folder.layout))


def too_large_to_read(folder: Folder, size: int) -> Finding:
    """Instead of check_health."""
    advice = f"doctor --full reads all of it; so does 'beanstalkd-py binlog verify {folder.top}'"
    return unknown("binlog health", f"{size_text(size)} are not read", advice)


def check_health(folder: Folder, verified: Verified) -> Finding:
    """What `binlog verify` says."""
    found = (
        f"{counted(verified.entries, 'entry')} in {counted(verified.files, 'file')},"
        f" {counted(verified.jobs, 'live job')}"
    )
    if verified.clean:
        return ok("binlog health", found)
    first = verified.damage[0]
    return problem(
        "binlog health",
        f"{counted(len(verified.damage), 'damaged place')}; {first}",
        f"beanstalkd-py binlog repair {folder.top}",
    )


def unusable(error: errors.BinlogFolderError) -> Finding:
    """A folder that cannot even be looked at; its sentence says what to do."""
    what, _, advice = str(error).partition("; ")
    if os.strerror(errno.EACCES) in what:
        advice = "run this as the user of the server, or as root"
    return problem("layout", what, advice or "give the folder of -b")
