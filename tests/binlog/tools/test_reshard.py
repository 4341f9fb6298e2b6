"""Reshard a folder for another number of workers: no job changes."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from binlog.generations import (
    FILE,
    Contents,
    bring_to,
    contents,
    divided_as,
    fill,
    settled,
)
from binlog.reader import files, read_folder
from binlog.test_folder import HOLD_LOCK
from cli.commands import FOLDER, refusal
from core import fault_injection
from core.fault_injection import Call
from core.rig import Rig, RigClient
from servers import StartError, free_port, reference
from wire import Client

from beanstalkd_py import errors
from beanstalkd_py.binlog import layout as layouts
from beanstalkd_py.binlog import reshard
from beanstalkd_py.binlog.layout import WHOLE, Layout
from beanstalkd_py.binlog.progress import LOGGER
from beanstalkd_py.binlog.steps import Steps
from beanstalkd_py.core.clocks import read_clocks
from beanstalkd_py.server.parent.shard_folders import lock_shard_folders

FOUR = Layout(4)
PATH_1_4_2_1 = (FOUR, Layout(2), WHOLE)


@pytest.fixture
def filled(folder: Path) -> Path:
    fill(folder)
    return folder


# --- jobs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("body_memory", [1 << 26, 400])
def test_every_field_of_every_job_is_kept(
    filled: Path, body_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reshard, "BODY_MEMORY", body_memory)
    before = contents([filled])
    states = {job.state for job in before.values()}
    assert states == {"ready", "delayed", "buried"} and len(before) > 40
    for layout in PATH_1_4_2_1:
        bring_to(filled, layout)
        assert divided_as(filled, layout) == before


def test_job_statistics_and_times_left_are_kept(filled: Path) -> None:
    """Compare stats-job at the same time, except for the file number."""
    now = read_clocks()

    def seen(folders: list[Path]) -> dict[int, dict[str, str]]:
        stats = {}
        for folder in folders:
            with Rig(folder, now=now) as rig:
                client = rig.client()
                for number in contents([folder]):
                    stats[number] = {**client.job(number), "file": ""}
        return stats

    copy = filled.with_name(f"{filled.name}.copy")
    shutil.copytree(filled, copy)
    try:
        bring_to(filled, FOUR)
        assert seen(layouts.folders_of(filled, FOUR)) == seen([copy])
    finally:
        shutil.rmtree(copy)


def buried_order(client: RigClient) -> dict[bytes, list[int]]:
    """Kick the buried jobs of each tube one by one, and return their order."""
    order: dict[bytes, list[int]] = {}
    for i in range(10):
        tube = b"buried-%d" % i
        client.ask(b"use %b\r\n" % tube)
        while (reply := client.ask(b"peek-buried\r\n")) != b"NOT_FOUND\r\n":
            order.setdefault(tube, []).append(int(reply.split()[1]))
            client.ask(b"kick 1\r\n")
    return order


def test_buried_jobs_keep_their_order(filled: Path) -> None:
    """In each tube; over all tubes the order follows from the burying times, which are kept."""
    before = contents([filled])
    for layout in PATH_1_4_2_1:
        bring_to(filled, layout)
    with Rig(filled, now=read_clocks()) as rig:
        order = buried_order(rig.client())
    assert len(order) == 10
    for jobs in order.values():
        assert jobs == sorted(jobs, key=lambda number: before[number].at)
        assert len(jobs) == 2
    assert any(jobs != sorted(jobs) for jobs in order.values())


@pytest.mark.parametrize("jobs_left", [True, False], ids=["jobs", "empty"])
def test_ids_are_never_reused(folder: Path, jobs_left: bool) -> None:
    with Rig(folder, now=read_clocks()) as rig:
        client = rig.client()
        for _ in range(20):
            last = client.put()
        for number in range(1, 21) if not jobs_left else (20,):
            client.do(b"delete %d" % number, b"DELETED")
    for layout in PATH_1_4_2_1:
        bring_to(folder, layout)
        for path in layouts.folders_of(folder, layout):
            with Rig(path, now=read_clocks()) as rig:
                assert rig.shared.last_id == last, "every shard must have the highest id"


def test_resharding_writes_one_full_entry_per_live_job(filled: Path) -> None:
    bring_to(filled, FOUR)
    for path in layouts.folders_of(filled, FOUR):
        first, *others = [entry for entry in read_folder(path) if not entry.is_length_entry]
        assert (first.state, first.full) == ("invalid", False)
        assert all(entry.full and entry.checksum_is_right for entry in others)
        assert all(file.stat().st_size <= FILE for file in files(path))


def test_a_job_larger_than_a_file_is_moved(folder: Path) -> None:
    with Rig(folder, now=read_clocks()) as rig:
        rig.client().put(b"x" * 30_000)
    before = contents([folder])
    for layout in PATH_1_4_2_1:
        bring_to(folder, layout)
        assert divided_as(folder, layout) == before


def test_jobs_with_the_same_id_are_both_kept(folder: Path) -> None:
    """A server on a single shard does not know the ids of the other shards."""
    bring_to(folder, Layout(2))
    for path, tube in zip(layouts.folders_of(folder, Layout(2)), (b"a", b"bb"), strict=True):
        with Rig(path, now=read_clocks()) as rig:
            client = rig.client()
            client.use(tube)
            client.put(tube)
    bring_to(folder, WHOLE)
    jobs = divided_as(folder, WHOLE)
    assert sorted(jobs) == [1, 2]
    assert {job.body for job in jobs.values()} == {b"a", b"bb"}


# --- layouts ------------------------------------------------------------------------------------


def test_another_separator_is_another_layout(folder: Path) -> None:
    with Rig(folder, now=read_clocks()) as rig:
        client = rig.client()
        for i in range(50):
            client.use(b"group/%d" % i)
            client.put()
    before = contents([folder])
    by_slash = Layout(4, b"/")
    for layout in (FOUR, by_slash, Layout(4, b"p"), FOUR, by_slash, WHOLE):
        bring_to(folder, layout)
        assert divided_as(folder, layout) == before
        if layout == by_slash:
            sizes = [len(contents([path])) for path in layouts.folders_of(folder, layout)]
            assert sorted(sizes) == [0, 0, 0, 50]


@pytest.mark.parametrize("colocate", [b":", b"\xff\x00\xe9", b'"'])
def test_a_separator_is_any_bytes(folder: Path, colocate: bytes) -> None:
    bring_to(folder, Layout(2, colocate))
    assert layouts.read_layout(folder) == Layout(2, colocate)


def test_all_layouts_of_one_worker_are_equal() -> None:
    assert Layout.wanted(1, b":") == WHOLE
    assert Layout.wanted(3, b"") == Layout.wanted(3, None) == Layout(3)


def test_the_same_layout_changes_nothing(filled: Path) -> None:
    bring_to(filled, FOUR)
    before = {path: path.lstat().st_ino for path in filled.rglob("*")}
    bring_to(filled, FOUR)
    assert {path: path.lstat().st_ino for path in filled.rglob("*")} == before


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"format": 2, "workers": 2, "colocate": null}', b"\xff"]
)
def test_an_invalid_layout_file_is_rejected(filled: Path, data: bytes) -> None:
    bring_to(filled, FOUR)
    (filled / "layout").write_bytes(data)
    before = sorted(filled.rglob("*"))
    with pytest.raises(errors.BinlogFolderError, match="layout"):
        bring_to(filled, Layout(2))
    assert sorted(filled.rglob("*")) == before


def test_a_dangling_layout_link_is_rejected(filled: Path) -> None:
    (filled / "layout").symlink_to("nothing")
    before = files(filled)
    for layout in (Layout(2), WHOLE):
        with pytest.raises(errors.BinlogFolderError, match="layout is a symbolic link to nothing"):
            bring_to(filled, layout)
    message = refusal(FOLDER, "serve", "-p", str(free_port()), "-b", filled, "--workers", "1")
    assert message.endswith("is a symbolic link to nothing; restore its target, or remove it")
    assert files(filled) == before


def test_binlogs_beside_shards_are_rejected(filled: Path) -> None:
    bring_to(filled, FOUR)
    (filled / "binlog.1").write_bytes(b"\x07\0\0\0")
    for layout in (Layout(2), WHOLE, FOUR):
        with pytest.raises(errors.BinlogFolderError, match=r"binlog\.1 lies beside them"):
            bring_to(filled, layout)


def test_shards_without_a_layout_file_are_kept_and_rejected(filled: Path) -> None:
    """All jobs are still there, and the operator can restore the layout file."""
    before = contents([filled])
    bring_to(filled, FOUR)
    lost = (filled / "layout").read_bytes()
    (filled / "layout").unlink()
    for layout in (FOUR, Layout(2), WHOLE):
        with pytest.raises(errors.BinlogFolderError, match="has shard-000 but no file layout"):
            bring_to(filled, layout)
        with pytest.raises(errors.BinlogFolderError, match="has shard-000 but no file layout"):
            lock_shard_folders(str(filled), layout.workers)
    (filled / "layout").write_bytes(lost)
    assert divided_as(filled, FOUR) == before


def test_a_missing_shard_is_reported(filled: Path) -> None:
    bring_to(filled, FOUR)
    shutil.rmtree(filled / "shard-002")
    with pytest.raises(errors.BinlogFolderError, match="lacks shard-002"):
        bring_to(filled, Layout(2))


# --- damage -------------------------------------------------------------------------------------


def damage(path: Path) -> bytes:
    """Flip a byte in the middle of a body, and return the file's bytes."""
    data = bytearray(path.read_bytes())
    data[len(data.rstrip(b"\0")) // 2] ^= 0x55
    path.write_bytes(data)
    return bytes(data)


def test_a_damaged_file_is_reported_and_kept(filled: Path) -> None:
    lost = damage(files(filled)[0])
    bring_to(filled, FOUR)
    assert (filled / "binlog.1.bad").read_bytes() == lost
    in_shard = files(filled / "shard-001")[0]
    lost_2 = damage(in_shard)
    (filled / "shard-001" / "notes").write_text("mine")
    (filled / "shard-001.notes").write_text("mine, too")
    bring_to(filled, Layout(2))
    assert (filled / "binlog.1.bad").read_bytes() == lost
    assert (filled / f"shard-001.{in_shard.name}.bad").read_bytes() == lost_2
    assert (filled / "shard-001.notes").read_text() == "mine, too"
    assert (filled / "shard-001.notes.1").read_text() == "mine"


def test_a_damaged_file_is_reported_with_its_offset(
    filled: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "propagate", True)
    bring_to(filled, FOUR)
    damage(files(filled / "shard-001")[0])
    bring_to(filled, WHOLE)
    assert any(line.startswith("shard-001/binlog.1:") for line in caplog.messages)


def test_an_attempt_that_fails_leaves_one_copy_of_a_damaged_file(filled: Path) -> None:
    damage(files(filled)[0])
    bring_to(filled, WHOLE)
    for _ in range(3):
        fault_injection.fail(Call.WRITE, error=errno.EIO)
        with pytest.raises(errors.BinlogFolderError, match="its jobs are where they were"):
            bring_to(filled, FOUR)
    fault_injection.heal()
    bring_to(filled, FOUR)
    assert len(list(filled.glob("binlog.1.bad*"))) == 1


def test_without_hard_links_a_copy_is_kept(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    lost = damage(files(filled)[0])
    bring_to(filled, FOUR)
    assert (filled / "binlog.1.bad").read_bytes() == lost


# --- faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [Call.OPEN, Call.WRITE, Call.DATASYNC])
@pytest.mark.parametrize("layout", [FOUR, WHOLE], ids=["1 to 4", "4 to 1"])
def test_a_failing_system_call_changes_nothing(filled: Path, call: Call, layout: Layout) -> None:
    """Fail each call in turn, until there are no more calls."""
    for first in (FOUR, WHOLE) if layout == FOUR else (FOUR,):
        bring_to(filled, first)  # without preallocated bytes
    before = settled(filled)
    for nth in range(1, 1000):
        fault_injection.fail(call, nth=nth, error=errno.EIO)
        try:
            bring_to(filled, layout)
        except errors.BinlogFolderError as error:
            assert "its jobs are where they were" in str(error)
        else:
            break
        finally:
            fault_injection.heal()
        assert settled(filled) == before
    assert nth > 3
    assert divided_as(filled, layout) == before


def test_everything_is_synced_before_the_layout_changes(filled: Path) -> None:
    """Sync the files read, each new file, and each folder from the inside out; rename last."""
    bring_to(filled, Layout(2))  # so that every file has been synced
    old = len(list(filled.rglob("binlog.*")))
    synced_before = fault_injection.count(Call.DATASYNC)
    steps: list[str] = []
    synced_at_commit = 0

    def note(step: str) -> None:
        nonlocal synced_at_commit
        steps.append(step.replace(f"{filled}/", "").replace(str(filled), "."))
        if step.startswith(f"rename {filled}/reshard.new"):
            synced_at_commit = fault_injection.count(Call.DATASYNC)

    bring_to(filled, FOUR, Steps(note))
    commit = steps.index("rename reshard.new reshard.done")
    assert synced_at_commit - synced_before == old + len(list(filled.rglob("binlog.*")))
    inside_out = [f"sync reshard.new/shard-00{i}" for i in range(4)]
    assert steps[commit - 6 : commit] == [
        *inside_out,
        "write reshard.new/layout",
        "sync reshard.new",
    ]
    assert steps[commit + 1] == "sync ."
    assert not any(step.startswith("unlink binlog") for step in steps[:commit])


# --- locks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.slow
def test_a_folder_in_use_is_refused(filled: Path, divided: bool) -> None:
    """Hold one of its locks; resharding changes nothing."""
    if divided:
        bring_to(filled, FOUR)
    names = ["layout.lock", *(["shard-000/lock", "shard-003/lock"] if divided else ["lock"])]
    for name in names:
        with subprocess.Popen(
            [sys.executable, "-c", HOLD_LOCK, str(filled / name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as holder:
            assert holder.stdout is not None and holder.stdin is not None
            assert holder.stdout.readline() == b"held\n"
            before = sorted(path for path in filled.rglob("*") if "lock" not in path.name)
            with pytest.raises(errors.BinlogLockedError, match="is a server running on it"):
                bring_to(filled, Layout(2))
            after = sorted(path for path in filled.rglob("*") if "lock" not in path.name)
            assert after == before
            holder.stdin.close()
    bring_to(filled, Layout(2))


def test_a_lock_on_a_removed_file_is_not_accepted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former owner removes the file just after we open it, and another one makes a new file."""
    take = fcntl.lockf
    files_seen: list[os.stat_result] = []

    def removed_meanwhile(fd: int, how: int) -> None:
        if not files_seen:
            (folder / "layout.lock").unlink()
            (folder / "layout.lock").touch()
        files_seen.append(os.fstat(fd))
        take(fd, how)

    monkeypatch.setattr(fcntl, "lockf", removed_meanwhile)
    lock = layouts.lock_top(folder)
    assert len(files_seen) == 2
    assert os.path.samestat(files_seen[-1], (folder / "layout.lock").stat())
    lock.close()


def test_beanstalkd_refuses_a_divided_folder(filled: Path) -> None:
    bring_to(filled, FOUR)
    with (
        pytest.raises(StartError, match="exit status 10"),
        reference("-b", filled),
    ):
        pass
    before = settled(filled)
    with pytest.raises(errors.BeanstalkdError):
        Rig(filled)
    assert settled(filled) == before


def test_a_removed_guard_is_restored(filled: Path) -> None:
    bring_to(filled, FOUR)
    (filled / "lock").unlink()
    bring_to(filled, FOUR)
    assert (filled / "lock").is_symlink()


# --- C beanstalkd ---------------------------------------------------------------------------------


def look(client: Client, last: int) -> dict[int, tuple[bytes, dict[str, str]]]:
    """Return every job with the fields that C beanstalkd keeps; its restart adds to `buries`."""
    keys = ("state", "pri", "delay", "ttr", "reserves", "timeouts", "releases", "kicks", "tube")
    found = {}
    for number in range(1, last + 1):
        reply = client.ask(b"peek %d\r\n" % number)
        stats = client.job_stats(number)
        found[number] = (reply, {key: stats[key] for key in keys})
    return found


def test_a_folder_of_beanstalkd_and_back(tmp_path: Path) -> None:
    with reference("-b", tmp_path, "-s", "4096") as server, server.connect() as client:
        for i in range(60):
            client.ask(b"use tube-%d\r\n" % (i % 12))
            number = client.put(b"body %d" % i, pri=i, delay=10_000 if i % 5 == 0 else 0, ttr=60)
            if i % 7 == 0:
                client.bury(number, pri=i + 1)
        before = look(client, 60)
    for layout in (FOUR, WHOLE):
        bring_to(tmp_path, layout)
        assert len(divided_as(tmp_path, layout)) == 60
    (tmp_path / "layout.lock").unlink()
    with reference("-b", tmp_path, "-s", "4096") as server, server.connect() as client:
        assert look(client, 60) == before
        assert client.put() == 61


@pytest.mark.costly
def test_each_shard_is_a_folder_that_beanstalkd_opens(tmp_path: Path) -> None:
    fill(tmp_path)
    before = settled(tmp_path)
    bring_to(tmp_path, Layout(2))
    for path in layouts.folders_of(tmp_path, Layout(2)):
        jobs = contents([path])
        with reference("-b", path) as server, server.connect() as client:
            for number, job in jobs.items():
                reply = client.ask(b"peek %d\r\n" % number)
                assert reply.endswith(b"\r\n%b\r\n" % job.body)
                assert client.job_stats(number)["state"] == job.state
    after = settled(tmp_path)
    assert bodies(after) == bodies(before)


def bodies(jobs: Contents) -> dict[int, bytes]:
    return {number: job.body for number, job in jobs.items()}
