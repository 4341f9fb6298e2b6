"""All checks, in order, of one machine and perhaps a folder and a server."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.binlog.file_usage import process_usage
from beanstalkd_py.binlog.folders import Folder, holder_of, look_at
from beanstalkd_py.binlog.layout import LOCK, TOP_LOCK
from beanstalkd_py.binlog.verify import verify
from beanstalkd_py.doctor import disk, folder, machine, service
from beanstalkd_py.doctor.finding import Finding, problem, unknown

PROC = Path("/proc")
SYS = Path("/sys")
CGROUP = SYS / "fs" / "cgroup"
QUICK, BOUNDED, FULL = 0, folder.HEALTH_BYTES, 1 << 62
"""Bytes of a binlog that may be read."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be looked at. `file_size` is bytes; `workers` None if nobody says."""

    address: str
    binlog_dir: Path | None
    file_size: int
    workers: int | None
    user: str | None
    control: str | None
    read_bytes: int
    timeout_s: float


def examine(subject: Subject) -> Iterator[Finding]:
    """One finding after the other. Never raises for what it finds."""
    begin_wall, begin_mono = time.time(), time.monotonic()
    control, pid = service.check_control(subject.address, subject.control, subject.timeout_s)
    looked: Folder | None = None
    newest_s: float | None = None
    live: int | None = None
    if subject.binlog_dir is not None:
        try:
            looked = look_at(subject.binlog_dir)
            yield from _disk(subject, looked)
            yield from _folder(subject, looked, pid)
            pid = pid or _holder(subject.binlog_dir)
            newest_s = _newest(looked)
            live = _live(subject, looked)
        except errors.BinlogFolderError as error:
            yield folder.unusable(error)
        except OSError as error:
            what = f"{error.filename or subject.binlog_dir}: {error.strerror}"
            yield problem("binlog folder", what, "run doctor as the server's user, or as root")
    yield control
    yield from _machine(subject, pid, looked, live)
    jump_s = (time.time() - begin_wall) - (time.monotonic() - begin_mono)
    yield machine.check_clock(machine.read_clock_state(), jump_s, newest_s, time.time())
    yield machine.check_kernel(os.uname().release)


def _disk(subject: Subject, looked: Folder) -> Iterator[Finding]:
    room = os.statvfs(looked.top)
    used = sum(shard.size() for shard in looked.shards)
    workers = subject.workers or looked.layout.workers
    # The file being written, the next one, and what keeps room for deletes.
    needed = 2 * subject.file_size * workers
    yield disk.check_space(room.f_bavail * room.f_frsize, used, needed)
    yield disk.check_inodes(room.f_favail, room.f_files)
    try:
        mountinfo = (PROC / "self" / "mountinfo").read_text()
    except OSError:
        mountinfo = ""
    yield disk.check_filesystem(disk.mount_of(looked.top.resolve(), mountinfo))
    try:
        taken = disk.measure_sync(looked.top)
    except OSError as error:
        what = f"a file there cannot be written: {error.strerror}"
        yield problem("fsync latency", what, "run doctor as the server's user, or make room")
    else:
        yield disk.check_sync(taken, disk.rotates(looked.top.stat().st_dev, SYS))


def _folder(subject: Subject, looked: Folder, pid: int | None) -> Iterator[Finding]:
    paths = [looked.top]
    paths += [shard.path for shard in looked.shards if shard.path != looked.top]
    yield _permissions(subject, paths)
    server = service.running(pid, PROC) if pid else None
    yield folder.check_lock(looked.top, PROC, (server.pid, *server.children) if server else ())
    kept = sorted(bad for path in paths for bad in path.glob("*.bad"))
    yield folder.check_layout(looked, kept, subject.workers)
    size = sum(shard.size() for shard in looked.shards)
    if size > subject.read_bytes:
        yield folder.too_large_to_read(looked, size)
    else:
        yield folder.check_health(looked, verify(looked, lambda _: None))


def _permissions(subject: Subject, paths: list[Path]) -> Finding:
    # Without a word about the user, it is whoever runs this; root stands for the folder's owner.
    uid = os.geteuid() or paths[0].stat().st_uid
    try:
        entry = pwd.getpwnam(subject.user) if subject.user else pwd.getpwuid(uid)
    except KeyError:
        if subject.user:
            text = f"there is no user {subject.user}"
            return problem("permissions", text, "make it, or give -u another one")
        return folder.check_permissions(paths, uid, frozenset(), str(uid))
    groups = frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return folder.check_permissions(paths, entry.pw_uid, groups, entry.pw_name)


def _machine(
    subject: Subject, pid: int | None, looked: Folder | None, live: int | None
) -> Iterator[Finding]:
    server = service.running(pid, PROC) if pid else None
    limits = _limits(server)
    whose = f"the server (process {pid})" if pid else "a process started here"
    yield machine.check_descriptors(limits, whose, server.unit if server else None)
    ip = PROC / "sys" / "net"
    somaxconn = machine.number_in(ip / "core" / "somaxconn")
    yield machine.check_queue("listen queue", "net.core.somaxconn", somaxconn)
    setting = "net.ipv4.tcp_max_syn_backlog"
    syn = machine.number_in(ip / "ipv4" / "tcp_max_syn_backlog")
    yield machine.check_queue("syn queue", setting, syn)
    memory = machine.read_memory(PROC, CGROUP)
    yield machine.check_memory(memory, live, server.memory if server else None)
    overcommit = machine.number_in(PROC / "sys" / "vm" / "overcommit_memory")
    yield machine.check_overcommit(overcommit)
    yield machine.check_oom_score(server.oom_adjustment if server else None)
    workers = subject.workers or (looked.layout.workers if looked else None)
    if workers is None:
        yield unknown("workers", "neither --config nor --binlog-dir says how many")
    else:
        yield machine.check_workers(workers, machine.usable_processors())


def _limits(server: service.Running | None) -> machine.Limits | None:
    """Of the server's process with most descriptors open: connections are with the workers."""
    if server is None:
        return machine.limits_of("self", PROC)
    found = [machine.limits_of(one, PROC) for one in (server.pid, *server.children)]
    return max((one for one in found if one), key=lambda one: one.open or 0, default=None)


def _holder(top: Path) -> int | None:
    return holder_of(top / TOP_LOCK) or holder_of(top / LOCK)


def _newest(looked: Folder) -> float | None:
    times = [
        (shard.path / f"binlog.{number}").stat().st_mtime
        for shard in looked.shards
        for number in shard.numbers()
    ]
    return max(times, default=None)


def _live(subject: Subject, looked: Folder) -> int | None:
    if sum(shard.size() for shard in looked.shards) > subject.read_bytes:
        return None
    return process_usage(looked).total().live_bytes
