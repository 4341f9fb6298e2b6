"""Truncated, overwritten and corrupt files: no crash, no wrong job, and a report.

A job is either complete and correct or missing. The log names the file and the offset of the
damage.
"""

from __future__ import annotations

import random
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog.reader import CRC_AT, HEADER, JOBREC, MARK, MARK_AT, Entry, crc32c, files, read_file
from core.rig import Rig, RigClient
from servers import reference

from beanstalkd_py.binlog.compact import compact
from beanstalkd_py.binlog.file_walk import Damage
from beanstalkd_py.binlog.folders import inspect_folder, locked_folder
from beanstalkd_py.binlog.verify import verify

JOBS = 6


def body_of(job: int) -> bytes:
    return b"body of %d " % job * 3


def fill(folder: Path) -> list[Entry]:
    """Fill one file with full and short entries, and return the entries."""
    with Rig(folder) as rig:
        client = rig.client()
        client.use(b"mail")
        for job in range(1, JOBS + 1):
            assert client.put(body_of(job), pri=job, ttr=60 + job) == job
        client.bury(2, 22)
        client.ask(b"reserve-job 4\r\n")
        client.do(b"release 4 44 1000", b"RELEASED")
        client.do(b"delete 1", b"DELETED")
        client.bury(5, 55)
        client.do(b"kick-job 5", b"KICKED")
        rig.stop()
    return read_file(folder / "binlog.1")


# The possible states of each job: (state, pri) after each of its entries; None: deleted.
STAGES: dict[int, list[tuple[str, str] | None]] = {
    1: [("ready", "1"), None],
    2: [("ready", "2"), ("buried", "22")],
    3: [("ready", "3")],
    4: [("ready", "4"), ("delayed", "44")],
    5: [("ready", "5"), ("buried", "55"), ("ready", "55")],
    6: [("ready", "6")],
}


def found(client: RigClient) -> dict[int, tuple[str, str]]:
    """Return the existing jobs after checking that each has its stored contents."""
    jobs = {}
    for job in range(1, JOBS + 3):
        body = client.body(job)
        if body is None:
            continue
        assert job <= JOBS and body == body_of(job)
        stats = client.job(job)
        assert (stats["tube"], stats["ttr"]) == ('"mail"', str(60 + job))
        jobs[job] = (stats["state"], stats["pri"])
        assert jobs[job] in STAGES[job]
    return jobs


def at_end(entries: list[Entry]) -> dict[int, tuple[str, str]]:
    """Return the jobs after these entries."""
    jobs: dict[int, tuple[str, str]] = {}
    for job in STAGES:
        seen = sum(entry.id == job for entry in entries)
        stage = STAGES[job][seen - 1] if seen else None
        if stage is not None:
            jobs[job] = stage
    return jobs


def restart(folder: Path, data: bytes) -> tuple[dict[int, tuple[str, str]], list[str]]:
    """Start on a folder with only this file; return the jobs and the warnings."""
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "binlog.1").write_bytes(data)
    with Rig(folder) as rig:
        jobs = found(rig.client())
        warnings = rig.warnings()
        assert rig.client().put() > 0
    return jobs, warnings


@pytest.mark.costly
def test_cut_at_every_byte(folder: Path) -> None:
    """All entries before the cut are kept; a cut inside an entry is reported with its offset."""
    entries = fill(folder)
    whole = (folder / "binlog.1").read_bytes()
    edges = {entry.offset for entry in entries} | {len(whole)}
    for at in range(len(whole) + 1):
        jobs, warnings = restart(folder, whole[:at])
        kept = [entry for entry in entries if entry.offset + entry.size <= at]
        assert jobs == at_end(kept)
        if at in edges or at < 5:
            continue
        start = max(edge for edge in edges if edge <= at)
        blank = not any(whole[start:at])
        reported = [line for line in warnings if line.startswith(f"binlog.1:{start}: ")]
        assert reported if not blank else not warnings, (at, warnings)


@pytest.mark.costly
def test_zeros_after_the_last_written_entry_are_like_a_cut(folder: Path) -> None:
    """A crash leaves zeros in a preallocated file."""
    entries = fill(folder)
    whole = (folder / "binlog.1").read_bytes()
    for at in range(4, len(whole)):
        jobs, _ = restart(folder, whole[:at] + bytes(len(whole) - at + 4096))
        # An entry is complete if its missing bytes are zeros anyway.
        kept = [entry for entry in entries if not any(whole[at : entry.offset + entry.size])]
        assert jobs == at_end(kept)


def flips(entry: Entry) -> Iterator[tuple[int, int]]:
    """Yield every byte of the entry, each with one of its bits."""
    dice = random.Random(entry.offset)
    for at in range(entry.offset, entry.offset + entry.size):
        yield at, 1 << dice.randrange(8)


@pytest.mark.parametrize("which", ["first", "full", "short", "last"])
def test_a_flipped_bit_at_every_byte(folder: Path, which: str) -> None:
    """Only the entry with the bit is lost; the entries before and after it are read."""
    entries = fill(folder)
    index = {"first": 0, "full": 3, "short": 7, "last": len(entries) - 1}[which]
    entry = entries[index]
    assert entry.full == (which in ("first", "full"))
    whole = (folder / "binlog.1").read_bytes()
    for at, bit in flips(entry):
        data = bytearray(whole)
        data[at] ^= bit
        jobs, warnings = restart(folder, bytes(data))
        others = [other for other in entries if other is not entry]
        lost = [other for other in others if not (entry.full and other.id == entry.id)]
        assert jobs == at_end(lost), (at, bit)
        assert any(line.startswith(f"binlog.1:{entry.offset}: ") for line in warnings), warnings


@pytest.mark.slow
def test_every_bit_of_every_byte(folder: Path) -> None:
    """No crash and no wrong job."""
    fill(folder)
    whole = (folder / "binlog.1").read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[at] ^= 1 << bit
            restart(folder, bytes(data))


@pytest.mark.parametrize("size", [1, 7, 84, 300, 512])
def test_overwritten_bytes(folder: Path, size: int) -> None:
    """Overwrite a random block: the remaining jobs are right, and the damage is reported."""
    fill(folder)
    whole = (folder / "binlog.1").read_bytes()
    dice = random.Random(size)
    for at in range(4, len(whole) - size, 13):
        for block in (dice.randbytes(size), bytes(size), whole[4 : 4 + size]):
            data = whole[:at] + block + whole[at + size :]
            _, warnings = restart(folder, data)
            if len(data) == len(whole) and any(whole[at : at + size]) and data != whole:
                assert warnings or size < 8, (at, size)


def mark_at(entry: Entry) -> int:
    """Return the offset of the entry's mark."""
    return entry.offset + HEADER + len(entry.tube or b"") + MARK_AT


@pytest.mark.parametrize("believed_before", [1, 3])
def test_entries_with_corrupt_marks_are_rejected(folder: Path, believed_before: int) -> None:
    """A single valid entry after them proves that beanstalkd_py wrote the file."""
    entries = fill(folder)
    whole = (folder / "binlog.1").read_bytes()
    assert all(entry.full for entry in entries[:believed_before])
    for at, bit in [(1, 1), (1, 0x80), (2, 4), (2, 0xFF)]:
        data = bytearray(whole)
        for entry in entries[:believed_before]:
            data[mark_at(entry) + at] ^= bit
            body = entry.offset + entry.size - len(entry.body or b"") - 2
            data[body : body + 4] = b"EVIL"
        lost = {entry.id for entry in entries[:believed_before]}
        damage = verdict_of(folder, bytes(data))
        jobs, warnings = restart(folder, bytes(data))
        assert jobs == at_end([entry for entry in entries if entry.id not in lost])
        assert warnings
        assert [f"{each.file}:{each.offset}" for each in damage] == [
            line.split(": ")[0] for line in warnings
        ]


def verdict_of(folder: Path, data: bytes) -> list[Damage]:
    """Return the damage that verify reports in a folder with only this file."""
    (folder / "binlog.1").write_bytes(data)
    return verify(inspect_folder(folder), lambda damage: None).damage


def forged(number: int) -> bytes:
    """Return a valid entry for binlog.<number>, which a client can put into a body."""
    head = struct.pack("<i", 4) + b"evil"
    zeros, mark = bytes(4), bytes([MARK, number & 255, number >> 8])
    record = JOBREC.pack(9, 0, zeros, 0, 10**9, 3, zeros, 1, 1, *(0,) * 5, 1, mark)
    entry = head + record + b"x\r\n"
    at = len(head) + CRC_AT
    return entry[:at] + struct.pack("<I", crc32c(entry)) + entry[at + 4 :]


def by_c_beanstalkd(*bodies: bytes) -> bytes:
    """Return a file of C beanstalkd with these jobs, numbered from 1."""
    data = b"\7\0\0\0"
    for number, body in enumerate(bodies, 1):
        record = JOBREC.pack(
            *(number, 5, bytes(4), 0, 60 * 10**9, len(body) + 2, bytes(4), 1, 0),
            *(*(0,) * 5, 1, bytes(3)),
        )
        data += struct.pack("<i", 4) + b"mail" + record + body + b"\r\n"
    return data


@pytest.mark.parametrize("torn", [0, 1, 60])
def test_a_body_is_never_taken_for_an_entry(folder: Path, torn: int) -> None:
    """Bodies, also truncated ones, must not make a file of C beanstalkd look like one of ours."""
    bodies = [b"first", b"a" * 50 + forged(1) + b"b" * 200, b"last" + forged(1) * 3 + b"c" * 100]
    data = by_c_beanstalkd(*bodies)
    data = data[: len(data) - torn]
    damage = verdict_of(folder, data)
    with Rig(folder) as rig:
        client = rig.client()
        found = [client.body(number) for number in (1, 2, 3, 9)]
        assert found == [*bodies[:2], None if torn else bodies[2], None]
        assert len(rig.warnings()) == len(damage) == (torn > 0)


def copied_by_c(entry: Entry) -> bytes:
    """Return a full entry as C beanstalkd's compaction copies it: without a checksum."""
    at = HEADER + len(entry.tube or b"") + CRC_AT
    size = entry.size - (entry.body_size or 0)
    data = entry.raw[:at] + bytes(4) + entry.raw[at + 4 : size - 3] + bytes(3) + entry.raw[size:]
    assert len(data) == entry.size
    return data


def test_a_copy_that_contradicts_the_first_entry_is_rejected(folder: Path) -> None:
    """Only the contradiction shows that the tube's name is corrupt; verify and a start agree."""
    entry = next(entry for entry in fill(folder) if entry.id == 3)
    copy = copied_by_c(entry)
    for name, jobs in ((b"mail", True), (b"nail", False), (b"mai\0", False), (b"mal", False)):
        data = len(name).to_bytes(4, "little") + name + copy[HEADER + 4 :]
        (folder / "binlog.2").write_bytes(b"\7\0\0\0" + data)
        damage: list[Damage] = []
        verify(inspect_folder(folder), damage.append)
        with Rig(folder) as rig:
            assert found(rig.client())[3] == ("ready", "3")
            assert (rig.warnings() == []) == (damage == []) == jobs
        for path in files(folder):
            if path.name != "binlog.1":
                path.unlink()


def test_the_body_of_the_last_copy_is_used(folder: Path, tmp_path: Path) -> None:
    """As in C beanstalkd; a start and compaction agree."""
    entry = next(entry for entry in fill(folder) if entry.id == 3)
    copy = copied_by_c(entry)
    (folder / "binlog.2").write_bytes(b"\7\0\0\0" + copy.replace(b"body", b"BODY"))
    compacted = tmp_path / "compacted"
    shutil.copytree(folder, compacted)
    with locked_folder(compacted, writing=True) as there:
        compact(there, 1 << 20)
    for each in (folder, compacted):
        with Rig(each) as rig:
            assert rig.client().body(3) == body_of(3).replace(b"body", b"BODY")
    for each in (folder, compacted):
        with reference("-b", each) as server, server.connect() as client:
            assert b"BODY" in client.ask(b"peek 3\r\n")


def test_noise_makes_no_jobs(folder: Path) -> None:
    dice = random.Random(1)
    for _ in range(200):
        data = b"\x07\0\0\0" + dice.randbytes(dice.randrange(400))
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "binlog.1").write_bytes(data)
        with Rig(folder) as rig:
            counters = rig.counters
            assert counters.ready + counters.delayed + counters.buried == 0
            if len(data) > 4:
                assert rig.warnings()


def test_a_damaged_file_is_renamed_to_bad_when_its_jobs_are_finished(folder: Path) -> None:
    entries = fill(folder)
    data = bytearray((folder / "binlog.1").read_bytes())
    data[entries[2].offset + 100] ^= 1
    (folder / "binlog.1").write_bytes(data)
    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        for job in range(1, JOBS + 1):
            client.ask(b"delete %d\r\n" % job)
        for _ in range(60):
            client.do(b"delete %d" % client.put(b"x" * 500), b"DELETED")
        rig.stop()
    assert (folder / "binlog.1.bad").read_bytes() == data
    assert not (folder / "binlog.1").exists()


def test_a_torn_tail_is_not_damage(folder: Path) -> None:
    """It is logged, because every crash may leave one, but the file is not kept."""
    entries = fill(folder)
    (folder / "binlog.2").unlink()  # after a kill there is no length entry
    data = (folder / "binlog.1").read_bytes()[: entries[-1].offset + 50]
    (folder / "binlog.1").write_bytes(data + bytes(1000))
    with Rig(folder, file_size=4096) as rig:
        assert re.search(rf"binlog\.1:{entries[-1].offset}: .*not written", rig.warnings()[0])
        client = rig.client()
        for job in range(2, JOBS + 1):
            client.do(b"delete %d" % job, b"DELETED")
        for _ in range(60):
            client.do(b"delete %d" % client.put(b"x" * 500), b"DELETED")
        rig.stop()
    assert all(path.name == "lock" or path in files(folder) for path in folder.iterdir())
    assert not (folder / "binlog.1").exists()


def test_a_corrupt_size_is_not_taken_for_a_torn_tail(folder: Path) -> None:
    """Nothing after it can be read, but the file is kept for repair."""
    data = bytearray(by_c_beanstalkd(*[b"%d " % number + b"x" * 90 for number in range(50)]))
    (folder / "binlog.1").write_bytes(data)
    at = read_file(folder / "binlog.1")[10].offset
    body_size_at = at + HEADER + len(b"mail") + 32
    data[body_size_at + 1] ^= 0x80
    data += bytes(65536 - len(data))
    faults = verdict_of(folder, bytes(data))
    assert [fault.offset for fault in faults] == [at]
    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        for job in range(1, 11):
            client.do(b"delete %d" % job, b"DELETED")
        for _ in range(60):
            client.do(b"delete %d" % client.put(b"x" * 500), b"DELETED")
        rig.stop()
    assert (folder / "binlog.1.bad").read_bytes() == data


def test_a_mark_with_a_later_file_number_is_not_a_copy_by_c_beanstalkd(folder: Path) -> None:
    """Also in the only entry of a file, which no other entry can confirm."""
    with Rig(folder) as rig:
        rig.client().put(b"secret")
        rig.stop()
    path = folder / "binlog.1"
    (entry,) = read_file(path)
    data = bytearray(path.read_bytes())
    data[entry.offset + len(entry.raw) - 4] ^= 1
    for bit in range(16):
        data[mark_at(entry) + 1 + bit // 8] ^= 1 << bit % 8
        assert len(verdict_of(folder, bytes(data))) == 1
        data[mark_at(entry) + 1 + bit // 8] ^= 1 << bit % 8


def test_a_torn_tail_with_misleading_bytes_is_not_damage(folder: Path) -> None:
    """Numbers in a body may look like entries."""
    body = b"".join(struct.pack("<i", number) for number in range(5000))
    with Rig(folder, file_size=65536) as rig:
        client = rig.client()
        for _ in range(3):
            client.put(b"small")
        client.put(body)
        rig.stop()
    path = folder / "binlog.1"
    last = [entry for entry in read_file(path) if entry.full][-1]
    data = path.read_bytes()[: last.offset + 18_000]
    path.write_bytes(data + bytes(65536 - len(data)))
    with Rig(folder, file_size=65536) as rig:
        assert re.search(rf"binlog\.1:{last.offset}: .*not written", rig.warnings()[0])
        assert rig.counters.ready == 3
