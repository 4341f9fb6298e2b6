"""Each check of `doctor`: verdicts and advice."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from beanstalkd_py import errors
from beanstalkd_py.binlog.file_walk import Damage
from beanstalkd_py.binlog.folders import Folder, inspect_folder
from beanstalkd_py.binlog.layout import WHOLE, Layout
from beanstalkd_py.binlog.verify import Verdict as Verified
from beanstalkd_py.doctor import disk, folder, machine, replication, service
from beanstalkd_py.doctor.finding import GIB, MIB, Finding
from beanstalkd_py.replication.cluster_status import ClusterStatus, ServerStatus

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /srv rw - xfs /dev/vdb rw
24 23 0:22 / /srv/with\\040space rw - nfs4 host:/x rw
25 22 0:23 / /shm rw - tmpfs tmpfs rw
26 22 0:24 / /ro ro - ext4 /dev/vdc ro
27 22 0:25 / /layer rw - overlay overlay rw
28 22 0:26 / /bold rw - ext4 /dev/vdd rw,nobarrier
"""


def check(finding: Finding, verdict: str, *words: str) -> None:
    """Check the verdict, the words, and that warnings and problems have advice."""
    assert finding.verdict == verdict, finding
    assert finding.found
    assert bool(finding.advice) == (verdict in ("warning", "problem")), finding
    for word in words:
        assert word in f"{finding.found} {finding.advice}", finding


@pytest.mark.parametrize(
    ("free", "used", "verdict"),
    [(10 * MIB, 0, "problem"), (25 * MIB, 10 * MIB, "warning"), (GIB, 10 * MIB, "ok")],
)
def test_disk_space(free: int, used: int, verdict: str) -> None:
    check(disk.check_space(free, used, 20 * MIB), verdict)


@pytest.mark.parametrize(
    ("free", "total", "verdict"),
    [(0, 0, "ok"), (10, 10_000, "problem"), (500, 10_000, "warning"), (5_000, 10_000, "ok")],
)
def test_inodes(free: int, total: int, verdict: str) -> None:
    check(disk.check_inodes(free, total), verdict)


@pytest.mark.parametrize(
    ("place", "verdict", "word"),
    [
        ("/var/lib/jobs", "ok", "ext4"),
        ("/srv", "ok", "xfs"),
        ("/srvices", "ok", "ext4"),
        ("/srv/with space/jobs", "warning", "network"),
        ("/shm/jobs", "problem", "tmpfs"),
        ("/ro", "problem", "read-only"),
        ("/layer/jobs", "warning", "container"),
        ("/bold", "warning", "barriers"),
    ],
)
def test_file_systems(place: str, verdict: str, word: str) -> None:
    check(disk.check_filesystem(disk.mount_of(Path(place), MOUNTS)), verdict, word)


def test_no_mounts() -> None:
    check(disk.check_filesystem(disk.mount_of(Path("/x"), "nonsense")), "unknown")


@pytest.mark.parametrize(
    ("times", "rotates", "verdict", "word"),
    [
        ([0.002] * 100, False, "ok", "median 2.00 ms"),
        ([0.008] * 100, True, "ok", ""),
        ([0.00001] * 100, False, "warning", "hdparm"),
        ([0.0005] * 100, True, "warning", "hdparm"),
        ([0.0005] * 100, None, "ok", ""),
        ([0.05] * 40, False, "warning", "-f MS"),
        ([0.002] * 90 + [0.9] * 10, False, "warning", "iostat"),
        ([3.0], False, "problem", "smartctl"),
    ],
)
def test_syncs(times: list[float], rotates: bool | None, verdict: str, word: str) -> None:
    check(disk.check_sync(times, rotates), verdict, word)


def test_measuring_a_sync_leaves_nothing(tmp_path: Path) -> None:
    synced: list[int] = []
    times = disk.measure_sync(tmp_path, synced.append)
    assert len(times) == len(synced) == disk.MAX_SYNCS
    assert not list(tmp_path.iterdir())

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        disk.measure_sync(tmp_path, broken)
    assert not list(tmp_path.iterdir())


def test_whether_a_disk_rotates(tmp_path: Path) -> None:
    whole = tmp_path / "devices" / "sda"
    (whole / "queue").mkdir(parents=True)
    (whole / "queue" / "rotational").write_text("1\n")
    (whole / "sda1").mkdir()
    virtual = tmp_path / "devices" / "vda"
    (virtual / "queue").mkdir(parents=True)
    (virtual / "queue" / "rotational").write_text("1\n")
    (tmp_path / "dev" / "block").mkdir(parents=True)
    (tmp_path / "dev" / "block" / "254:0").symlink_to(virtual)
    assert disk.rotates(os.makedev(254, 0), tmp_path) is None
    for name, target in (("8:0", whole), ("8:1", whole / "sda1")):
        (tmp_path / "dev" / "block" / name).symlink_to(target)
        major, minor = map(int, name.split(":"))
        assert disk.rotates(os.makedev(major, minor), tmp_path) is True
    assert disk.rotates(os.makedev(9, 9), tmp_path) is None


def test_permissions(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    file = tmp_path / "binlog.1"
    file.write_bytes(b"")
    file.chmod(0o600)
    (tmp_path / "lock").symlink_to("nowhere/at all")
    me, other = os.geteuid() or 1234, 4321
    os.chown(tmp_path, me, -1)
    os.chown(file, me, -1)

    def found(uid: int, *gids: int) -> Finding:
        return folder.check_permissions([tmp_path], uid, frozenset(gids), "ann")

    check(found(me), "ok")
    check(found(other), "problem", "cannot use", "chown -R ann")
    check(found(0), "ok")
    tmp_path.chmod(0o770)
    file.chmod(0o600)
    check(found(other, tmp_path.stat().st_gid), "problem", "binlog.1", f"chown ann {file}")
    file.chmod(0o640)
    check(found(other, tmp_path.stat().st_gid), "ok")


def test_read_only_files_of_c_beanstalkd(tmp_path: Path) -> None:
    """C beanstalkd creates files with mode 0400; locks must be writable."""
    tmp_path.chmod(0o700)
    me = os.geteuid() or 1234
    os.chown(tmp_path, me, -1)
    for name, mode in (("binlog.1", 0o400), ("lock", 0o600), ("layout", 0o400)):
        (tmp_path / name).write_bytes(b"")
        (tmp_path / name).chmod(mode)
        os.chown(tmp_path / name, me, -1)

    def found() -> Finding:
        return folder.check_permissions([tmp_path], me, frozenset(), "ann")

    check(found(), "ok")
    (tmp_path / "lock").chmod(0o400)
    check(found(), "problem", "cannot read and write", "lock")
    (tmp_path / "lock").chmod(0o600)
    (tmp_path / "binlog.1").chmod(0o200)
    check(found(), "problem", "cannot read ", "binlog.1")


def test_world_readable_jobs(tmp_path: Path) -> None:
    """The permissions of both the folders and the file must allow it."""
    top, shard = tmp_path / "jobs", tmp_path / "jobs" / "shard-000"
    shard.mkdir(parents=True)
    lock, file = top / "layout.lock", shard / "binlog.1"
    lock.touch(0o644)
    file.touch()

    def found(top_mode: int, shard_mode: int, file_mode: int) -> Finding:
        for path, mode in ((top, top_mode), (shard, shard_mode), (file, file_mode)):
            path.chmod(mode)
        return folder.check_permissions([top, shard], 0, frozenset(), "ann")

    check(found(0o755, 0o755, 0o600), "ok")
    check(found(0o755, 0o755, 0o640), "ok")
    check(found(0o755, 0o755, 0o644), "warning", "shard-000/binlog.1", f"chmod 700 {top}")
    check(found(0o755, 0o700, 0o644), "ok")
    check(found(0o700, 0o755, 0o644), "ok")
    check(found(0o711, 0o711, 0o604), "warning", "shard-000/binlog.1")


def test_layouts(tmp_path: Path) -> None:
    def layout(**other: object) -> Finding:
        opened = Folder(tmp_path, Layout(2), (), **other)  # type: ignore[arg-type]
        return folder.check_layout(opened, [], 2)

    check(layout(), "ok", "2 workers")
    check(layout(missing=("shard-001",)), "problem", "shard-001 missing")
    check(layout(foreign_files=("binlog.1",)), "problem", "binlog.1")
    opened = Folder(tmp_path, WHOLE, ())
    check(folder.check_layout(opened, [tmp_path / "binlog.3.bad"], 1), "warning", "binlog.3.bad")
    check(folder.check_layout(opened, [], 4), "ok", "reshards it to 4 workers")
    with pytest.raises(errors.BinlogFolderError) as failed:
        inspect_folder(tmp_path / "nowhere")
    check(folder.unusable(failed.value), "problem", "does not exist")


def test_health(tmp_path: Path) -> None:
    opened = Folder(tmp_path, WHOLE, ())
    check(folder.check_health(opened, Verified(files=1, entries=5, jobs=2)), "ok", "5 entries")
    damaged = Verified(damage=[Damage("binlog.3", 17, "its checksum is wrong")])
    check(folder.check_health(opened, damaged), "problem", "binlog.3:17", "binlog repair")
    assert folder.too_large_to_read(opened, 5 * GIB).verdict == "unknown"


def process(proc: Path, pid: int, files: int, **texts: str) -> None:
    (proc / str(pid) / "fd").mkdir(parents=True)
    for number in range(files):
        (proc / str(pid) / "fd" / str(number)).write_text("")
    for name, text in texts.items():
        (proc / str(pid) / name).write_text(text)


def test_descriptors(tmp_path: Path) -> None:
    limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   {}   {}   files\n"
    process(tmp_path, 1, 90, limits=limits.format(100, 200))
    process(tmp_path, 2, 3, limits=limits.format(1024, "unlimited"))
    process(tmp_path, 3, 3, limits=limits.format("unlimited", "unlimited"))

    def found(pid: int, unit: str | None = None) -> Finding:
        return machine.check_descriptors(machine.read_limits(pid, tmp_path), "it", unit)

    check(found(1, "jobs.service"), "problem", "90 in use", "LimitNOFILE= of jobs.service")
    check(found(2), "warning", "ulimit -n")
    check(found(3), "ok")
    assert found(4).verdict == "unknown"


@pytest.mark.parametrize(("length", "verdict"), [(None, "unknown"), (128, "warning"), (4096, "ok")])
def test_queues(length: int | None, verdict: str) -> None:
    finding = machine.check_queue("listen queue", "net.core.somaxconn", length)
    check(finding, verdict, "net.core.somaxconn")


@pytest.mark.parametrize(
    ("state", "jump_s", "newest_s", "verdict"),
    [
        (0, 0.0, 900.0, "ok"),
        (0, 0.0, None, "ok"),
        (5, 0.0, None, "warning"),
        (0, -3.0, None, "warning"),
        (0, 0.0, 1100.0, "problem"),
        (None, 0.0, None, "unknown"),
    ],
)
def test_clocks(state: int | None, jump_s: float, newest_s: float | None, verdict: str) -> None:
    check(machine.check_clock(state, jump_s, newest_s, now_s=1000.0), verdict)


def test_clock_state_of_this_machine() -> None:
    assert machine.read_clock_state() in (None, 0, 1, 2, 3, 4, 5)


def test_memory(tmp_path: Path) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    proc.mkdir()
    cgroup.mkdir()
    assert machine.read_memory(proc, cgroup) is None
    (proc / "meminfo").write_text(f"MemTotal: {8 << 20} kB\nMemAvailable: {4 << 20} kB\n")
    assert machine.read_memory(proc, cgroup) == (8 * GIB, 4 * GIB)
    (cgroup / "memory.max").write_text("max\n")
    (cgroup / "memory.current").write_text("5\n")
    assert machine.read_memory(proc, cgroup) == (8 * GIB, 4 * GIB)
    (cgroup / "memory.max").write_text(f"{GIB}\n")
    (cgroup / "memory.current").write_text(f"{GIB // 4}\n")
    assert machine.read_memory(proc, cgroup) == (GIB, GIB - GIB // 4)
    check(machine.check_memory((8 * GIB, 4 * GIB), GIB, None), "ok")
    check(machine.check_memory((8 * GIB, 4 * GIB), 3 * GIB, None), "warning")
    check(machine.check_memory((8 * GIB, 4 * GIB), 5 * GIB, None), "problem", "add memory")
    # A running server has them in memory.
    check(machine.check_memory((8 * GIB, 4 * GIB), 5 * GIB, 3 * GIB), "ok", "the server uses")
    check(machine.check_memory((8 * GIB, GIB // 2), None, 3 * GIB), "warning")
    check(machine.check_memory(None, None, None), "unknown")


def test_kernel_settings() -> None:
    check(machine.check_overcommit(0), "ok")
    check(machine.check_overcommit(2), "warning", "CommitLimit")
    check(machine.check_overcommit(None), "unknown")
    check(machine.check_oom_score(0), "ok")
    check(machine.check_oom_score(300), "warning", "OOMScoreAdjust")
    check(machine.check_oom_score(None), "unknown")
    check(machine.check_workers(2, 4), "ok")
    check(machine.check_workers(8, 4), "warning", "--workers 4")
    check(machine.check_kernel("6.1.0-25-amd64"), "ok")
    check(machine.check_kernel("3.10.0-1160.el7"), "problem", "4.14")
    check(machine.check_kernel("plan9"), "unknown")


PRIMARY, STANDBY = ServerStatus("a:1", True, 0, 1000.0), ServerStatus("b:1", False, 9, 1000.0)


def queue(*servers: ServerStatus, primary: str = "a:1", is_complete: bool = True) -> ClusterStatus:
    return ClusterStatus(primary, 7, is_complete, [], list(servers))


@pytest.mark.parametrize(
    ("status", "copies", "verdict", "words"),
    [
        (queue(), 3, "ok", ["primary a:1, epoch 7, 3 copies"]),
        (queue(), 5, "ok", ["5 copies"]),
        (queue(), 2, "warning", ["2 copies", "--replicate-copies 3"]),
        (queue(is_complete=False), 3, "warning", ["without all jobs", "keep the first server"]),
        (queue(primary=""), 3, "problem", ["no server is the primary"]),
    ],
)
def test_replicated_log(status: ClusterStatus, copies: int, verdict: str, words: list[str]) -> None:
    check(replication.check_log(status, copies), verdict, *words)


@pytest.mark.parametrize(
    ("servers", "now_s", "verdict", "words"),
    [
        ([PRIMARY, STANDBY], 1014.0, "ok", ["1 standby, at most 9 messages behind"]),
        ([PRIMARY, STANDBY], 1016.0, "warning", ["none is running", "--replicate"]),
        ([PRIMARY], 1000.0, "warning", ["none is running"]),
        ([replace(STANDBY, behind=10_001), STANDBY], 1000.0, "warning", ["10001 messages behind"]),
        (
            [STANDBY, replace(STANDBY, address="c:1", time_s=900.0)],
            1000.0,
            "warning",
            ["c:1 has not reported for 100 s", "cluster forget nats://n/jobs c:1"],
        ),
        ([STANDBY, replace(PRIMARY, time_s=900.0)], 1000.0, "ok", ["1 standby"]),
    ],
)
def test_standbys(
    servers: list[ServerStatus], now_s: float, verdict: str, words: list[str]
) -> None:
    check(replication.check_standbys(queue(*servers), "nats://n/jobs", now_s), verdict, *words)


def test_a_running_server(tmp_path: Path) -> None:
    cgroup = "0::/system.slice/system-jobs.slice/jobs@a.service\n"
    process(tmp_path, 7, 1, cgroup=cgroup, status="VmRSS:\t 100 kB\n", oom_score_adj="-500\n")
    process(tmp_path, 8, 1, status="VmRSS:\t 50 kB\n")
    (tmp_path / "7" / "task" / "7").mkdir(parents=True)
    (tmp_path / "7" / "task" / "7" / "children").write_text("8 9 ")
    assert service.inspect_server(7, tmp_path) == service.ServerProcesses(
        7, (8, 9), "jobs@a.service", 150 << 10, -500
    )
    assert service.inspect_server(99, tmp_path) == service.ServerProcesses(99, (), None, None, None)
