"""A backup has the jobs of one moment, whatever the server does meanwhile."""

from __future__ import annotations

import copy
import itertools
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from backup.clients import Client, at_work, contents_of
from binlog.generations import contents
from binlog.workload import Actor, check, run_steps
from core.rig import SECOND, START, Rig
from servers import ours, reference
from shards import TWO, tubes_of

from beanstalkd_py.backup import create as creating
from beanstalkd_py.backup import open_file as open_files
from beanstalkd_py.backup import snapshot as snapshots
from beanstalkd_py.backup.create import create
from beanstalkd_py.backup.restore import restore, verify
from beanstalkd_py.backup.target import Target
from beanstalkd_py.binlog.file_walk import has_entries
from beanstalkd_py.binlog.folders import Shard

FILE = 4096
LARGER_FILE = 50_000
BACKUPS = 12


def restored(target: Target, name: str, folder: Path) -> Path:
    backup = target.load(name)
    assert list(verify(backup, target)) == []
    restore(backup, target, folder)
    return folder


@pytest.mark.parametrize("seed", range(6))
def test_every_backup_is_a_start_at_its_moment(
    folder: Path, target: Target, tmp_path: Path, seed: int
) -> None:
    """The files are small, so most of those in a backup are gone at the next one."""
    dice = random.Random(seed)
    moments: dict[str, Actor] = {}
    with Rig(folder, file_size=FILE) as rig:
        client, actor = rig.client(), Actor(f"backup {seed}", unique=seed % 2 == 0, moves=True)
        for number in range(BACKUPS):
            run_steps(actor, client, dice.randrange(60))
            rig.settle()
            if dice.random() < 0.5:
                rig.advance(SECOND)
            name = f"{number:02}"
            create(folder, target, name)
            moments[name] = copy.deepcopy(actor)
    for name, moment in moments.items():
        with Rig(restored(target, name, tmp_path / name), file_size=FILE, now=START) as rig:
            check([moment], rig)
    assert target.names() == sorted(moments)


def test_in_an_object_store(folder: Path, bucket: str, tmp_path: Path) -> None:
    target, actor = Target(f"{bucket}/backups"), Actor("store")
    for name in ("1", "2"):
        with Rig(folder) as rig:
            run_steps(actor, rig.client(), 50)
        create(folder, target, name)
    assert [backup.name for backup in target.backups()] == ["1", "2"]
    target.put_chunk(b"of a killed command")
    assert target.remove(["1"]) == 1 and target.names() == ["2"]
    with Rig(restored(target, "2", tmp_path / "restored")) as rig:
        check([actor], rig)


@pytest.mark.costly
@pytest.mark.parametrize("workers", [("--workers", "1"), TWO], ids=["one-worker", "two-workers"])
def test_backups_under_load(
    folder: Path, target: Target, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    """Jobs that exist before and after a backup are in it, and those deleted before are not."""
    count = int(workers[1])
    tubes = (b"mail", *(next(tubes_of(worker, count)) for worker in range(count)))
    clients = [Client(Actor(f"{number}", 0.25, tubes=tubes, moves=True)) for number in range(3)]
    checked = 0
    with ours("-b", folder, "-s", LARGER_FILE, *workers) as server, at_work(clients, server):
        for number in itertools.count():
            name = f"{number:03}"
            before = [(each.bodies(), each.gone()) for each in clients]
            create(folder, target, name)
            after = [each.bodies() for each in clients]
            checked += check_between(restored(target, name, tmp_path / name), before, after)
            names = [{file.path for file in target.load(one).files} for one in ("000", name)]
            if number >= BACKUPS and checked > 100 and names[0] - names[1]:
                break  # files were removed meanwhile


def check_between(
    folder: Path,
    before: list[tuple[set[bytes], set[int]]],
    after: list[set[bytes]],
) -> int:
    """Check a restored folder; return the number of jobs that had to be there."""
    jobs = contents_of(folder)
    bodies = Counter(job.body for job in jobs.values())
    checked = 0
    for (known, gone), then in zip(before, after, strict=True):
        kept = known & then
        lost = kept - bodies.keys()
        assert not lost, f"{len(lost)} jobs are lost"
        assert not gone & jobs.keys(), "deleted jobs are back"
        checked += len(kept)
    assert {body for body, times in bodies.items() if times > 2} == set()
    return checked


def test_c_beanstalkd_opens_a_restored_folder(folder: Path, target: Target, tmp_path: Path) -> None:
    with ours("-b", folder, "-s", FILE) as server, server.connect() as client:
        jobs = [client.put(b"body %d" % number) for number in range(50)]
        client.ask(b"delete %d\r\n" % jobs[0])
        create(folder, target, "one")
    to = restored(target, "one", tmp_path / "restored")
    with reference("-b", to) as server, server.connect() as client:
        assert client.ask(b"peek %d\r\n" % jobs[0]) == b"NOT_FOUND\r\n"
        for number, job in enumerate(jobs[1:], 1):
            body = b"body %d" % number
            assert client.ask(b"peek %d\r\n" % job).endswith(body + b"\r\n")


def test_a_file_that_vanishes_before_it_is_opened(
    folder: Path, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the server removes the oldest file after it has moved its jobs."""
    with Rig(folder, file_size=FILE) as rig:
        client, actor = rig.client(), Actor("vanish")
        run_steps(actor, client, 300)
        rig.advance(SECOND)
        real, opened = open_files.open_regular, []

        def open_regular(path: Path) -> int:
            if not opened:
                opened.append(path)
                run_steps(actor, client, 400)
                rig.advance(SECOND)
                assert not path.exists(), "the server has not removed it"
            return real(path)

        monkeypatch.setattr(open_files, "open_regular", open_regular)
        create(folder, target, "one")
        monkeypatch.undo()
    with Rig(restored(target, "one", tmp_path / "restored"), file_size=FILE) as rig:
        check([actor], rig)


@pytest.mark.parametrize("reading", range(6))
def test_a_job_that_moves_between_two_shards_after_a_reading(
    folder: Path, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: int
) -> None:
    """One shard is read before it has the copy, the other one after the job has left it."""
    to, of = (next(tubes_of(worker)) for worker in (0, 1))
    with ours("-b", folder, *TWO) as server, server.connect() as client:
        client.ask(b"use %b\r\n" % of)
        job = client.put(b"the job")
        client.ask(b"use %b\r\n" % to)
        client.put(b"another")
        readings: list[bool] = []
        real = snapshots._Shard.read_on

        def read_on(self: snapshots._Shard) -> bool:
            readings.append(real(self))
            if len(readings) == reading + 1:
                assert client.ask(b"move %d %b 0 0\r\n" % (job, to)).startswith(b"MOVED ")
            return readings[-1]

        monkeypatch.setattr(snapshots._Shard, "read_on", read_on)
        create(folder, target, "one")
        assert any(readings[4:]) == (reading in (3, 4))
    found = restored(target, "one", tmp_path / "restored")
    bodies = [
        job.body for each in sorted(found.glob("shard-*")) for job in contents([each]).values()
    ]
    assert sorted(bodies) == [b"another", b"the job"]


def interrupted(
    monkeypatch: pytest.MonkeyPatch, method: str, number: int, meanwhile: Callable[[], object]
) -> list[bool]:
    """Call `meanwhile` once, before the call of a method of a shard with this number."""
    calls: list[bool] = []
    real = getattr(snapshots._Shard, method)

    def replaced(self: snapshots._Shard) -> object:
        calls.append(True)
        if len(calls) == number:
            meanwhile()
        return real(self)

    monkeypatch.setattr(snapshots._Shard, method, replaced)
    return calls


@pytest.mark.parametrize(("workers", "then"), [("1", "2"), ("2", "1"), ("2", "3")])
def test_a_folder_that_is_resharded_during_a_backup(
    folder: Path,
    target: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: str,
    then: str,
) -> None:
    args = ("-b", folder, "-s", FILE, "--workers")
    with ours(*args, workers) as server, server.connect() as client:
        for each in range(40):
            client.ask(b"use tube-%d\r\n" % each)
            client.put(b"x" * 500)

    def reshard() -> None:
        with ours(*args, then):
            pass

    interrupted(monkeypatch, "open_files", 1, reshard)
    create(folder, target, "one")
    assert len(contents_of(restored(target, "one", tmp_path / "restored"))) == 40


def test_a_server_that_starts_during_a_backup_and_moves_a_job(
    folder: Path, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, of = (next(tubes_of(worker)) for worker in (0, 1))
    with ours("-b", folder, *TWO) as server, server.connect() as client:
        client.ask(b"use %b\r\n" % to)
        client.put(b"kept")
        client.ask(b"use %b\r\n" % of)
        client.put(b"kept")
        job = client.put(b"the job")

    def move() -> None:
        with ours("-b", folder, *TWO) as server, server.connect() as client:
            assert client.ask(b"move %d %b 0 0\r\n" % (job, to)).startswith(b"MOVED ")

    interrupted(monkeypatch, "read_on", 2, move)
    create(folder, target, "one")
    jobs = contents_of(restored(target, "one", tmp_path / "restored"))
    assert sorted(each.body for each in jobs.values()) == [b"kept", b"kept", b"the job"]


def test_a_file_that_is_begun_and_removed_between_two_readings(
    folder: Path, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its entries a deleted job would be back."""
    tubes = [next(tubes_of(worker)) for worker in (0, 1)]
    with ours("-b", folder, "-s", FILE, *TWO) as server, server.connect() as client:
        client.ask(b"use %b\r\n" % tubes[0])
        job = client.put(b"deleted")
        kept = client.put(b"kept", delay=1000)

        shard = Shard(folder / "shard-000", "", live=True)

        def fill() -> int:
            """Fill a file, and return the number of the next one, which has entries."""
            for _ in range(10):
                client.ask(b"delete %d\r\n" % client.put(b"y" * 500))
            return max(number for number in shard.numbers() if has_entries(shard, number))

        def roll() -> None:
            begun = fill()
            client.ask(b"delete %d\r\n" % job)
            while begun in shard.numbers():
                fill()

        interrupted(monkeypatch, "read_on", 3, roll)
        create(folder, target, "one")
    jobs = contents_of(restored(target, "one", tmp_path / "restored"))
    assert jobs.keys() == {kept}


@pytest.mark.parametrize("workers", [(), TWO], ids=["one-worker", "two-workers"])
def test_a_server_without_jobs(
    folder: Path, target: Target, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    with ours("-b", folder, *workers):
        create(folder, target, "one")
    to = restored(target, "one", tmp_path / "restored")
    with ours("-b", to, *workers) as server, server.connect() as client:
        assert client.put() == 1
    with ours("-b", to, *workers) as server, server.connect() as client:
        assert client.stats()["current-jobs-ready"] == "1"


def test_unchanged_files_are_neither_read_nor_written_again(
    folder: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creating, "SETTLED_S", -1.0)
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(40):
            client.put(b"x" * 500)
        rig.advance(SECOND)
        first = create(folder, target, "1")
        client.put(b"y" * 500)
        rig.advance(SECOND)
        read: list[int] = []
        real = os.pread

        def pread(fd: int, length: int, at: int) -> bytes:
            read.append(length)
            return real(fd, length, at)

        monkeypatch.setattr(creating.os, "pread", pread)
        second = create(folder, target, "2")
        assert 500 < second.written < 2 * FILE < first.written
        assert sum(read) <= 2 * FILE
        assert create(folder, target, "3").written == 0
