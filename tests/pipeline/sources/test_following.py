"""Following growing files: every row is read exactly once."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from binlog.damaged_folders import make
from binlog.reader import files
from binlog.workload import Actor, run_steps
from core.rig import SECOND, Rig, put_line
from history.stores import opened, some_messages
from pipeline.plain import Row, rows
from pipeline.sources.test_messages import store_plan

from beanstalkd_py.errors import DataLossError, PipelineUsageError
from beanstalkd_py.pipeline.binlogs.follower import BinlogFollower
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.sources.follower import UNLIMITED, Budget, Position
from beanstalkd_py.pipeline.stores.follower import StoreFollower

FILE = 4096


def plan_for(path: Path) -> BinlogPlan:
    return BinlogPlan.of({"path": str(path), "includeBody": "true"})


def follow(path: Path, fail_on_loss: bool = True) -> BinlogFollower:
    return BinlogFollower(plan_for(path), fail_on_loss, wait=lambda seconds: None)


def taken(following: Any, start: Any, end: Any) -> list[Row]:
    return [
        row
        for task in following.between(start, end)
        for batch in following.read(task)
        for row in batch.to_pylist()
    ]


def archive(folder: Path) -> None:
    """Link complete files as an archiver does, including those that the server has removed."""
    beside = folder / "beside"
    beside.mkdir(exist_ok=True)
    there = files(folder)
    for path in there:
        if not (beside / path.name).exists():
            (beside / path.name).hardlink_to(path)
    for path in beside.iterdir():
        kept = folder / (path.name + ".done")
        if path.name != there[-1].name and not kept.exists():
            kept.hardlink_to(path)


@pytest.mark.parametrize("seed", range(6))
def test_every_entry_comes_once(folder, seed):
    dice = random.Random(seed)
    position: Position = {}
    found: list[Row] = []
    with Rig(folder, file_size=FILE) as rig:
        client, actor = rig.client(), Actor(f"follow-{seed}", put_share=0.5)
        for _ in range(25):
            run_steps(actor, client, dice.randrange(12))
            archive(folder)
            rig.advance(SECOND)
            budget = dice.choice(
                [UNLIMITED, Budget(files=1), Budget(rows=dice.randrange(1, 9)), Budget(size=700)]
            )
            following = follow(folder)
            end = following.after(position, budget)
            batch = taken(following, position, end)
            if budget.rows is not None:
                assert len(batch) <= budget.rows
            if dice.random() < 0.3:
                assert taken(follow(folder), position, end) == batch
            found += batch
            position = end
        archive(folder)
        following = follow(folder)
        end = following.after(position, UNLIMITED)
        found += taken(following, position, end)
        assert following.after(end, UNLIMITED) == end
        whole = rows(plan_for(folder))
    assert found == whole
    assert len(files(folder)) > 2


def test_several_folders_with_those_of_c_beanstalkd(tmp_path):
    for kind in ("ours", "c", "v5"):
        make(kind, tmp_path / kind)
    following = follow(tmp_path / "*")
    position, found = {}, []
    for _ in range(10_000):
        end = following.after(position, Budget(rows=6))
        if end == position:
            break
        found += taken(following, position, end)
        position = end
    whole = rows(plan_for(tmp_path / "*"))

    def key(row: Row) -> tuple[object, ...]:
        return row["host"], row["file_number"], row["offset"]

    assert sorted(found, key=key) == sorted(whole, key=key)


def test_incomplete_entries_are_left_for_later(tmp_path):
    with Rig(tmp_path) as rig:
        rig.client().send(put_line(b"a" * 30) + put_line(b"b" * 30))
    path = tmp_path / "binlog.1"
    whole = path.read_bytes()
    used = len(whole.rstrip(b"\0"))
    position: Position = {}
    found: list[int] = []
    for length in range(4, used + 3):
        path.write_bytes(whole[:length].ljust(len(whole), b"\0"))
        following = follow(tmp_path)
        end = following.after(position, UNLIMITED)
        batch = taken(following, position, end)
        assert all(row["_corrupt_record"] is None for row in batch)
        found += [row["id"] for row in batch]
        position = end
    assert found == [1, 2]


def test_damage_before_valid_entries_is_confirmed(tmp_path):
    with Rig(tmp_path) as rig:
        rig.client().send(b"".join(put_line(b"%d" % number * 30) for number in range(4)))
    path = tmp_path / "binlog.1"
    data = bytearray(path.read_bytes())
    data[rows(plan_for(tmp_path))[1]["offset"] + 20] ^= 1
    path.write_bytes(data)
    looks: list[float] = []
    following = BinlogFollower(plan_for(tmp_path), True, wait=looks.append)
    end = following.after({}, UNLIMITED)
    assert [row["id"] for row in taken(following, {}, end)] == [1, None, 3, 4]
    assert len(looks) == 3


def test_reading_stops_at_until(folder):
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(30):
            client.put(b"x" * 200)
        until = follow(folder).latest()
        before = rows(plan_for(folder))
        for _ in range(60):
            client.put(b"y" * 200)
        position, found = {}, []
        following = follow(folder)
        while (end := following.after(position, Budget(rows=7), until)) != position:
            found += taken(following, position, end)
            position = end
        assert found == before
        found += taken(following, position, following.latest())
        assert found == rows(plan_for(folder))


def test_missing_files_are_a_loss(folder):
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(60):
            client.put(b"x" * 200)
        position = follow(folder).after({}, Budget(files=1))
        end = follow(folder).latest()
        (folder / "binlog.2").unlink()
        with pytest.raises(DataLossError, match=r"binlog\.2 .*removed before it was read"):
            follow(folder).after(position, UNLIMITED)
        with pytest.raises(DataLossError, match=r"binlog\.2 of .* is gone"):
            follow(folder).between(position, end)
        lenient = follow(folder, fail_on_loss=False)
        after = lenient.after(position, UNLIMITED)
        assert after == end
        found = taken(lenient, position, after)
        assert found == [row for row in rows(plan_for(folder)) if row["file_number"] > 2] != []
        tasks = lenient.between(position, after)
        (folder / "binlog.3").unlink()
        with pytest.raises(DataLossError, match=r"binlog\.3 is gone"):
            [batch for task in tasks for batch in follow(folder).read(task)]


def test_a_preallocated_file_may_be_missing(folder):
    with Rig(folder, file_size=FILE) as rig:
        for _ in range(40):
            rig.client().put(b"x" * 200)
    second = files(folder)[1]
    position = follow(folder).after({}, Budget(files=1))
    assert [(at["file"], at["offset"]) for at in position.values()] == [(2, 0)]
    second.rename(folder / "binlog.3")
    for path in files(folder)[2:]:
        path.unlink()
    second.write_bytes(b"\7\0\0\0" + bytes(100))
    following = follow(folder)
    end = following.after(position, UNLIMITED)
    assert {row["file"] for row in taken(following, position, end)} == {"binlog.3"}


def test_a_recreated_folder_is_a_loss(folder, tmp_path):
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(60):
            client.put(b"x" * 200)
    position = follow(folder).latest()
    shutil.rmtree(folder)
    folder.mkdir()
    with Rig(folder, file_size=FILE) as rig:
        rig.client().put(b"new")
    with pytest.raises(DataLossError, match="was next"):
        follow(folder).after(position, UNLIMITED)
    lenient = follow(folder, fail_on_loss=False)
    end = lenient.after(position, UNLIMITED)
    assert [row["body"] for row in taken(lenient, position, end)] == [b"new"]


@pytest.mark.parametrize("rows_before", range(0, 50, 7))
def test_a_recreated_folder_with_the_same_numbers_is_a_loss(tmp_path, rows_before):
    """As after a reshard."""
    folder = tmp_path / "binlog"
    for body in (b"old", b"new"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        with Rig(folder, file_size=FILE) as rig:
            client = rig.client()
            for _ in range(60):
                client.put(body * 70)
        if body == b"old":
            position = follow(folder).after({}, Budget(rows=rows_before or None, files=2))
            end = follow(folder).latest()
    with pytest.raises(DataLossError, match="was begun anew"):
        follow(folder).after(position, UNLIMITED)
    with pytest.raises(DataLossError, match="was begun anew"):
        follow(folder).between(position, end)
    lenient = follow(folder, fail_on_loss=False)
    end = lenient.after(position, UNLIMITED)
    assert taken(lenient, position, end) == rows(plan_for(folder)) != []
    assert lenient.after(end, UNLIMITED) == end


@pytest.mark.parametrize("text", ["soon", "[1]", '{"/x": 1}', '{"/x": {"file": "a"}}'])
def test_invalid_positions(text):
    with pytest.raises(PipelineUsageError, match="neither earliest nor latest"):
        BinlogFollower.position_of("startingOffsets", text)


def follow_store(path: Path, fail_on_loss: bool = True) -> StoreFollower:
    return StoreFollower(store_plan(path), fail_on_loss, wait=lambda seconds: None)


@pytest.mark.parametrize("seed", range(6))
def test_every_message_comes_once(tmp_path, seed):
    dice = random.Random(seed)
    position: dict[str, int] = {}
    found: list[Row] = []
    with opened(tmp_path / "store") as store:
        for turn in range(20):
            store.append(some_messages(seed * 100 + turn, dice.randrange(1, 9), first=turn * 10))
            following = follow_store(tmp_path / "store")
            budget = dice.choice(
                [UNLIMITED, Budget(files=1), Budget(rows=dice.randrange(1, 9)), Budget(size=700)]
            )
            end = following.after(position, budget)
            batch = taken(following, position, end)
            if budget.rows is not None:
                assert len(batch) <= budget.rows
            assert taken(follow_store(tmp_path / "store"), position, end) == batch
            found += batch
            position = end
        following = follow_store(tmp_path / "store")
        end = following.after(position, UNLIMITED)
        found += taken(following, position, end)
        assert following.after(end, UNLIMITED) == end
    assert found == rows(store_plan(tmp_path / "store"))
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 1


def test_incomplete_messages_are_left_for_later(tmp_path):
    with opened(tmp_path / "store") as store:
        store.append(some_messages(3, 3))
        used = store.log.end
    path = tmp_path / "store" / "commitlog" / "00000000000000000000"
    whole = path.read_bytes()
    position: dict[str, Any] = {}
    found: list[Row] = []
    for length in range(used + 2):
        path.write_bytes(whole[:length].ljust(len(whole), b"\0"))
        following = follow_store(tmp_path / "store")
        end = following.after(position, UNLIMITED)
        found += taken(following, position, end)
        position = end
    assert found == rows(store_plan(tmp_path / "store"))
    assert len(found) == 3 and position[str(tmp_path / "store")]["offset"] == used


def test_messages_up_to_a_position_and_expired_ones(tmp_path):
    with opened(tmp_path / "store") as store:
        store.append(some_messages(1, 30))
        until = follow_store(tmp_path / "store").latest()
        before = rows(store_plan(tmp_path / "store"))
        store.append(some_messages(2, 60))
    following = follow_store(tmp_path / "store")
    position: dict[str, int] = {}
    found: list[Row] = []
    while (end := following.after(position, Budget(rows=7), until)) != position:
        found += taken(following, position, end)
        position = end
    assert found == before and position == until
    start = following.after({}, Budget(rows=2))
    end = following.latest()
    (tmp_path / "store" / "commitlog" / "00000000000000000000").unlink()
    with pytest.raises(DataLossError):
        following.after(start, UNLIMITED)
    with pytest.raises(DataLossError):
        following.between(start, end)
    lenient = follow_store(tmp_path / "store", fail_on_loss=False)
    assert lenient.after(start, UNLIMITED) == end
    assert taken(lenient, start, end) == rows(store_plan(tmp_path / "store")) != []


def test_only_a_missing_folder_is_a_loss(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with Rig(tmp_path / name, file_size=FILE) as rig:
            rig.client().put(b"x")
    both = follow(tmp_path / "{one,two}").latest()
    assert follow(tmp_path / "two").after(both, UNLIMITED) == both
    shutil.rmtree(tmp_path / "one")
    with pytest.raises(DataLossError, match="one is gone: its former data may not"):
        follow(tmp_path / "two").after(both, UNLIMITED)
    left = follow(tmp_path / "two", fail_on_loss=False).after(both, UNLIMITED)
    assert left == follow(tmp_path / "two").latest()
    assert follow(tmp_path / "two").after(left, UNLIMITED) == left


def test_a_recreated_store_is_a_loss(tmp_path):
    store_folder = tmp_path / "store"
    with opened(store_folder) as store:
        store.append(some_messages(1, 30))
    position = follow_store(store_folder).after({}, Budget(rows=7))
    shutil.rmtree(store_folder)
    with opened(store_folder) as store:
        store.append(some_messages(2, 60))
    with pytest.raises(DataLossError, match="was begun anew"):
        follow_store(store_folder).after(position, UNLIMITED)
    lenient = follow_store(store_folder, fail_on_loss=False)
    end = lenient.after(position, UNLIMITED)
    assert taken(lenient, position, end) == rows(store_plan(store_folder)) != []
    assert lenient.after(end, UNLIMITED) == end


def test_only_messages_can_be_followed(tmp_path):
    with pytest.raises(PipelineUsageError, match="the view index is no stream"):
        StoreFollower(store_plan(tmp_path, "index"), True)
