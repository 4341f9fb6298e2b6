"""Kinds of stores that only RocketMQ writes, made by its own code (java/WriteStore.java).

Readable parts are read and are no damage. Unreadable parts are listed. A store that this version
cannot write correctly is not opened for writing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from history.stores import BY_HAND, files_of, opened, unpacked

from beanstalkd_py.errors import StoreUsageError
from beanstalkd_py.history.queries.listing import last_messages, unindexed_messages
from beanstalkd_py.history.store import Message, Options, Sizes, Store, StoreReader
from beanstalkd_py.history.verify import Report, verify

KINDS = ("batch-queues", "rocksdb-queues", "light-queues", "no-index", "no-mmap")
MESSAGES = 40
AS_IT_IS = Options(create=False, background=False, retention=None)


@pytest.fixture
def store_of(tmp_path: Path):
    """Return a function that unpacks a store."""
    return lambda kind: unpacked(kind, tmp_path)


def look(folder: Path) -> Report:
    with StoreReader.open(folder) as store:
        return verify(store)


@pytest.mark.parametrize("state", ["closed", "crashed"])
@pytest.mark.parametrize("kind", KINDS)
def test_verify_reports_no_fault_in_any_kind(store_of, kind, state):
    folder = store_of(kind)
    if state == "crashed":
        (folder / "abort").write_text("1")
    before = files_of(folder)
    with StoreReader.open(folder) as store:
        assert store.fault == ""
        assert len(list(store.scan())) == MESSAGES
        report = verify(store)
    assert report.faults == []
    assert report.messages == MESSAGES
    assert bool(report.unchecked) == (kind in ("batch-queues", "rocksdb-queues", "no-index"))
    assert files_of(folder) == before


@pytest.mark.parametrize(
    ("kind", "reason"), [("batch-queues", "batch consume queues"), ("rocksdb-queues", "RocksDB")]
)
def test_a_store_that_cannot_be_written_is_rejected_unchanged(store_of, kind, reason):
    folder = store_of(kind)
    before = files_of(folder)
    for options in (AS_IT_IS, BY_HAND):
        with pytest.raises(StoreUsageError, match=reason):
            Store.open(folder, options)
    assert files_of(folder) == before


def test_a_separate_rocksdb_folder_is_found(store_of):
    """RocketMQ uses one with useSeparateStorePathForRocksdbCQ."""
    folder = store_of("rocksdb-queues")
    (folder / "consumequeue").rename(folder / "consumequeue_rocksdb")
    with pytest.raises(StoreUsageError, match="consumequeue_rocksdb"):
        Store.open(folder, AS_IT_IS)
    (text,) = look(folder).unchecked
    assert "consumequeue_rocksdb" in text


@pytest.mark.parametrize("kind", ["light-queues", "no-index", "no-mmap"])
def test_a_closed_store_can_be_appended_to(store_of, kind):
    folder = store_of(kind)
    with Store.open(folder, AS_IT_IS) as store:
        store.append([Message(topic="special", body=b"one more", properties={"KEYS": "more"})])
        store.dispatch()
        assert [each.body for each in store.query("special", "more")] == [b"one more"]
    report = look(folder)
    assert report.faults == []
    assert report.messages == MESSAGES + 1


def test_an_unclosed_store_with_light_queues_is_left_to_rocketmq(store_of):
    folder = store_of("light-queues")
    (folder / "abort").write_text("1")
    before = files_of(folder)
    with pytest.raises(StoreUsageError, match=r"start RocketMQ"):
        Store.open(folder, AS_IT_IS)
    assert files_of(folder) == before | {"lock": b"lock"}


def test_a_wrong_unit_of_a_light_queue_is_damage(store_of):
    folder = store_of("light-queues")
    path = folder / "consumequeue" / "%LMQ%a" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[0:20], data[20:40] = data[20:40], data[0:20]
    path.write_bytes(data)
    faults = look(folder).faults
    assert [(fault.file, fault.offset) for fault in faults] == [(str(path), 0), (str(path), 20)]


def test_messages_of_light_queues_are_not_listed_twice(store_of):
    with StoreReader.open(store_of("light-queues")) as store:
        everything = [each.offset for each in store.scan()]
        assert [each.offset for each in last_messages(store, MESSAGES, pytest.fail)] == everything
        light = last_messages(store, MESSAGES, pytest.fail, "%LMQ%a")
        assert [each.topic for each in light] == ["special"] * 20


def test_bytes_after_the_end_are_damage_if_a_queue_refers_to_them(store_of):
    """RocketMQ leaves such bytes with writeWithoutMmap; a damaged last message is different."""
    folder = store_of("no-mmap")
    with StoreReader.open(folder) as store:
        end = store.log.end
        last = store.last()
        assert last is not None
        assert store.log.segments.first_data(end) is not None
    path = folder / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[last.offset + 4] ^= 0xFF
    path.write_bytes(data)
    with StoreReader.open(folder) as store:
        assert store.fault != ""
        assert any("behind the end of the log" in each.what for each in verify(store).faults)


def test_a_lost_index_differs_from_a_disabled_one(store_of):
    folder = store_of("light-queues")
    for path in (folder / "index").iterdir():
        path.unlink()
    assert look(folder).faults == []
    checkpoint = bytearray((folder / "checkpoint").read_bytes())
    checkpoint[16:24] = checkpoint[0:8]  # as after an index file became full
    (folder / "checkpoint").write_bytes(checkpoint)
    (fault,) = look(folder).faults
    assert "40 keys from this message on are not in the index" in fault.what


@pytest.mark.parametrize("with_sizes", [True, False])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_one_index_file_of_wrong_length_does_not_block_the_store(tmp_path, which, with_sizes):
    folder = tmp_path / "store"
    sizes = Sizes(segment_bytes=4096, queue_file_units=16, index_slots=8, index_entries=32)
    messages = [Message(topic="t", properties={"KEYS": f"k{n}"}) for n in range(100)]
    with Store.open(folder, Options(sizes=sizes, background=False, retention=None)) as store:
        store.append(messages)
    if not with_sizes:
        (folder / "store.json").unlink()
    path = sorted((folder / "index").iterdir())[which]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 + 1)
    with StoreReader.open(folder) as store:
        assert len(list(store.scan())) == 100
        for number in range(100):
            key = f"k{number}"
            found = {
                each.offset for each in (*store.query("t", key), *unindexed_messages(store, key))
            }
            assert len(found) == 1
        faults = verify(store).faults
    assert f"{path}:0: " in str(faults[0]) and "bytes, not" in faults[0].what
    with opened(folder, Options(sizes=sizes, background=False, retention=None)) as store:
        assert path.name in store.recovered.remade
        assert verify(store).faults == []
