"""Consume queues and index files: their bytes, and queries compared with a full scan."""

from __future__ import annotations

import bisect
import os
import random
import struct

import pytest
from history.stores import BY_HAND, SMALL, assert_holds, opened, some_messages
from hypothesis import given as for_all
from hypothesis import strategies as some

from beanstalkd_py.history import reader as reader_module
from beanstalkd_py.history._store import ffi, lib
from beanstalkd_py.history.files import open_files, segments
from beanstalkd_py.history.message import java_hash, key_hash
from beanstalkd_py.history.options import Options, Sizes
from beanstalkd_py.history.store import Message, Store, StoreReader
from beanstalkd_py.history.writing import recovery

UNIT = struct.Struct(">qiq")
ENTRY = struct.Struct(">iqii")
HEADER = struct.Struct(">qqqqii")


def units_of(folder, topic: str, queue_id: int = 0) -> bytes:
    files = sorted((folder / "consumequeue" / topic / str(queue_id)).iterdir())
    return b"".join(path.read_bytes() for path in files)


# --- queues ---------------------------------------------------------------------------------------


def test_a_unit_is_offset_size_and_the_sign_extended_hash_of_the_tag(tmp_path):
    tags = ["done", "polygenelubricants", "buried", None, "\u540d"]
    with opened(tmp_path / "store") as store:
        offsets = store.append(
            [Message(topic="t", properties={"TAGS": tag} if tag else {}) for tag in tags]
        ).offsets
        store.dispatch()
        sizes = [each.size for each in store.scan()]
    expected = b"".join(
        UNIT.pack(offset, size, java_hash(tag) if tag else 0)
        for offset, size, tag in zip(offsets, sizes, tags, strict=True)
    )
    assert units_of(tmp_path / "store", "t") == expected.ljust(16 * 20, b"\0")
    assert expected[20:40].endswith(bytes.fromhex("ffffffff80000000"))


def test_queue_files_are_named_by_byte_offset(tmp_path):
    with opened(tmp_path / "store") as store:
        store.append([Message(topic="t")] * 33)
        store.dispatch()
        assert store.bounds("t", 0) == (0, 33)
    names = sorted(path.name for path in (tmp_path / "store/consumequeue/t/0").iterdir())
    assert names == [f"{start:020d}" for start in (0, 320, 640)]
    data = units_of(tmp_path / "store", "t")
    assert [UNIT.unpack_from(data, 20 * n)[0] for n in range(33)] == [92 * n for n in range(33)]
    assert data[33 * 20 :] == bytes(len(data) - 33 * 20)


@pytest.mark.parametrize(
    ("level", "delay"),
    [("1", 1000), ("4", 30_000), ("18", 7_200_000), ("19", 7_200_000), ("0", None), ("x", None)],
)
def test_the_schedule_topic_has_delivery_times_as_tag_codes(tmp_path, level, delay):
    properties = {"DELAY": level, "TAGS": "a"}
    message = Message(topic="SCHEDULE_TOPIC_XXXX", properties=properties, store_timestamp=10**12)
    with opened(tmp_path / "store") as store:
        store.append([message])
        store.dispatch()
    code = UNIT.unpack_from(units_of(tmp_path / "store", "SCHEDULE_TOPIC_XXXX"))[2]
    assert code == (java_hash("a") if delay is None else 10**12 + delay)


@for_all(some.lists(some.integers(0, 3), max_size=40), some.integers(-1, 130))
def test_offset_by_time_is_found_as_by_bisection(tmp_path_factory, steps, asked):
    folder = tmp_path_factory.mktemp("store")
    times = [1000]
    for step in steps:
        times.append(times[-1] + step)
    asked += 999
    with opened(folder) as store:
        store.append([Message(topic="t", store_timestamp=each) for each in times])
        store.dispatch()
        assert store.find_time("t", 0, asked) == bisect.bisect_left(times, asked)
        assert store.find_time("t", 0, asked, last=True) == bisect.bisect_right(times, asked) - 1


def test_more_queues_than_open_files_are_possible(tmp_path):
    sizes = Sizes(1 << 20, 4, 8, 32)
    with opened(tmp_path / "store", Options(sizes=sizes, background=False)) as store:
        messages = [Message(topic=f"t{n}") for n in range(400)] * 2
        store.append(messages)
        store.dispatch()
        assert all(store.bounds(f"t{n}", 0) == (0, 2) for n in range(400))
        assert len(store._files._open) <= 256


# --- index ----------------------------------------------------------------------------------------


def test_an_index_file_byte_by_byte(tmp_path):
    """All entries are in one slot: it refers to the newest, and each entry to the one before it."""
    sizes = Sizes(4096, 16, index_slots=1, index_entries=5)
    begin = 1_700_000_000_000
    with opened(tmp_path / "store", Options(sizes=sizes, background=False)) as store:
        offsets = store.append(
            [
                Message(
                    topic="t", properties={"UNIQ_KEY": "u", "KEYS": "a  b"}, store_timestamp=begin
                ),
                Message(topic="t", properties={"KEYS": "c"}, store_timestamp=begin + 2999),
            ]
        ).offsets
        store.dispatch()
    (path,) = (tmp_path / "store/index").iterdir()
    assert len(path.name) == 17
    expected = (
        HEADER.pack(begin, begin + 2999, 0, offsets[1], 1, 5) + struct.pack(">i", 4) + bytes(20)
    )
    for number, (key, offset, seconds) in enumerate(
        [("u", 0, 0), ("a", 0, 0), ("b", 0, 0), ("c", offsets[1], 2)]
    ):
        expected += ENTRY.pack(key_hash("t", key), offset, seconds, number)
    assert path.read_bytes() == expected


def test_the_first_entry_of_a_later_file_is_relative_to_the_end_of_the_earlier_file(tmp_path):
    sizes = Sizes(4096, 16, index_slots=2, index_entries=3)
    times = [10**12, 10**12 + 5000, 10**12 + 65_000, 10**12 + 70_000]
    with opened(tmp_path / "store", Options(sizes=sizes, background=False)) as store:
        store.append(
            [
                Message(topic="t", properties={"KEYS": f"k{n}"}, store_timestamp=at)
                for n, at in enumerate(times)
            ]
        )
        store.dispatch()
        second = store.index.files[1].path.read_bytes()
        assert HEADER.unpack_from(second)[0] == times[2]
        seconds = [ENTRY.unpack_from(second, 40 + 8 + 20 * n)[2] for n in (1, 2)]
        assert seconds == [60, 5]
        # RocketMQ would not find it by its own time.
        assert [each.store_timestamp for each in store.query("t", "k2", times[2], times[2])] == [
            times[2]
        ]
        assert sorted(path.name for path in (tmp_path / "store/index").iterdir()) == [
            file.path.name for file in store.index.files
        ]


def test_the_index_has_prepared_but_not_rolled_back_messages(tmp_path):
    with opened(tmp_path / "store") as store:
        store.append(
            [Message(topic="t", properties={"KEYS": "k"}, sys_flag=flag) for flag in (4, 8, 12)]
        )
        store.dispatch()
        assert [each.sys_flag for each in store.query("t", "k")] == [8, 4]


def test_keys_with_one_hash_are_distinguished(tmp_path):
    with opened(tmp_path / "store") as store:
        store.append([Message(topic="t", properties={"KEYS": key}) for key in ("Aa", "BB", "Aa")])
        store.append(
            [
                Message(topic="Aa", properties={"KEYS": "x"}),
                Message(topic="BB", properties={"KEYS": "x"}),
            ]
        )
        store.dispatch()
        assert key_hash("t", "Aa") == key_hash("t", "BB")
        assert [each.queue_offset for each in store.query("t", "BB")] == [1]
        assert len(store.query("t", "Aa")) == 2
        assert [each.topic for each in store.query("BB", "x")] == ["BB"]


def test_the_newest_64_are_found_first(tmp_path):
    with opened(tmp_path / "store") as store:
        store.append([Message(topic="t", properties={"KEYS": "k other"}) for _ in range(300)])
        store.dispatch()
        assert len(store.index.files) > 10
        found = [each.queue_offset for each in store.query("t", "k")]
        assert found == list(range(299, 299 - 64, -1))
        assert len(store.query("t", "k", limit=1000)) == 300


_keys = some.sampled_from(["a", "b", "Aa", "BB", "\u540d", "\U0001d4b3"])
_indexed = some.tuples(
    some.sampled_from(["t", "s"]),
    some.lists(_keys, max_size=3),
    some.one_of(some.none(), _keys),
    some.integers(0, 4000),
    some.sampled_from([0, 0, 4, 12]),
)


@for_all(some.lists(_indexed, max_size=40), some.integers(0, 60_000), some.integers(0, 60_000))
def test_queries_find_the_same_as_a_full_scan(tmp_path_factory, rows, begin, length):
    folder, now = tmp_path_factory.mktemp("store"), 10**12
    messages = []
    for topic, words, unique, pause, flag in rows:
        now += pause
        properties = {"UNIQ_KEY": unique} if unique else {}
        properties |= {"KEYS": " ".join(words)} if words else {}
        messages.append(
            Message(topic=topic, properties=properties, store_timestamp=now, sys_flag=flag)
        )
    begin += 10**12
    with opened(folder) as store:
        store.append(messages)
        store.dispatch()
        stored = [each for each in store.scan() if each.sys_flag != 12]
        for topic in ("t", "s"):
            for key in ("a", "b", "Aa", "BB", "\u540d", "\U0001d4b3", "none"):
                wanted = [each for each in stored if each.topic == topic and key in each.keys]
                assert store.query(topic, key) == wanted[::-1]
                within = [e for e in wanted if begin <= e.store_timestamp <= begin + length]
                assert store.query(topic, key, begin, begin + length) == within[::-1]


def test_circular_links_end_a_query(tmp_path):
    memory = bytearray(40 + 4 + 20 * 4)
    HEADER.pack_into(memory, 0, 1, 2, 0, 0, 1, 4)
    struct.pack_into(">i", memory, 40, 2)
    ENTRY.pack_into(memory, 44 + 40, 5, 0, 0, 3)
    ENTRY.pack_into(memory, 44 + 60, 5, 0, 0, 2)
    cursor, offsets = ffi.new("int32_t *"), ffi.new("int64_t[10]")
    with ffi.from_buffer("char[]", memory) as index:
        assert lib.hs_index_find(index, 1, 4, 5, 0, 10, offsets, 10, cursor) < 0


def test_a_full_disk_delays_queues_and_index_and_loses_nothing(tmp_path, monkeypatch):
    messages = some_messages(21, 150)
    with opened(tmp_path / "store") as store:
        store.append(messages)
        real, left = os.posix_fallocate, [0]

        def failing_allocate(fd: int, offset: int, length: int) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(28, "full")
            real(fd, offset, length)

        def write_half(fd: int, data: bytes | memoryview, offset: int) -> None:
            left[0] -= 1
            if left[0] < 0:
                real_write(fd, memoryview(data)[: len(data) // 2], offset)
                raise OSError(28, "full")
            real_write(fd, data, offset)

        real_write = segments.write_all
        monkeypatch.setattr("os.posix_fallocate", failing_allocate)
        monkeypatch.setattr(segments, "write_all", write_half)
        refusals = 0
        while store.dispatched < store.log.end:
            try:
                store._dispatch_all()
            except OSError:
                refusals += 1
                left[0] = refusals  # a little more each time
        assert refusals > 10
        monkeypatch.undo()
        assert_holds(store, messages)


def test_a_store_full_of_every_kind_of_message_holds_them(tmp_path):
    dice = random.Random(3)
    messages = some_messages(3, 400)
    with Store.open(tmp_path / "store", BY_HAND) as store:
        at = 0
        while at < len(messages):
            count = dice.randrange(1, 40)
            store.append(messages[at : at + count])
            at += count
            if dice.random() < 0.5:
                store.dispatch()
        store.dispatch()
        assert_holds(store, messages)
    assert store.sizes == SMALL


# --- a reader beside a writer ---------------------------------------------------------------------


def seen(reader: StoreReader) -> dict[str, object]:
    """Return what a reader knows and finds."""
    keys = ("k3", "k77", "shared1", "u5")
    names = sorted((queue.topic, queue.queue_id) for queue in reader.queues if queue.end)
    return {
        "log": (reader.log.begin, reader.log.end, reader.log.last_offset, reader.fault),
        "bounds": {name: reader.bounds(*name) for name in names},
        "last": {name: reader.queues.get(*name).last() for name in names},
        "found": {
            (topic, key): [one.offset for one in reader.query(topic, key)]
            for topic, _ in names
            for key in keys
        },
    }


@pytest.mark.parametrize("seed", range(10))
def test_a_reader_that_advances_knows_what_a_new_one_does(tmp_path, seed):
    dice = random.Random(f"advance {seed}")
    first = 0
    with opened(tmp_path / "store") as store:
        store.append(some_messages(seed, 5))
        store.dispatch()
        with StoreReader.open(tmp_path / "store") as reader:
            for step in range(12):
                count = dice.choice([0, 1, 3, 40])
                store.append(some_messages(100 * seed + step, count, first))
                first += count
                if dice.random() < 0.7:
                    store.dispatch()
                if dice.random() < 0.2 and len(store.log.segments.starts) > 1:
                    store.dispatch()
                    store.log.segments.remove(store.log.segments.starts[0])
                reader.advance()
                with StoreReader.open(tmp_path / "store") as new:
                    assert seen(reader) == seen(new)
                    assert [one.offset for one in reader.scan()] == [
                        one.offset for one in new.scan()
                    ]


def test_a_writer_that_adds_while_the_queues_are_read(tmp_path, monkeypatch):
    with opened(tmp_path / "store") as store:
        store.append([Message(topic="t"), Message(topic="u")])
        store.dispatch()

        def find_last_record(log, queues):
            last = recovery.find_last_record(log, queues)
            store.append([Message(topic="t")])
            store.dispatch()
            return last

        monkeypatch.setattr(reader_module, "find_last_record", find_last_record)
        with StoreReader.open(tmp_path / "store") as reader:
            assert reader.bounds("t", 0) == (0, 2)
            monkeypatch.setattr(reader, "refresh", lambda: pytest.fail("it opens all again"))
            store.append([Message(topic="t")])
            store.dispatch()
            reader.advance()
            assert reader.bounds("t", 0) == (0, 3)


def test_an_advance_reads_only_what_is_new(tmp_path, monkeypatch):
    with opened(tmp_path / "store") as store:
        store.append([Message(topic=f"t{number}") for number in range(50)])
        store.dispatch()
        with StoreReader.open(tmp_path / "store") as reader:
            read = []
            borrow = open_files.Descriptors.borrow
            monkeypatch.setattr(
                open_files.Descriptors,
                "borrow",
                lambda files, path: read.append(path) or borrow(files, path),
            )
            store.append([Message(topic="t7"), Message(topic="new")])
            store.dispatch()
            read.clear()
            reader.advance()
            queues = {path.parts[-3] for path in read if "consumequeue" in path.parts}
            assert queues == {"t7", "new"}
            assert reader.bounds("t7", 0) == (0, 2) and reader.bounds("new", 0) == (0, 1)
