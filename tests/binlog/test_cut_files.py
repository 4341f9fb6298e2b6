"""A file that lost its end at an edge of an entry, or everything: a later file has its length."""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path

import pytest
from binlog import disk
from binlog.generations import fill
from binlog.reader import files, number_of, read_file, read_folder
from binlog.spoiling import by_c
from servers import reference
from unit.rig import MILLISECOND, Rig, put_line

from beanstalkd_py import errors
from beanstalkd_py.binlog.compact import compact
from beanstalkd_py.binlog.file_walk import Walk
from beanstalkd_py.binlog.folders import held, look_at
from beanstalkd_py.binlog.layout import Layout
from beanstalkd_py.binlog.reshard import reshard
from beanstalkd_py.binlog.verify import verify
from beanstalkd_py.core import fault_injection
from beanstalkd_py.core.clocks import read_clocks
from beanstalkd_py.core.fault_injection import Call

FILE = 4096
JOBS = 160


def filled(folder: Path) -> list[Path]:
    """Files full of jobs, all but the last of which are told of."""
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(JOBS):
            client.put(b"x" * 50)
        rig.stop()
    return files(folder)


def damage_in(folder: Path) -> list[str]:
    return [str(each) for each in verify(look_at(folder), lambda damage: None).damage]


def started(folder: Path) -> tuple[list[str], int]:
    """What a start on a copy warns of, and how many jobs it has."""
    copy = folder.with_name(folder.name + ".started")
    shutil.copytree(folder, copy)
    try:
        with Rig(copy, file_size=FILE) as rig:
            assert rig.client().put(b"served") > 0
            warnings = [line for line in rig.warnings() if "kept as" not in line]
            return warnings, int(rig.counters.ready) - 1
    finally:
        shutil.rmtree(copy)


def lengths(folder: Path) -> dict[int, int]:
    return {each.pri: each.delay for each in read_folder(folder) if each.tells_length}


@pytest.mark.parametrize("left", [0, 1, 3, 4, "half", "last"])
def test_a_start_and_verify_name_it(folder: Path, left: int | str) -> None:
    there = filled(folder)
    assert len(there) > 4
    for path in there[:-1]:
        entries, whole = read_file(path), path.read_bytes()
        edge = {"half": entries[len(entries) // 2].offset, "last": entries[-1].offset}
        size = edge[left] if isinstance(left, str) else left
        lost = [entry for entry in entries if entry.full and entry.offset >= size]
        path.write_bytes(whole[:size])
        later = f"binlog.{number_of(path) + 1}"
        said = (
            f"{path.name}:{max(size, 4)}: the file is cut: its entries ended at {len(whole)}"
            f" when {later} was written"
        )
        assert damage_in(folder) == [said]
        assert started(folder) == ([said], JOBS - len(lost))
        path.write_bytes(whole)
    assert damage_in(folder) == []
    assert started(folder) == ([], JOBS)


def test_zeros_in_its_place_are_named_too(folder: Path) -> None:
    """As a file system leaves a file whose data it has lost; and it is no spare for new jobs."""
    path = filled(folder)[2]
    path.write_bytes(b"\7\0\0\0" + bytes(FILE - 4))
    assert len(damage_in(folder)) == 1
    with Rig(folder, file_size=FILE) as rig:
        assert len(rig.warnings()) == 1
        rig.stop()
    assert path.read_bytes() == b"\7\0\0\0" + bytes(FILE - 4)


def test_it_is_kept_aside_when_its_jobs_are_done(folder: Path) -> None:
    path = filled(folder)[1]
    path.write_bytes(path.read_bytes()[: read_file(path)[3].offset])
    cut = path.read_bytes()
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for job in range(1, JOBS + 1):
            client.ask(b"delete %d\r\n" % job)
        for _ in range(60):
            client.do(b"delete %d" % client.put(b"x" * 500), b"DELETED")
        rig.stop()
    assert (folder / f"{path.name}.bad").read_bytes() == cut
    assert not path.exists()


def test_an_entry_torn_in_a_file_that_was_complete_is_damage(folder: Path) -> None:
    """What a crash leaves at the end of the last file is none."""
    path = filled(folder)[2]
    path.write_bytes(path.read_bytes()[:-10])
    assert len(damage_in(folder)) == 2
    warnings, _ = started(folder)
    assert [line.split(": ")[1] for line in warnings] == [
        "the last entry was not written to its end; it is left out",
        "the file is cut",
    ]


def test_files_of_c_beanstalkd_are_told_of_once_a_server_of_ours_has_started(folder: Path) -> None:
    by_c(folder, steps=200)
    theirs = files(folder)
    assert len(theirs) > 2
    with Rig(folder, file_size=1 << 16, now=read_clocks()) as rig:
        rig.client().put()
        rig.stop()
    used = [path for path in theirs if path.exists() and read_file(path)]
    assert lengths(folder).keys() >= {number_of(path) for path in used}
    assert damage_in(folder) == []
    path = used[0]
    path.write_bytes(path.read_bytes()[: read_file(path)[-1].offset])
    assert len(damage_in(folder)) == 1


def test_c_beanstalkd_has_all_jobs_beside_these_entries(folder: Path) -> None:
    filled(folder)
    assert len(lengths(folder)) > 3
    with reference("-b", folder) as server, server.connect() as client:
        assert client.stats()["current-jobs-ready"] == str(JOBS)
        assert client.ask(b"put 0 0 9 1\r\nx\r\n") == b"INSERTED %d\r\n" % (JOBS + 1)
    assert damage_in(folder) == []


@pytest.mark.parametrize("how", ["compacted", "divided"])
def test_new_files_of_the_tools_tell_too(folder: Path, how: str) -> None:
    top = folder / "top"
    top.mkdir()
    fill(top, steps=200)
    if how == "compacted":
        with held(top, writing=True) as found:
            compact(found, FILE)
        shards = [top]
    else:
        reshard(top, Layout(2), FILE)
        shards = [top / "shard-000", top / "shard-001"]
    assert damage_in(top) == []
    for shard in shards:
        there = files(shard)
        assert lengths(shard).keys() == {number_of(path) for path in there[:-1]}
        for path in there:
            assert path.stat().st_size <= FILE
    path = files(shards[-1])[0]
    path.write_bytes(path.read_bytes()[: read_file(path)[-1].offset])
    assert len(damage_in(top)) == 1


def test_no_entry_is_added_where_nothing_is_synced(folder: Path) -> None:
    """With -F nobody knows what is on disk, so nobody could say that something is missing there."""
    with Rig(folder, file_size=FILE, sync_interval_ns=-1) as rig:
        client = rig.client()
        for _ in range(JOBS):
            client.put(b"x" * 50)
        rig.stop()
    assert lengths(folder) == {}


def test_a_restart_without_jobs_adds_nothing(folder: Path) -> None:
    filled(folder)
    for _ in range(3):
        with Rig(folder, file_size=FILE):
            pass
    assert len(read_folder(folder)) == JOBS + len(lengths(folder))


# --- never a false alarm --------------------------------------------------------------------------


class Recorded(Rig):
    """A core that remembers what its disk has for certain."""

    synced: disk.Snapshot

    def __init__(self, folder: Path, sync_interval_ns: int) -> None:
        self.folder = folder
        super().__init__(folder, file_size=FILE, sync_interval_ns=sync_interval_ns)
        self.seen = self.counters.syncs
        self.synced = disk.take(folder)  # a start syncs what it reads
        if not self.seen:
            current = f"binlog.{self.counters.binlog_current}"
            self.synced[current] = disk.EMPTY

    def settle(self) -> None:
        super().settle()
        if self.counters.syncs != self.seen:
            self.seen = self.counters.syncs
            self.synced = disk.take(self.folder)


def torn(synced: disk.Snapshot, now: disk.Snapshot, dice: random.Random) -> disk.Snapshot:
    """What a power cut may leave: what was synced, and any of the sectors written since."""
    share = dice.choice([0.0, 0.5, 0.9])
    image = {}
    for name, data in now.items():
        old = synced.get(name, disk.EMPTY).ljust(len(data), b"\0")
        sectors = [
            (data if dice.random() < share else old)[at : at + 512]
            for at in range(0, len(old), 512)
        ]
        image[name] = b"".join(sectors)
    return image


def until_power_cut(rig: Recorded, dice: random.Random, live: list[int]) -> disk.Snapshot:
    """Jobs come and go, four to a file, until a sync does not end; what is in the files then."""
    client = rig.client()
    last = dice.randrange(4, 20)
    try:
        for step in range(last + 100):
            if step == last:
                fault_injection.fail(Call.DATASYNC, error=errno.EIO)
            rig.advance(dice.choice([0, 4 * MILLISECOND]))
            replies = client.ask(put_line(b"x" * 900) * dice.choice([1, 2, 3]))
            live += [int(line.split()[1]) for line in replies.splitlines()]
            while len(live) > 12:
                client.do(b"delete %d" % live.pop(dice.randrange(4)), b"DELETED")
        raise AssertionError("every sync has ended")
    except errors.BinlogWriteError:
        return disk.take(rig.folder)
    finally:
        fault_injection.heal()


def power_cuts(folder: Path, seed: int, interval_ns: int) -> int:
    """Restarts and power cuts at random; how many files were there whose lengths are known."""
    dice = random.Random(seed)
    known = 0
    for _ in range(4):
        with Recorded(folder, interval_ns) as rig:
            live = [number for number in range(1, 400) if rig.client().body(number)]
            now = until_power_cut(rig, dice, live)
            synced = rig.synced
        for _ in range(8):
            image = folder.with_name(f"{folder.name}.image")
            disk.lay_out(image, torn(synced, now, dice))
            found = damage_in(image)
            assert not [each for each in found if "is cut" in each], (seed, found)
            walk = Walk(look_at(image).shards[0])
            assert list(walk)
            known += len(walk.reader.lengths())
            walk.close()
            with Rig(image, file_size=FILE) as rig:
                assert not [line for line in rig.warnings() if "is cut" in line], seed
            shutil.rmtree(image)
    return known


@pytest.mark.parametrize("interval_ms", [0, 50])
def test_a_power_cut_is_no_damage(folder: Path, interval_ms: int) -> None:
    top = folder / "top"
    top.mkdir()
    assert power_cuts(top, 1, interval_ms * MILLISECOND) > 10


@pytest.mark.slow
@pytest.mark.parametrize("interval_ms", [0, 50])
def test_many_power_cuts_are_no_damage(folder: Path, interval_ms: int) -> None:
    for seed in range(100, 104):
        top = folder / str(seed)
        top.mkdir()
        power_cuts(top, seed, interval_ms * MILLISECOND)
        shutil.rmtree(top)
