"""An independent reader of binlog files, versions 7 and 5, from the description of the format.

It shares no code with the core, so that both cannot have the same error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# id pri (padding) delay ttr body_size (padding) created deadline five counters state (padding)
JOBREC = struct.Struct("<QI4sqqi4sqqIIIIIB3s")
JOBREC_5 = struct.Struct("<QI4sqqi4sqqIIIIIB")
HEADER = 4
SHORT = 84
MARK = 0xBD
CRC_AT = 12
MARK_AT = 77
BY_POLICY = ("expired", "dead-lettered", "discarded")
"""Of jobs that no client deleted, by their number in `extra`."""
STATES = {0: "invalid", 1: "ready", 2: "reserved", 3: "buried", 4: "delayed"}


@dataclass(frozen=True)
class Entry:
    """One entry; times and durations are nanoseconds in both versions."""

    file: int
    offset: int
    size: int
    tube: bytes | None
    body: bytes | None
    id: int
    pri: int
    delay: int
    ttr: int
    body_size: int
    created_at: int
    deadline_at: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    state: str
    crc: bytes
    extra: int
    """The bytes at offset 36 of Jobrec, which C beanstalkd does not use."""
    mark: bytes
    raw: bytes

    @property
    def full(self) -> bool:
        """Whether the entry has tube and body."""
        return self.tube is not None

    @property
    def checksum_is_right(self) -> bool:
        """Whether the field at offset 12 of Jobrec is the CRC-32C of the entry with zeros there."""
        at = HEADER + len(self.tube or b"") + CRC_AT
        blank = self.raw[:at] + bytes(4) + self.raw[at + 4 :]
        return self.crc == struct.pack("<I", crc32c(blank))

    @property
    def is_length_entry(self) -> bool:
        """Whether the entry states that an earlier file `pri` ends at `delay` bytes."""
        is_of_no_job = self.state == "invalid" and not self.full and self.body_size == 0
        return is_of_no_job and self.mark[:1] == bytes([MARK]) and self.pri > 0

    @property
    def is_attribute_entry(self) -> bool:
        """Whether the entry has the attributes of a job, whose full entry follows."""
        return self._is_of_kind(1)

    @property
    def is_ended_key(self) -> bool:
        """Whether the entry has the key of an ended job."""
        return self._is_of_kind(2)

    def _is_of_kind(self, kind: int) -> bool:
        is_of_no_job = self.state == "invalid" and not self.full and self.body_size == 0
        marked = self.mark[:1] == bytes([MARK])
        return is_of_no_job and marked and self.pri == 0 and self.kicks == kind

    @property
    def unique_key(self) -> str | None:
        """The key of an attribute entry."""
        key = struct.pack("<4I", self.reserves, self.timeouts, self.releases, self.buries)
        return key.hex() if any(key) else None

    @property
    def attributes_of(self) -> int:
        """The job of an attribute entry or an ended key."""
        return self.created_at + 1

    @property
    def records_reserve(self) -> bool:
        """Whether the entry has the time of a reserve without an entry of its own."""
        return self.reserve_age != 0

    @property
    def reserve_age(self) -> int:
        """0, or 1 + the nanoseconds from that reserve to the event."""
        if self.ended in ("truncated", "moved"):
            return 0
        return self.extra & ((1 << (29 if self.ended in BY_POLICY else 31)) - 1)

    @property
    def ended(self) -> str | None:
        """How the job ended; None if it is there."""
        if self.state != "invalid":
            return None
        if not self.extra >> 31:
            return "deleted"
        if policy := self.extra >> 29 & 3:
            return BY_POLICY[policy - 1]
        return "moved" if self.extra & 1 else "truncated"


def crc32c(data: bytes) -> int:
    """Compute CRC-32C (Castagnoli)."""
    register = 0xFFFFFFFF
    for byte in data:
        register = (register >> 8) ^ CRC_OF_BYTE[(register ^ byte) & 0xFF]
    return register ^ 0xFFFFFFFF


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


CRC_OF_BYTE = [_crc_of_byte(byte) for byte in range(256)]


def read_file(path: Path) -> list[Entry]:
    """Return all entries of a file; raise AssertionError if it has anything else."""
    return list(_entries(path))


def read_folder(folder: Path) -> list[Entry]:
    """Return all entries of all files, oldest file first."""
    return [entry for path in files(folder) for entry in read_file(path)]


def files(folder: Path) -> list[Path]:
    """Return the binlog files of a folder, oldest first."""
    found = [path for path in folder.glob("binlog.*") if path.suffix[1:].isdigit()]
    return sorted(found, key=number_of)


def number_of(path: Path) -> int:
    """Return the N of binlog.N."""
    return int(path.suffix[1:])


def _entries(path: Path) -> Iterator[Entry]:
    data = path.read_bytes()
    version = struct.unpack_from("<i", data)[0]
    assert version in (5, 7), f"{path} has version {version}"
    length_form, record, unit = ("<i", JOBREC, 1) if version == 7 else ("<Q", JOBREC_5, 1000)
    prefix = struct.calcsize(length_form)
    offset = HEADER
    while offset + prefix + record.size <= len(data):
        name_size = struct.unpack_from(length_form, data, offset)[0]
        record_at = offset + prefix + name_size
        fields = record.unpack_from(data, record_at)
        if fields[0] == 0:
            break
        size = prefix + name_size + record.size + (fields[5] if name_size else 0)
        raw = data[offset : offset + size]
        assert len(raw) == size, f"{path}:{offset}: cut"
        yield _entry(number_of(path), offset, raw, name_size, prefix, fields, unit)
        offset += size
    assert not any(data[offset:]), f"{path}:{offset}: bytes after the last entry"


def _entry(
    file: int,
    offset: int,
    raw: bytes,
    name_size: int,
    prefix: int,
    fields: tuple[object, ...],
    unit: int,
) -> Entry:
    numbers = [field for field in fields if isinstance(field, int)]
    job, pri, delay, ttr, body_size, created, deadline, *counters, state = numbers
    paddings = [field for field in fields if isinstance(field, bytes)]
    return Entry(
        file=file,
        offset=offset,
        size=len(raw),
        tube=raw[prefix : prefix + name_size] if name_size else None,
        body=raw[len(raw) - body_size : -2] if name_size else None,
        id=job,
        pri=pri,
        delay=delay * unit,
        ttr=ttr * unit,
        body_size=body_size,
        created_at=created * unit,
        deadline_at=deadline * unit,
        reserves=counters[0],
        timeouts=counters[1],
        releases=counters[2],
        buries=counters[3],
        kicks=counters[4],
        state=STATES[state],
        crc=paddings[0],
        extra=int.from_bytes(paddings[1], "little"),
        mark=paddings[2] if len(paddings) > 2 else b"",
        raw=raw,
    )
