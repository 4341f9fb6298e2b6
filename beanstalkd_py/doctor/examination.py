"""Run the checks of a machine, a server and, if the subject has one, a binlog folder."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.binlog.file_usage import folder_usage
from beanstalkd_py.binlog.folders import Folder, holder_of, inspect_folder
from beanstalkd_py.binlog.layout import LOCK, REPLICA, TOP_LOCK
from beanstalkd_py.binlog.verify import verify
from beanstalkd_py.doctor import disk, folder, machine, replication, service
from beanstalkd_py.doctor.finding import Finding, problem, unknown

PROC = Path("/proc")
SYS = Path("/sys")
CGROUP = SYS / "fs" / "cgroup"
QUICK, BOUNDED, FULL = 0, folder.MAX_READ_BYTES, 1 << 62
"""Values of Subject.read_bytes."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The server to check; `workers` is None if unknown. Sizes are bytes.

    A binlog of more than `read_bytes` is not read.
    """

    address: str
    binlog_dir: Path | None
    file_size: int
    workers: int | None
    user: str | None
    control: str | None
    read_bytes: int
    timeout_s: float
    replicated: replication.Queue | None = None


def examine(subject: Subject) -> Iterator[Finding]:
    """Yield the findings. Errors of the checks become findings, too."""
    begin_wall, begin_mono = time.time(), time.monotonic()
    control, pid = service.check_control(subject.address, subject.control, subject.timeout_s)
    binlog = newest_s = live = None
    if subject.binlog_dir is not None:
        try:
            binlog = inspect_folder(subject.binlog_dir)
            size = sum(shard.size() for shard in binlog.shards)
            yield from _disk(subject, binlog, size)
            yield from _folder(subject, binlog, size, pid)
            pid = pid or holder_of(binlog.top / TOP_LOCK) or holder_of(binlog.top / LOCK)
            newest_s = max((path.stat().st_mtime for path in _files(binlog)), default=None)
            if size <= subject.read_bytes:
                live = folder_usage(binlog).total().live_bytes
        except errors.BinlogFolderError as error:
            yield folder.unusable(error)
        except OSError as error:
            found = f"{error.filename or subject.binlog_dir}: {error.strerror}"
            yield problem("binlog folder", found, "run doctor as the server's user, or as root")
    yield control
    if subject.replicated is not None:
        yield from replication.examine_queue(subject.replicated)
    elif binlog is not None and (binlog.top / REPLICA).exists():
        yield replication.unknown_queue(binlog.top)
    yield from _machine(subject, pid, binlog, live)
    jump_s = (time.time() - begin_wall) - (time.monotonic() - begin_mono)
    yield machine.check_clock(machine.read_clock_state(), jump_s, newest_s, time.time())
    yield machine.check_kernel(os.uname().release)


def _disk(subject: Subject, binlog: Folder, size: int) -> Iterator[Finding]:
    space = os.statvfs(binlog.top)
    workers = subject.workers or binlog.layout.workers
    # Each worker needs space for its current file and the next one.
    needed = 2 * subject.file_size * workers
    yield disk.check_space(space.f_bavail * space.f_frsize, size, needed)
    yield disk.check_inodes(space.f_favail, space.f_files)
    mountinfo = machine.read_text(PROC / "self" / "mountinfo")
    yield disk.check_filesystem(disk.mount_of(binlog.top.resolve(), mountinfo))
    try:
        times = disk.measure_sync(binlog.top)
    except OSError as error:
        found = f"cannot write a file: {error.strerror}"
        advice = "run doctor as the server's user, or free disk space"
        yield problem("fsync latency", found, advice)
    else:
        yield disk.check_sync(times, disk.rotates(binlog.top.stat().st_dev, SYS))


def _folder(subject: Subject, binlog: Folder, size: int, pid: int | None) -> Iterator[Finding]:
    paths = [binlog.top]
    paths += [shard.path for shard in binlog.shards if shard.path != binlog.top]
    yield _permissions(subject, paths)
    server = service.inspect_server(pid, PROC) if pid else None
    yield folder.check_lock(binlog.top, PROC, (server.pid, *server.children) if server else ())
    set_aside = sorted(bad for path in paths for bad in path.glob("*.bad"))
    yield folder.check_layout(binlog, set_aside, subject.workers)
    if size > subject.read_bytes:
        yield folder.too_large_to_read(binlog, size)
    else:
        yield folder.check_health(binlog, verify(binlog, lambda _: None))


def _permissions(subject: Subject, paths: list[Path]) -> Finding:
    # The default user is the current one or, for root, the folder's owner.
    uid = os.geteuid() or paths[0].stat().st_uid
    try:
        entry = pwd.getpwnam(subject.user) if subject.user else pwd.getpwuid(uid)
    except KeyError:
        if subject.user:
            text = f"no such user: {subject.user}"
            return problem("permissions", text, "create it, or use another -u")
        return folder.check_permissions(paths, uid, frozenset(), str(uid))
    groups = frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return folder.check_permissions(paths, entry.pw_uid, groups, entry.pw_name)


def _machine(
    subject: Subject, pid: int | None, binlog: Folder | None, live: int | None
) -> Iterator[Finding]:
    server = service.inspect_server(pid, PROC) if pid else None
    limits = _limits(server)
    process = f"the server (process {pid})" if pid else "new processes"
    yield machine.check_descriptors(limits, process, server.unit if server else None)
    for name, setting in (
        ("listen queue", "net.core.somaxconn"),
        ("syn queue", "net.ipv4.tcp_max_syn_backlog"),
    ):
        yield machine.check_queue(name, setting, _sysctl(setting))
    memory = machine.read_memory(PROC, CGROUP)
    yield machine.check_memory(memory, live, server.memory if server else None)
    yield machine.check_overcommit(_sysctl("vm.overcommit_memory"))
    yield machine.check_oom_score(server.oom_adjustment if server else None)
    workers = subject.workers or (binlog.layout.workers if binlog else None)
    if workers is None:
        yield unknown("workers", "use --config or --binlog-dir to check the number")
    else:
        yield machine.check_workers(workers, len(os.sched_getaffinity(0)))


def _sysctl(setting: str) -> int | None:
    return machine.read_number(PROC / "sys" / setting.replace(".", "/"))


def _limits(server: service.ServerProcesses | None) -> machine.Limits | None:
    """Return the limits of the server's process with the most open files, usually a worker."""
    if server is None:
        return machine.read_limits("self", PROC)
    all_limits = [machine.read_limits(pid, PROC) for pid in (server.pid, *server.children)]
    return max(filter(None, all_limits), key=lambda limits: limits.open or 0, default=None)


def _files(binlog: Folder) -> list[Path]:
    return [shard.path / f"binlog.{n}" for shard in binlog.shards for n in shard.numbers()]
