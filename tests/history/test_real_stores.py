"""Stores written by RocketMQ: compare every field, and write identical ones."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest
from history.stores import DATA, SMALL, assert_holds, files_of, opened, some_messages

from beanstalkd_py.errors import StoreUsageError
from beanstalkd_py.history.files.checkpoint import Checkpoint
from beanstalkd_py.history.files.size_detection import index_sizes, infer_sizes
from beanstalkd_py.history.message import Stored, java_hash, key_hash
from beanstalkd_py.history.store import Options, Sizes, Store, StoreReader
from beanstalkd_py.history.verify import verify

NAMES = ("normal", "propcrc")


@pytest.fixture(params=NAMES)
def name(request) -> str:
    return request.param


@pytest.fixture
def folder(name, tmp_path) -> Path:
    """A copy of the store, because the original must not change."""
    copy = shutil.copytree(DATA / name, tmp_path / name)
    for path in copy.rglob("*"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    return copy


def reported(name: str, kind: str) -> list[dict[str, object]]:
    """Return RocketMQ's own output."""
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


def host(address: tuple[str, int] | None) -> str:
    assert address is not None
    text = address[0]
    return f"{text}:{address[1]}"


def as_rocketmq_shows_it(message: Stored) -> dict[str, object]:
    properties = dict(message.properties)
    tag = properties.get("TAGS")
    return {
        "kind": "msg",
        "off": message.offset,
        "size": message.size,
        "magic": -626843481 if message.version == 1 else -626843477,
        "bodyCrc": message.body_crc,
        "queueId": message.queue_id,
        "flag": message.flag,
        "queueOffset": message.queue_offset,
        "phyOffset": message.offset,
        "sysFlag": message.sys_flag,
        "bornTs": message.born_timestamp,
        "bornHost": host(message.born_host),
        "storeTs": message.store_timestamp,
        "storeHost": host(message.store_host),
        "reconsume": message.reconsume_times,
        "preparedOff": message.prepared_offset,
        "body": message.body.hex(),
        "topic": message.topic,
        "props": properties,
        "msgId": message.message_id,
        "tagsCode": 0 if tag is None else java_hash(tag),
    }


def test_every_field_of_every_message_is_as_rocketmq_reads_it(folder, name):
    (bounds,) = reported(name, "store")
    with StoreReader.open(folder) as store:
        assert (store.log.begin, store.log.end) == (bounds["minPhyOffset"], bounds["maxPhyOffset"])
        found = [as_rocketmq_shows_it(each) for each in store.scan()]
    wanted = reported(name, "msg")
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        if mine["bornHost"] != theirs["bornHost"]:  # Java formats IPv6 differently
            mine["bornHost"] = theirs["bornHost"] if ":" in str(theirs["bornHost"]) else None
        if theirs["topic"] == "SCHEDULE_TOPIC_XXXX":
            mine["tagsCode"] = theirs["tagsCode"]  # compared with the queue's below
        assert mine == theirs


def test_every_unit_of_every_queue_is_as_rocketmq_reads_it(folder, name):
    with StoreReader.open(folder) as store:
        queues = {(each["topic"], each["queueId"]): each for each in reported(name, "cq")}
        named = {(topic, each) for topic, ids in store.topics().items() for each in ids}
        assert named == set(queues)
        for (topic, queue_id), bounds in queues.items():
            assert store.bounds(topic, queue_id) == (bounds["min"], bounds["max"])
        for row in reported(name, "cqe"):
            queue = store.queues.get(row["topic"], row["queueId"])
            unit = queue.unit(row["i"])
            assert (unit.offset, unit.size, unit.tag_code) == (
                row["pos"],
                row["size"],
                row["tagsCode"],
            )


def test_blanks_and_checkpoint_are_as_rocketmq_reads_them(folder, name):
    with StoreReader.open(folder) as store:
        for blank in reported(name, "blank"):
            data = store.log.segments.read(blank["off"], 1 << 20)
            assert data[:8] == struct.pack(">ii", blank["size"], -875286124)
            assert len(data) == blank["size"]
    (row,) = reported(name, "checkpoint")
    from_file = Checkpoint.load(folder / "checkpoint")
    values = [value for key, value in row.items() if key != "kind"]
    assert [
        from_file.log_timestamp,
        from_file.queues_timestamp,
        from_file.index_timestamp,
    ] == values[:3]


def test_every_index_entry_has_a_key(folder):
    with StoreReader.open(folder) as store:
        report = verify(store)
        assert report.faults == []
        keys = [
            (key_hash(each.topic, key), each.offset)
            for each in store.scan()
            for key in each.keys
            if each.sys_flag & 12 != 12
        ]
        entries = []
        for file in store.index.files:
            data = file.path.read_bytes()
            count = struct.unpack_from(">i", data, 36)[0]
            at = 40 + 4 * file.slots
            entries += [struct.unpack_from(">iq", data, at + 20 * n) for n in range(1, count)]
        assert entries == keys
        assert report.entries == len(keys)
        for each in store.scan():
            for key in each.keys if each.sys_flag & 12 != 12 else []:
                assert each in store.query(each.topic, key)


def test_sizes_follow_from_the_files(folder, name):
    assert infer_sizes(folder) == Sizes(16384, 20, 64, 256, property_crc=name == "propcrc")


def test_reading_and_verifying_changes_nothing_and_creates_nothing(folder):
    before = files_of(folder)
    with StoreReader.open(folder) as store:
        list(store.scan())
        verify(store)
        store.refresh()
        store.query("tube0", "job0")
    assert files_of(folder) == before
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*")} <= {0o500, 0o400}


def test_writing_the_messages_again_makes_an_identical_store(folder, name, tmp_path):
    with StoreReader.open(folder) as original:
        sizes, messages = original.sizes, list(original.scan())
        made = Store.open(tmp_path / "made", Options(sizes=sizes, background=False, retention=None))
        for begin in range(0, len(messages), 7):
            made.append(messages[begin : begin + 7])
            if begin % 3:
                made.dispatch()
        made.close()
    theirs, mine = files_of(folder), files_of(tmp_path / "made")
    for part in ("commitlog", "consumequeue"):
        assert {path: data for path, data in mine.items() if path.startswith(part)} == {
            path: data for path, data in theirs.items() if path.startswith(part)
        }
    indexes = [
        [data for path, data in each.items() if path[:5] == "index"] for each in (theirs, mine)
    ]
    assert indexes[0] == indexes[1]  # their names are the time of writing
    assert mine["lock"] == theirs["lock"]
    assert len(mine["checkpoint"]) == len(theirs["checkpoint"])


def test_appending_to_a_real_store_keeps_it_valid(name, tmp_path):
    folder = shutil.copytree(DATA / name, tmp_path / name)
    with StoreReader.open(folder) as store:
        before = list(store.scan())
    more = some_messages(11, 40, first=5000)
    with Store.open(folder, Options(background=False, retention=None)) as store:
        assert store.recovered.was_clean
        assert not store.recovered.rebuilt
        store.append(more)
        store.dispatch()
        assert_holds(store, before + more)
    with StoreReader.open(folder) as store:
        assert_holds(store, before + more)


@pytest.mark.parametrize("lost", ["consumequeue", "index", "consumequeue/tube1", "checkpoint"])
def test_recovery_restores_missing_parts_of_a_real_store(name, lost, tmp_path):
    folder = shutil.copytree(DATA / name, tmp_path / name)
    with StoreReader.open(folder) as store:
        sizes, messages = store.sizes, list(store.scan())
    path = folder / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    (folder / "abort").write_text("1")
    with opened(folder, Options(sizes=sizes, background=False, retention=None)) as store:
        assert store.recovered.rebuilt
        assert_holds(store, messages)
    theirs, mine = files_of(DATA / name), files_of(folder)
    for part in ("commitlog", "consumequeue"):
        for file in (each for each in theirs if each.startswith(part)):
            assert mine[file] == theirs[file]


def test_a_reader_follows_a_store_of_another_writer(tmp_path):
    messages = some_messages(5, 60)
    with opened(tmp_path / "store") as store:
        store.append(messages[:10])
        reader = StoreReader.open(tmp_path / "store")
        seen: list[Stored] = []
        waits = 0

        def write_more(_: float) -> None:
            nonlocal waits
            waits += 1
            store.append(messages[10 * waits : 10 * waits + 10])
            store.dispatch()

        for each in reader.follow(0, wait=write_more, should_stop=lambda: waits > 5):
            seen.append(each)
        assert [each.body for each in seen] == [each.body for each in messages]
        reader.refresh()
        assert_holds(reader, messages)
        reader.close()


def test_other_folders_are_rejected(tmp_path):
    with pytest.raises(StoreUsageError, match="no folder commitlog"):
        StoreReader.open(tmp_path)
    (tmp_path / "odd").write_bytes(bytes(2001))
    with pytest.raises(StoreUsageError, match="give the sizes"):
        index_sizes(tmp_path / "odd")


@pytest.mark.parametrize(("slots", "entries"), [(64, 256), (7, 100), (100, 33), (1, 2)])
def test_slots_and_entries_are_detected(tmp_path, slots, entries):
    sizes = Sizes(SMALL.segment_bytes, SMALL.queue_file_units, slots, entries)
    with opened(tmp_path / "store", Options(sizes=sizes, background=False)) as store:
        store.append(some_messages(3, 25))
        store.dispatch()
        first = store.index.files[0].path
    found = index_sizes(first)
    assert 40 + 4 * found[0] + 20 * found[1] == first.stat().st_size
    assert found == (slots, entries)
