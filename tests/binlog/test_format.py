"""The format of entries, byte for byte, checked by an independent reader."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from binlog.reader import HEADER, MARK, SHORT, Entry, crc32c, files, read_file, read_folder
from binlog.workload import Actor, run_steps
from core.rig import SECOND, START, Rig

WALL = START.wall


def entries_of(folder: Path) -> list[Entry]:
    (path,) = [path for path in files(folder) if any(path.read_bytes()[HEADER:])]
    return read_file(path)


def test_crc32c_is_the_castagnoli_one() -> None:
    """The check value of the algorithm's definition, and two from RFC 3720."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes(range(32))) == 0x46DD794E


def test_a_full_and_a_short_entry_byte_by_byte(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        client.use(b"mail")
        client.put(b"hello", pri=1, delay=2, ttr=3)
        client.do(b"delete 1", b"DELETED")
    data = files(folder)[0].read_bytes()
    full = (
        "04000000" + b"mail".hex() + "0100000000000000"  # namelen, name, id
        "01000000" + "cccccccc"  # pri, checksum
        "0094357700000000"  # delay: 2e9 ns
        "005ed0b200000000"  # ttr: 3e9 ns
        "07000000" + "00000000"  # body_size with CR LF, padding
        + struct.pack("<q", WALL).hex()
        + struct.pack("<q", WALL + 2 * SECOND).hex()
        + "00000000" * 5
        + "04" + "bd0100"  # Delayed, mark and the number of the file
        + b"hello\r\n".hex()
    )  # fmt: skip
    short = (
        "00000000" + "0100000000000000"
        "01000000" + "cccccccc"
        "0094357700000000"
        "005ed0b200000000"
        "07000000" + "00000000"
        + struct.pack("<q", WALL).hex()
        + struct.pack("<q", WALL).hex()  # when it was deleted
        + "00000000" * 5
        + "00" + "bd0100"
    )  # fmt: skip
    expected = with_checksum(full, 4) + with_checksum(short, 0)
    assert data[:HEADER] == b"\x07\x00\x00\x00"
    assert data[HEADER : HEADER + len(expected)] == expected
    assert not any(data[HEADER + len(expected) :])
    assert len(data) == 1 << 16


def with_checksum(text: str, name_size: int) -> bytes:
    """Replace cccccccc by the checksum of the entry."""
    at = HEADER + name_size + 12
    blank = bytes.fromhex(text.replace("cccccccc", "00000000"))
    return blank[:at] + struct.pack("<I", crc32c(blank)) + blank[at + 4 :]


def test_checksums_of_bodies_of_every_length(folder: Path) -> None:
    """The checksum is computed over lanes of 80 and of 320 bytes, three at once."""
    dice = random.Random("lanes")
    lengths = [*range(300), *range(800, 840), *range(900, 1000), *range(1840, 1900), 5000]
    with Rig(folder) as rig:
        client = rig.client()
        for length in lengths:
            client.put(dice.randbytes(length))
    entries = [entry for entry in read_folder(folder) if entry.full]
    assert [len(entry.body or b"") for entry in entries] == lengths
    assert all(entry.checksum_is_right for entry in entries)


def test_every_recorded_change_has_its_time(folder: Path) -> None:
    """Reserve, touch, timeouts and expired delays write nothing."""
    with Rig(folder) as rig:
        client = rig.client()

        def at(second: int) -> None:
            rig.advance(WALL + second * SECOND - rig.now.wall)

        client.put(b"b", pri=5, ttr=60)
        at(1)
        client.reserve()
        client.do(b"touch 1", b"TOUCHED")
        at(2)
        client.do(b"bury 1 6", b"BURIED")
        at(3)
        client.do(b"kick 1", b"KICKED 1")
        at(4)
        client.reserve()
        client.do(b"release 1 7 0", b"RELEASED")
        at(5)
        client.reserve()
        client.do(b"release 1 8 9", b"RELEASED")
        at(6)
        client.do(b"kick-job 1", b"KICKED")
        at(7)
        client.reserve()
        at(67)  # the TTR has expired
        client.reserve()
        at(68)
        client.do(b"delete 1", b"DELETED")
        at(70)
        client.put(b"d", delay=9)
        at(80)
        assert client.job(2)["state"] == "ready"
    seen = [
        (e.full, e.state, e.pri, e.delay // SECOND, (e.deadline_at - WALL) // SECOND)
        for e in entries_of(folder)
    ]
    assert seen == [
        (True, "ready", 5, 0, 0),
        (False, "buried", 6, 0, 2),
        (False, "ready", 6, 0, 3),
        (False, "ready", 7, 0, 4),
        (False, "delayed", 8, 9, 5 + 9),
        (False, "ready", 8, 9, 6),
        (False, "invalid", 8, 9, 68),
        (True, "delayed", 0, 9, 70 + 9),
    ]
    last = entries_of(folder)[6]
    counts = (last.reserves, last.timeouts, last.releases, last.buries, last.kicks)
    assert counts == (5, 1, 2, 1, 2)


def test_every_entry_has_a_valid_checksum_and_is_within_its_file(folder: Path) -> None:
    actor = Actor("format", put_share=0.6)
    with Rig(folder, file_size=4096) as rig:
        run_steps(actor, rig.client(), 150)
    entries = read_folder(folder)
    assert len(entries) > 50 and any(e.file != entries[0].file for e in entries)
    for entry in entries:
        assert entry.checksum_is_right, f"binlog.{entry.file}:{entry.offset}"
        assert entry.mark == bytes([MARK]) + struct.pack("<H", entry.file)
        assert entry.size == SHORT + (len(entry.tube) + entry.body_size if entry.tube else 0)
    for path in files(folder):
        assert path.stat().st_size <= 4096


@pytest.mark.parametrize("number", [65535, 65536, 65537, 10**9 - 1])
def test_the_mark_carries_the_low_bits_of_the_file_number(folder: Path, number: int) -> None:
    (folder / f"binlog.{number - 1}").write_bytes(b"\x07\0\0\0" + b"\0" * 3 + b"x")
    with Rig(folder) as rig:
        rig.client().put(b"kept")
    entry = next(e for e in read_file(folder / f"binlog.{number}") if e.full)
    assert entry.mark == bytes([MARK]) + struct.pack("<H", number % 65536)
    with Rig(folder) as rig:
        assert rig.client().body(1) == b"kept"


def test_a_new_file_starts_with_the_highest_id_unless_a_live_job_has_it(folder: Path) -> None:
    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        while len(files(folder)) < 3 or client.job(int(rig.shared.last_id))["file"] == "1":
            client.put(b"x" * 900)
        last = client.put(b"x")
        client.do(b"delete %d" % last, b"DELETED")
        rig.stop()
    with Rig(folder) as rig:
        pass
    # The last file in use; an empty preallocated file may follow it.
    first = next(entries[0] for path in reversed(files(folder)) if (entries := read_file(path)))
    assert (first.id, first.state, first.full, first.body_size) == (last, "invalid", False, 0)
    assert first.checksum_is_right
