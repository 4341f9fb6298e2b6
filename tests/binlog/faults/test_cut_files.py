"""Detect files that were cut between entries or emptied: a later file has their length."""

from __future__ import annotations

import errno
import random
import shutil
import struct
from pathlib import Path

import pytest
from binlog import disk
from binlog.damaged_folders import by_c
from binlog.generations import fill
from binlog.reader import CRC_AT, HEADER, crc32c, files, number_of, read_file, read_folder
from core import fault_injection
from core.fault_injection import Call
from core.rig import MILLISECOND, Rig, put_line
from servers import reference

from beanstalkd_py import errors
from beanstalkd_py.binlog.compact import compact
from beanstalkd_py.binlog.file_walk import Walk
from beanstalkd_py.binlog.folders import inspect_folder, locked_folder
from beanstalkd_py.binlog.layout import HIGHEST_NUMBER, Layout, read_layout, shard_folders
from beanstalkd_py.binlog.reshard import reshard
from beanstalkd_py.binlog.verify import verify
from beanstalkd_py.core.clocks import read_clocks

FILE = 4096
JOBS = 160
NEVER = -1
"""The sync interval with -F."""
SMALL = 4 + 84
"""Size in bytes of a file that has only a length entry."""
TTR_AT = HEADER + 24


def filled(folder: Path, interval_ns: int = 0) -> list[Path]:
    """Fill several files with jobs; the stop adds a small file with a length entry."""
    with Rig(folder, file_size=FILE, sync_interval_ns=interval_ns) as rig:
        client = rig.client()
        for _ in range(JOBS):
            client.put(b"x" * 50)
        rig.stop()
    there = files(folder)
    assert there[-1].stat().st_size == SMALL
    return there


def pretend_reboot(folder: Path) -> int:
    """Pretend that unsynced length entries are of another boot; return their number."""
    changed = 0
    for path in files(folder):
        data = bytearray(path.read_bytes())
        for entry in read_file(path):
            if entry.is_length_entry and entry.ttr:
                raw = bytearray(entry.raw)
                struct.pack_into("<q", raw, TTR_AT, entry.ttr ^ 1)
                raw[HEADER + CRC_AT : HEADER + CRC_AT + 4] = bytes(4)
                struct.pack_into("<I", raw, HEADER + CRC_AT, crc32c(bytes(raw)))
                data[entry.offset : entry.offset + entry.size] = raw
                changed += 1
        path.write_bytes(data)
    return changed


def damage_in(folder: Path) -> list[str]:
    return [str(each) for each in verify(inspect_folder(folder), lambda damage: None).damage]


def started(folder: Path, interval_ns: int = 0) -> tuple[list[str], int]:
    """Return a start's warnings about a copy of the folder, and its number of jobs."""
    copy = folder.with_name(folder.name + ".started")
    shutil.copytree(folder, copy)
    try:
        with Rig(copy, file_size=FILE, sync_interval_ns=interval_ns) as rig:
            assert rig.client().put(b"served") > 0
            warnings = [line for line in rig.warnings() if "kept as" not in line]
            return warnings, int(rig.counters.ready) - 1
    finally:
        shutil.rmtree(copy)


def lengths(folder: Path) -> dict[int, int]:
    return {each.pri: each.delay for each in read_folder(folder) if each.is_length_entry}


@pytest.mark.parametrize("interval_ns", [0, NEVER], ids=["f0", "F"])
@pytest.mark.parametrize("left", [0, 1, 3, 4, "half", "last"])
def test_a_start_and_verify_report_a_cut_file(
    folder: Path, left: int | str, interval_ns: int
) -> None:
    """Test each file with entries, also the last one after a stop."""
    there = filled(folder, interval_ns)
    assert len(there) > 4
    for path in there[:-1]:
        entries, whole = read_file(path), path.read_bytes()
        edge = {"half": entries[len(entries) // 2].offset, "last": entries[-1].offset}
        size = edge[left] if isinstance(left, str) else left
        lost = [entry for entry in entries if entry.full and entry.offset >= size]
        path.write_bytes(whole[:size])
        later = f"binlog.{number_of(path) + 1}"
        reported = (
            f"{path.name}:{max(size, 4)}: the file is cut: its entries ended at {len(whole)}"
            f" when {later} was written"
        )
        assert damage_in(folder) == [reported]
        assert started(folder, interval_ns) == ([reported], JOBS - len(lost))
        path.write_bytes(whole)
    assert damage_in(folder) == []
    assert started(folder) == ([], JOBS)


def test_a_file_of_zeros_is_reported_as_cut(folder: Path) -> None:
    """A file system may leave zeros for lost data; the file is not a preallocated one."""
    path = filled(folder)[2]
    path.write_bytes(b"\7\0\0\0" + bytes(FILE - 4))
    assert len(damage_in(folder)) == 1
    with Rig(folder, file_size=FILE) as rig:
        assert len(rig.warnings()) == 1
        rig.stop()
    assert path.read_bytes() == b"\7\0\0\0" + bytes(FILE - 4)


def test_a_cut_file_is_renamed_to_bad_when_its_jobs_are_finished(folder: Path) -> None:
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
    """At the end of the last file, a torn entry is the result of a crash and no damage."""
    path = filled(folder)[2]
    path.write_bytes(path.read_bytes()[:-10])
    assert len(damage_in(folder)) == 2
    warnings, _ = started(folder)
    assert [line.split(": ")[1] for line in warnings] == [
        "the last entry was not written to its end; it is left out",
        "the file is cut",
    ]


def test_files_of_c_beanstalkd_are_reported_once_a_server_of_ours_has_started(folder: Path) -> None:
    by_c(folder, steps=200)
    theirs = files(folder)
    assert len(theirs) > 2
    with Rig(folder, file_size=1 << 16, now=read_clocks()):
        pass  # killed before it has a command
    used = [path for path in theirs if path.exists() and read_file(path)]
    assert lengths(folder).keys() >= {number_of(path) for path in used}
    assert damage_in(folder) == []
    path = used[0]
    path.write_bytes(path.read_bytes()[: read_file(path)[-1].offset])
    assert len(damage_in(folder)) == 1


def test_c_beanstalkd_ignores_length_entries(folder: Path) -> None:
    filled(folder)
    assert len(lengths(folder)) > 3
    with reference("-b", folder) as server, server.connect() as client:
        assert client.stats()["current-jobs-ready"] == str(JOBS)
        assert client.ask(b"put 0 0 9 1\r\nx\r\n") == b"INSERTED %d\r\n" % (JOBS + 1)
    assert damage_in(folder) == []


@pytest.mark.parametrize("how", ["compacted", "divided"])
def test_files_written_by_the_tools_have_length_entries(folder: Path, how: str) -> None:
    top = folder / "top"
    top.mkdir()
    fill(top, steps=200)
    if how == "compacted":
        with locked_folder(top, writing=True) as found:
            compact(found, FILE)
        before = disk.take(top)
        with locked_folder(top, writing=True) as found:
            compact(found, FILE)
        assert disk.take(top) == before
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
    *jobs, last = files(shards[-1])
    assert last.stat().st_size == SMALL
    for path in (jobs[0], jobs[-1]):
        whole = path.read_bytes()
        path.write_bytes(whole[: read_file(path)[-1].offset])
        assert len(damage_in(top)) == 1
        path.write_bytes(whole)


def test_after_a_kill_the_next_start_writes_the_length_of_the_last_file(folder: Path) -> None:
    for interval_ns in (0, NEVER):
        with Rig(folder, file_size=FILE, sync_interval_ns=interval_ns) as rig:
            rig.client().put(b"x" * 50)
            rig.client().put(b"x" * 50)
        path = folder / f"binlog.{max(each.file for each in read_folder(folder))}"
        assert number_of(path) not in lengths(folder)
        with Rig(folder, file_size=FILE, sync_interval_ns=interval_ns):
            assert (
                lengths(folder)[number_of(path)] == sum(each.size for each in read_file(path)) + 4
            )
        cut = path.read_bytes()[: read_file(path)[-1].offset]
        path.write_bytes(cut)
        assert len(damage_in(folder)) == 1
        shutil.rmtree(folder)
        folder.mkdir()


def test_a_stop_uses_a_preallocated_file_that_is_not_ready_yet(folder: Path) -> None:
    with Rig(folder, file_size=1 << 24) as rig:
        rig.client().put()
        rig.stop()
    assert [path.stat().st_size > SMALL for path in files(folder)] == [True, False]


@pytest.mark.parametrize("call", [Call.WRITE, Call.TRUNCATE, Call.DATASYNC])
def test_a_stop_that_cannot_write_the_length_entry_logs_it_and_leaves_no_file(
    folder: Path, call: Call
) -> None:
    with Rig(folder, file_size=FILE) as rig:
        rig.client().put()
        rig.advance(MILLISECOND)
        fault_injection.fail(call, nth=1 if call == Call.WRITE else 2, error=errno.EIO)
        rig.core.stop()
        fault_injection.heal()
        assert [line.split(":")[0] for line in rig.warnings()] == [
            "cannot write binlog.2 with the length of binlog.1"
        ]
    assert [path.name for path in files(folder)] == ["binlog.1"]
    assert started(folder) == ([], 1)


def test_a_corrupt_size_of_the_last_entry_is_damage(folder: Path) -> None:
    """Without the length entry, the file would look like one torn by a crash."""
    filled(folder)
    path = files(folder)[-2]
    last = read_file(path)[-1]
    data = bytearray(path.read_bytes())
    body_size_at = last.offset + HEADER + len(last.tube or b"") + 32
    data[body_size_at + 1] ^= 1
    path.write_bytes(data)
    reported = [f"{path.name}:{last.offset}: the file is cut: its entries ended at {len(data)}"]
    assert [line.split(" when")[0] for line in damage_in(folder)][1:] == reported
    assert [line.split(" when")[0] for line in started(folder)[0]][1:] == reported
    with Rig(folder, file_size=FILE) as rig:
        for job in range(1, JOBS + 1):
            rig.client().ask(b"delete %d\r\n" % job)
        for _ in range(60):
            rig.client().do(b"delete %d" % rig.client().put(b"x" * 500), b"DELETED")
        rig.stop()
    assert (folder / f"{path.name}.bad").read_bytes() == data


@pytest.mark.parametrize("interval_ns", [0, NEVER], ids=["f0", "F"])
def test_a_restart_without_jobs_adds_nothing(folder: Path, interval_ns: int) -> None:
    filled(folder, interval_ns)
    for turn in range(6):
        with Rig(folder, file_size=FILE, sync_interval_ns=interval_ns) as rig:
            if turn % 2:
                rig.stop()
    assert len(read_folder(folder)) == JOBS + len(lengths(folder))


# --- without syncs --------------------------------------------------------------------------------


@pytest.mark.parametrize("interval_ns", [0, NEVER], ids=["f0", "F"])
def test_after_a_reboot_lost_unsynced_entries_are_not_damage(
    folder: Path, interval_ns: int
) -> None:
    """A power cut may lose unsynced entries; that is reported once."""
    path = filled(folder, NEVER)[2]
    whole, edge = path.read_bytes(), read_file(path)[5].offset
    path.write_bytes(whole[:edge])
    assert len(damage_in(folder)) == 1 and " is cut" in damage_in(folder)[0]
    path.write_bytes(whole)
    assert pretend_reboot(folder) > 4
    assert damage_in(folder) == []
    path.write_bytes(whole[:edge])
    reported = (
        f"{path.name}:{edge}: entries are lost: they ended at {len(whole)} when"
        f" binlog.{number_of(path) + 1} was written, but were never synced (-F),"
        " and this is another boot"
    )
    verdict = verify(inspect_folder(folder), lambda damage: None)
    assert [(str(each), each.torn) for each in verdict.damage] == [(reported, True)]
    for warnings in ([reported], [], []):
        with Rig(folder, file_size=FILE, sync_interval_ns=interval_ns) as rig:
            assert rig.warnings() == warnings
            client = rig.client()
            client.put()
        assert damage_in(folder) == []
    assert lengths(folder)[number_of(path)] == edge
    with Rig(folder, file_size=FILE, sync_interval_ns=interval_ns) as rig:
        for job in range(1, JOBS + 4):
            rig.client().ask(b"delete %d\r\n" % job)
        for _ in range(60):
            rig.client().do(b"delete %d" % rig.client().put(b"x" * 500), b"DELETED")
        rig.stop()
    assert not path.exists()
    assert not list(folder.glob("*.bad"))


def test_a_start_that_syncs_writes_lengths_valid_for_every_boot(folder: Path) -> None:
    path = filled(folder, NEVER)[2]
    with Rig(folder, file_size=FILE) as rig:
        rig.stop()
    pretend_reboot(folder)
    path.write_bytes(path.read_bytes()[: read_file(path)[5].offset])
    assert len(damage_in(folder)) == 1
    assert " is cut" in damage_in(folder)[0]


def test_the_length_of_a_cut_file_is_not_forgotten(folder: Path) -> None:
    path = filled(folder, NEVER)[2]
    path.write_bytes(path.read_bytes()[: read_file(path)[5].offset])
    for interval_ns in (0, NEVER, 0):
        with Rig(folder, file_size=FILE, sync_interval_ns=interval_ns) as rig:
            assert len(rig.warnings()) == 1
            rig.client().put()
            rig.stop()
        assert len(damage_in(folder)) == 1


@pytest.mark.costly
def test_a_power_cut_without_syncs_damages_no_file(folder: Path) -> None:
    """The disk may have any part of the data written since the boot."""
    dice = random.Random(3)
    lost = 0
    for turn in range(40):
        top = folder / str(turn)
        top.mkdir()
        for _ in range(dice.choice([1, 2, 3])):
            with Rig(top, file_size=FILE, sync_interval_ns=NEVER) as rig:
                live = [rig.client().put(b"x" * 300) for _ in range(30)]
                for job in live[:6]:
                    rig.client().do(b"delete %d" % job, b"DELETED")
                if dice.random() < 0.5:
                    rig.stop()
        assert damage_in(top) == []
        pretend_reboot(top)
        disk.lay_out(top, torn({}, disk.take(top), dice))
        found = damage_in(top)
        assert not [each for each in found if " is cut" in each]
        lost += sum("entries are lost" in each for each in found)
        with Rig(top, file_size=FILE, sync_interval_ns=NEVER) as rig:
            assert not [line for line in rig.warnings() if " is cut" in line]
    assert lost > 2


# --- no false alarms ------------------------------------------------------------------------------


class Recorded(Rig):
    """A core that records the durable contents of its disk."""

    synced: disk.Snapshot

    def __init__(self, folder: Path, sync_interval_ns: int) -> None:
        self.folder = folder
        super().__init__(folder, file_size=FILE, sync_interval_ns=sync_interval_ns)
        self.seen = self.counters.syncs
        self.synced = disk.take(folder)  # a start syncs the files that it reads
        if not self.seen:
            current = f"binlog.{self.counters.binlog_current}"
            self.synced[current] = disk.EMPTY

    def settle(self) -> None:
        super().settle()
        if self.counters.syncs != self.seen:
            self.seen = self.counters.syncs
            self.synced = disk.take(self.folder)


def torn(synced: disk.Snapshot, now: disk.Snapshot, dice: random.Random) -> disk.Snapshot:
    """Return a possible result of a power cut: the synced data and random unsynced sectors."""
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
    """Put and delete jobs, four per file, until a sync does not end; return the files."""
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
    """Restart and cut the power at random; return the number of files with known lengths."""
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
            walk = Walk(inspect_folder(image).shards[0])
            assert list(walk)
            known += len(walk.reader.lengths())
            walk.close()
            with Rig(image, file_size=FILE) as rig:
                assert not [line for line in rig.warnings() if "is cut" in line], seed
            shutil.rmtree(image)
    return known


@pytest.mark.parametrize("interval_ms", [0, 50])
def test_a_power_cut_is_not_reported_as_damage(folder: Path, interval_ms: int) -> None:
    top = folder / "top"
    top.mkdir()
    assert power_cuts(top, 1, interval_ms * MILLISECOND) > 10


@pytest.mark.slow
@pytest.mark.parametrize("interval_ms", [0, 50])
def test_many_power_cuts_are_not_reported_as_damage(folder: Path, interval_ms: int) -> None:
    for seed in range(100, 104):
        top = folder / str(seed)
        top.mkdir()
        power_cuts(top, seed, interval_ms * MILLISECOND)
        shutil.rmtree(top)


# --- numbers without files ------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("suffix", ["bad", "done"])
@pytest.mark.parametrize("interval_ns", [0, NEVER], ids=["f0", "F"])
def test_numbers_above_a_renamed_file_are_not_reported_as_a_gap(
    folder: Path, suffix: str, end: str, interval_ns: int
) -> None:
    """A folder that was resharded twice, or served by C beanstalkd, has such a file."""
    filled(folder)
    renamed = max(map(number_of, files(folder))) + 3
    (folder / f"binlog.{renamed}.{suffix}").touch()
    for _ in range(3):
        with Rig(folder, file_size=FILE, sync_interval_ns=interval_ns) as rig:
            assert not [line for line in rig.warnings() if "missing" in line]
            assert rig.counters.binlog_current > renamed
            rig.client().put(b"x" * 50)
            if end == "stop":
                rig.stop()
        assert damage_in(folder) == []
    (folder / f"binlog.{renamed}.{suffix}").unlink()
    assert damage_in(folder) == []
    files(folder)[1].unlink()
    assert any("files between them are missing" in line for line in damage_in(folder))
    assert any("files between them are missing" in line for line in started(folder)[0])


def test_the_unused_file_of_a_kill_below_a_renamed_file(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        rig.client().put()
    spare = max(map(number_of, files(folder)))
    (folder / f"binlog.{spare + 3}.done").touch()
    for _ in range(3):
        with Rig(folder, file_size=FILE) as rig:
            assert not [line for line in rig.warnings() if "missing" in line]
            assert rig.counters.binlog_current > spare + 3
            for _ in range(20):
                rig.client().put(b"x" * 500)
        assert damage_in(folder) == []


@pytest.mark.parametrize("suffix", ["bad", "done"])
def test_a_folder_that_was_resharded_beside_a_renamed_file(folder: Path, suffix: str) -> None:
    """No number is skipped, so that the next start never reports a missing file."""
    top = folder / "top"
    top.mkdir()
    fill(top, steps=200)
    (top / f"binlog.30.{suffix}").touch()
    reshard(top, Layout(2), FILE)
    reshard(top, Layout(), FILE)
    for _ in range(3):
        assert damage_in(top) == []
        numbers = list(map(number_of, files(top)))
        assert numbers == list(range(31, 31 + len(numbers)))
        with Rig(top, file_size=FILE) as rig:
            assert not [line for line in rig.warnings() if "missing" in line]
            rig.client().put()


def test_a_reshard_without_numbers_left(folder: Path) -> None:
    """C beanstalkd and the server do not read files with higher numbers."""
    fill(folder, steps=200)
    (folder / f"binlog.{HIGHEST_NUMBER}.bad").touch()
    before = started(folder)
    with pytest.raises(errors.BinlogFolderError, match="has no numbers left for new files"):
        reshard(folder, Layout(2), FILE)
    assert read_layout(folder) is None
    assert not shard_folders(folder)
    (folder / f"binlog.{HIGHEST_NUMBER}.bad").unlink()
    assert started(folder) == before
