"""verify finds every inconsistency, and reports its place."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from history.stores import BY_HAND, SMALL, files_of, opened, queue_messages, some_messages

from beanstalkd_py.history.store import Store, StoreReader
from beanstalkd_py.history.verify import Fault, Report, verify


@pytest.fixture
def folder(tmp_path) -> Path:
    options = replace(BY_HAND, sizes=replace(SMALL, queue_file_units=4))
    with Store.open(tmp_path / "store", options) as store:
        store.append(some_messages(6, 120))
    return tmp_path / "store"


def look(folder: Path) -> Report:
    with StoreReader.open(folder) as store:
        return verify(store)


def flip(path: Path, at: int, mask: int = 0x10) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def test_a_valid_store_has_no_faults(folder):
    report = look(folder)
    assert report.is_clean
    assert (report.messages, report.pending) == (120, 0)
    assert report.units > 80
    assert report.entries > 150


def test_damage_in_the_log_is_reported_with_file_and_offset_and_the_next_files_are_read(folder):
    with StoreReader.open(folder) as store:
        victim = next(each for each in store.scan() if len(each.body) > 90 and each.offset > 5000)
    start = victim.offset - victim.offset % 4096
    path = folder / f"commitlog/{start:020d}"
    flip(path, victim.offset - start + 110)
    report = look(folder)
    what = "the body does not have its checksum"
    assert report.faults[0] == Fault(str(path), victim.offset - start, what)
    assert report.messages > 100 - 40


def test_a_record_that_recovery_rejects_is_a_fault(tmp_path):
    """The store's messages have __CRC32#, except for one."""
    options = replace(BY_HAND, sizes=replace(SMALL, property_crc=True))
    with Store.open(tmp_path / "store", options) as store:
        store.append(some_messages(7, 50))
    with StoreReader.open(tmp_path / "store") as store:
        assert verify(store).faults == []
        victim = list(store.scan())[30]
    path = tmp_path / "store" / f"commitlog/{victim.offset // 4096 * 4096:020d}"
    at = path.read_bytes().index(b"__CRC32#", victim.offset % 4096)
    flip(path, at)
    (fault,) = [each for each in look(tmp_path / "store").faults if each.file == str(path)]
    assert (fault.offset, fault.what) == (
        victim.offset % 4096,
        "the record does not have its checksum",
    )


@pytest.mark.parametrize("seed", range(10))
def test_any_changed_byte_of_a_queue_is_found(folder, seed):
    dice = random.Random(seed)
    files = [
        path for path in sorted(folder.glob("consumequeue/*/*/*")) if path.read_bytes().strip(b"\0")
    ]
    path = dice.choice(files)
    used = len(path.read_bytes().rstrip(b"\0"))
    at = dice.randrange(used)
    flip(path, at, 1 << dice.randrange(8))
    faults = look(folder).faults
    assert any(fault.file == str(path) and abs(fault.offset - at) <= 20 for fault in faults) or any(
        str(path.parent) in fault.file and "missing" in fault.what for fault in faults
    )


@pytest.mark.parametrize("seed", range(10))
def test_any_changed_byte_of_an_index_file_is_found(folder, seed):
    dice = random.Random(seed)
    path = dice.choice(sorted((folder / "index").iterdir())[:-1])  # the last one is not full
    at = dice.choice([dice.randrange(40), dice.randrange(40, len(path.read_bytes()))])
    if 72 <= at < 92:
        at += 20  # entry 0 is never used
    flip(path, at)
    assert str(path) in {fault.file for fault in look(folder).faults}


def test_missing_units_and_entries_are_reported(folder):
    last = sorted(folder.glob("consumequeue/mails/0/*"))[-1]
    last.write_bytes(bytes(80))
    assert any("missing" in fault.what for fault in look(folder).faults)
    sorted((folder / "index").iterdir())[-1].unlink()
    assert any("not in the index" in fault.what for fault in look(folder).faults)


def test_a_unit_without_a_message_is_reported(folder):
    path = sorted(folder.glob("consumequeue/mails/0/*"))[-1]
    data = path.read_bytes()
    used = -(-len(data.rstrip(b"\0")) // 20) * 20
    path.write_bytes(data[:used] + struct.pack(">qiq", 17, 100, 0) + data[used + 20 :])
    fault = Fault(str(path), used, "leads to offset 17, where no message of the queue begins")
    assert fault in look(folder).faults


def test_a_tag_code_of_an_extended_queue_is_not_a_fault(folder):
    """RocketMQ writes such codes for queues with `consumequeue_ext`; the messages have the tags."""
    path = sorted(folder.glob("consumequeue/mails/0/*"))[0]
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, 12, -(2**63) + 40)
    path.write_bytes(data)
    assert [(fault.file, fault.offset) for fault in look(folder).faults] == [(str(path), 0)]
    (folder / "consumequeue_ext").mkdir()
    with StoreReader.open(folder) as store:
        assert verify(store).faults == []
        assert queue_messages(store, "mails")[0].queue_offset == 0
    struct.pack_into(">q", data, 12, 40)
    path.write_bytes(data)
    assert [(fault.file, fault.offset) for fault in look(folder).faults] == [(str(path), 0)]


def test_units_and_entries_after_the_end_of_the_log_are_reported(folder):
    with StoreReader.open(folder) as store:
        end = store.log.end
    path = sorted((folder / "commitlog").iterdir())[-1]
    flip(path, end % 4096 + 100)
    assert (
        Fault(str(path), end % 4096 + 100, "something is left behind the end of the log")
        in look(folder).faults
    )


def test_files_of_a_wrong_size_or_that_are_missing_are_reported(folder):
    path = sorted((folder / "commitlog").iterdir())[1]
    path.write_bytes(path.read_bytes()[:-1])
    assert any("4095 bytes, not 4096" in fault.what for fault in look(folder).faults)
    sorted(folder.glob("consumequeue/mails/0/*"))[0].unlink()
    assert any("before the first file are missing" in fault.what for fault in look(folder).faults)


def test_with_a_running_writer_undispatched_messages_are_not_a_fault(tmp_path):
    with opened(tmp_path / "store") as store:
        store.append(some_messages(6, 50))
        store.dispatch()
        store.append(some_messages(7, 50))
        before = files_of(tmp_path / "store")
        report = look(tmp_path / "store")
        assert report.faults == []
        assert report.pending > 30
        assert files_of(tmp_path / "store") == before
