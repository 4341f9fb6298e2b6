"""Rows of history stores against the package's reader."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from history.stores import DATA, SMALL, opened, some_messages
from pipeline.plain import of_message, rows, without_place

from beanstalkd_py.errors import MalformedError, PipelineUsageError
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.message import key_hash
from beanstalkd_py.history.reader import StoreReader
from beanstalkd_py.pipeline.sources import columns
from beanstalkd_py.pipeline.stores.plan import StorePlan
from beanstalkd_py.pipeline.stores.tables import VIEWS


def store_plan(path: Path, view: str = "messages", **options: str) -> StorePlan:
    given = {"path": str(path), "view": view, **options}
    return StorePlan.of(given, [column.name for column in VIEWS[view]])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every kind of message and non-ASCII text."""
    folder = tmp_path_factory.mktemp("store") / "made"
    with opened(folder) as store:
        store.append(some_messages(seed=5, count=150))
        store.dispatch()
        store.flush()
    return folder


STORES = ["normal", "propcrc", "made"]


@pytest.fixture
def store(request: pytest.FixtureRequest, made: Path) -> Path:
    return made if request.param == "made" else DATA / request.param


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_messages_match_the_reader(store):
    with StoreReader.open(store) as reader:
        expected = [of_message(message) for message in reader.scan()]
    assert list(without_place(rows(store_plan(store)))) == expected
    assert len(expected) > 50


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_queues_match_the_reader(store):
    with StoreReader.open(store) as reader:
        expected = {
            (queue.topic, queue.queue_id, number, unit.offset, unit.size, unit.tag_code)
            for queue in reader.queues
            for number, unit in enumerate(queue.read(queue.first, 10_000), queue.first)
            if not unit.is_filler
        }
    names = ("topic", "queueId", "queueOffset", "physicalOffset", "size", "tagCode")
    found = rows(store_plan(store, "queues"), tasks=3)
    assert {tuple(row[name] for name in names) for row in found} == expected
    assert len(found) == len(expected) > 50


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_the_index_leads_to_every_key(store):
    found = {(row["hash"], row["physicalOffset"]) for row in rows(store_plan(store, "index"))}
    with StoreReader.open(store) as reader:
        expected = {
            (key_hash(message.topic, key), message.offset)
            for message in reader.scan()
            if message.sys_flag & 12 != 12
            for key in message.keys
        }
    assert found == expected


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_the_log_may_be_divided_anywhere(store):
    whole = rows(store_plan(store))
    for size in (1000, 1733, 5000):
        plan = store_plan(store, targetPartitionBytes=str(size), minPartitions="1")
        assert len(plan.tasks()) > 5
        assert rows(plan) == whole


def test_preallocated_space_makes_no_tasks(made, tmp_path):
    folder = Path(shutil.copytree(made, tmp_path / "store"))
    whole = rows(store_plan(folder))
    os.truncate(max((folder / layout.COMMIT_LOG).iterdir()), 64 << 20)
    plan = store_plan(folder, minPartitions="4")
    counts = [sum(batch.num_rows for batch in plan.read(files)) for files in plan.tasks()]
    assert len(counts) == 4 and min(counts) > len(whole) / 8
    assert rows(plan) == whole
    small = store_plan(folder, targetPartitionBytes="1k")
    assert len(small.tasks()) < len(whole) * 2
    assert rows(small) == whole


def test_batches_of_any_size_have_the_same_rows(made, monkeypatch):
    whole = rows(store_plan(made))
    monkeypatch.setattr(columns, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(columns, "TEXT_AT_ONCE", 100)
    monkeypatch.setattr(columns, "LEAST_TEXT", 1)
    assert rows(store_plan(made)) == whole


def test_columns_by_options(made):
    def names(columns: list[str] | None = None, **options: str) -> list[str]:
        plan = StorePlan.of({"path": str(made), **options}, columns)
        return plan.table.schema.names

    usual = names()
    assert "body" not in usual and "properties" not in usual
    for option, column in (("includeBody", "body"), ("includeHeaders", "properties")):
        assert {*names(**{option: "true"})} - {*usual} == {column}
        assert names(["tube"], **{option: "true"}) == ["tube", column]


@pytest.mark.parametrize("seed", range(12))
def test_damage_affects_its_messages_only(made, tmp_path, seed):
    dice = random.Random(seed)
    folder = tmp_path / "store"
    shutil.copytree(made, folder)
    whole = rows(store_plan(folder))
    hit = dice.choice(whole)
    start = hit["physicalOffset"] // SMALL.segment_bytes * SMALL.segment_bytes
    path = folder / layout.COMMIT_LOG / layout.segment_name(start)
    data = bytearray(path.read_bytes())
    at = hit["physicalOffset"] - start
    data[at + dice.choice([0, 4, 28, 34])] ^= 0x15  # its size, its magic number, its own offset
    path.write_bytes(data)
    found = rows(store_plan(folder))
    faults = [row for row in found if row["_corrupt_record"] is not None]
    left = [row for row in found if row["_corrupt_record"] is None]
    assert faults[0]["physicalOffset"] == hit["physicalOffset"]
    assert faults[0]["topic"] is None
    assert left == [row for row in whole if row["physicalOffset"] != hit["physicalOffset"]]
    if hit["physicalOffset"] != whole[-1]["physicalOffset"]:
        with pytest.raises(MalformedError, match=f"{path.name}:{at}: unreadable message"):
            rows(store_plan(folder, mode="FAILFAST"))
    assert rows(store_plan(folder, mode="DROPMALFORMED")) == left


def test_verify_checksum_checks_bodies(made, tmp_path):
    folder = tmp_path / "store"
    shutil.copytree(made, folder)
    hit = next(row for row in rows(store_plan(folder)) if row["body"])
    path = folder / layout.COMMIT_LOG / layout.segment_name(0)
    data = path.read_bytes()
    at = data.index(hit["body"], hit["physicalOffset"])
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    (fault,) = [row for row in rows(store_plan(folder)) if row["_corrupt_record"] is not None]
    assert "the body does not have its checksum" in fault["_corrupt_record"]
    found = rows(store_plan(folder, verifyChecksum="false"))
    assert [row["physicalOffset"] for row in found] == [
        row["physicalOffset"] for row in rows(store_plan(made))
    ]


def test_filters_by_tube_and_store_time(made):
    whole = rows(store_plan(made))
    found = rows(store_plan(made, subscribe="mails, a/b"))
    assert found == [row for row in whole if row["tube"] in ("mails", "a/b")] != []
    found = rows(store_plan(made, subscribePattern="[mt].*"))
    assert found == [row for row in whole if row["tube"][0] in "mt"] != []
    middle = whole[len(whole) // 2]["storeTimestamp"]
    milliseconds = str(round(middle.timestamp() * 1000))
    before = rows(store_plan(made, endingTimestamp=milliseconds))
    after = rows(store_plan(made, startingTimestamp=milliseconds))
    assert before + after == whole
    with pytest.raises(PipelineUsageError, match="no column"):
        store_plan(made, "index", subscribe="mails")
