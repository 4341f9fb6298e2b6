"""Batches between two positions of a stream."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from core.rig import Rig
from history.stores import opened, some_messages
from pipeline.plain import rows

from beanstalkd_py.errors import DataLossError, PipelineUsageError
from beanstalkd_py.pipeline.binlogs.follower import BinlogFollower
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.sources.batch_read import BatchRead
from beanstalkd_py.pipeline.sources.follower import UNLIMITED, Budget
from beanstalkd_py.pipeline.stores.follower import StoreFollower

FILE = 4096


def bounded(path: Path, following: Any = BinlogFollower, **given: Any) -> BatchRead:
    texts = {
        key: each if isinstance(each, str) else json.dumps(each) for key, each in given.items()
    }
    return BatchRead.of(following, {"path": str(path), "includeBody": "true", **texts})


def fill_binlogs(path: Path, seed: int) -> None:
    choose = random.Random(seed)
    with Rig(path, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(120):
            client.put(b"x" * choose.randrange(300))


def fill_store(path: Path, seed: int) -> None:
    with opened(path) as store:
        store.append(some_messages(seed, 120))


@pytest.mark.parametrize(
    ("fill", "following"), [(fill_binlogs, BinlogFollower), (fill_store, StoreFollower)]
)
@pytest.mark.parametrize("seed", range(3))
def test_rows_between_the_offsets_of_a_stream(tmp_path, fill, following, seed):
    folder, choose = tmp_path / "data", random.Random(seed)
    folder.mkdir()
    fill(folder, seed)
    stream = following(following.PLAN.of({"path": str(folder)}), True)
    places: list[Any] = [{}]
    while (end := stream.after(places[-1], Budget(rows=choose.randrange(1, 30)))) != places[-1]:
        places.append(end)
    assert len(places) > 5
    pieces = [
        rows(bounded(folder, following, startingOffsets=one, endingOffsets=two))
        for one, two in itertools.pairwise(places)
    ]
    assert [row for piece in pieces for row in piece] == rows(bounded(folder, following)) != []
    for number, place in enumerate(places[1:], 1):
        before = rows(bounded(folder, following, startingOffsets="earliest", endingOffsets=place))
        behind = rows(bounded(folder, following, startingOffsets=place, endingOffsets="latest"))
        assert before == [row for piece in pieces[:number] for row in piece]
        assert behind == [row for piece in pieces[number:] for row in piece]


def test_a_folder_without_a_position_is_read_completely(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        fill_binlogs(tmp_path / name, 1)
    end = BinlogFollower(BinlogPlan.of({"path": str(tmp_path / "one")}), True).latest()
    both = tmp_path / "{one,two}"
    assert bodies(bounded(both, startingOffsets=end)) == bodies(bounded(tmp_path / "two"))
    nothing = {str(tmp_path / "one"): {"file": 1, "offset": 0}}
    assert bodies(bounded(both, endingOffsets=nothing)) == bodies(bounded(tmp_path / "two"))


def test_spellings_of_a_path_have_the_same_position(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    fill_binlogs(tmp_path / "real", 1)
    plan = BinlogPlan.of({"path": str(tmp_path / "real")})
    end = BinlogFollower(plan, True).after({}, Budget(rows=50))
    rest = bodies(bounded(tmp_path / "real", startingOffsets=end))
    monkeypatch.chdir(tmp_path)
    for path in ("link", "./real/", str(tmp_path / "real/../link"), (tmp_path / "link").as_uri()):
        assert bodies(bounded(Path(path), startingOffsets=end)) == rest
        (at,) = end.values()
        assert bodies(bounded(tmp_path / "real", startingOffsets={path: at})) == rest
        stream = BinlogFollower(BinlogPlan.of({"path": path}), True)
        assert stream.after(end, UNLIMITED).keys() == end.keys()


def test_files_removed_between_offsets_are_a_loss(tmp_path):
    fill_binlogs(tmp_path, 1)
    start = BinlogFollower(BinlogPlan.of({"path": str(tmp_path)}), True).after({}, Budget(rows=3))
    (tmp_path / "binlog.2").unlink()
    with pytest.raises(DataLossError, match=r"binlog\.2 of .* is gone"):
        bounded(tmp_path, startingOffsets=start).tasks()
    lenient = bounded(tmp_path, startingOffsets=start, failOnDataLoss="false")
    assert 0 < len(rows(lenient)) < len(rows(bounded(tmp_path)))


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("startingOffsets", "latest", "leaves nothing"),
        ("endingOffsets", "earliest", "leaves nothing"),
        ("endingOffsets", "soon", "^endingOffsets 'soon' is neither"),
        ("startingOffsets", "[]", r"^startingOffsets '\[\]' is neither"),
        ("startingOffsets", '{"/x": {"file": 5.9, "offset": 0}}', "is neither"),
        ("startingOffsets", '{"/x": {"file": 5, "offset": true}}', "is neither"),
        ("endingOffsets", '{"/x": {"file": 5, "offset": -7}}', "is neither"),
        ("failOnDataLoss", "maybe", "neither true nor false"),
    ],
)
def test_invalid_offsets(tmp_path, option, text, message):
    with pytest.raises(PipelineUsageError, match=message):
        bounded(tmp_path, **{option: text})


def test_offsets_outside_the_data(tmp_path):
    folder = str(tmp_path)
    fill_binlogs(tmp_path, 1)

    def refused(kind: type[Exception], message: str, **given: Any) -> None:
        with pytest.raises(kind, match=message):
            bounded(tmp_path, **given).tasks()

    def at(file: int, offset: int = 0) -> dict[str, Any]:
        return {folder: {"file": file, "offset": offset}}

    backwards = {"startingOffsets": at(3), "endingOffsets": at(2)}
    refused(PipelineUsageError, "endingOffsets are before startingOffsets", **backwards)
    refused(PipelineUsageError, "to which no path leads", startingOffsets={"/typo": at(1)[folder]})
    refused(PipelineUsageError, "to which no path leads", endingOffsets={"/typo": at(1)[folder]})
    refused(DataLossError, r"binlog\.99 was next", startingOffsets=at(99))
    refused(DataLossError, r"binlog\.2 is another file", startingOffsets=at(2, 10**9))
    fill_store(tmp_path / "store", 1)
    for start, error in ((10**9, DataLossError), ({"offset": 1.9}, PipelineUsageError)):
        with pytest.raises(error):
            given = {str(tmp_path / "store"): start}
            bounded(tmp_path / "store", StoreFollower, startingOffsets=given).tasks()


def test_without_offsets_the_plan_is_unchanged(tmp_path):
    assert bounded(tmp_path).bounds is None
    usual = bounded(tmp_path, startingOffsets="earliest", endingOffsets="latest")
    assert usual.bounds is None


def bodies(plan: BatchRead) -> list[bytes]:
    return sorted(row["body"] for row in rows(plan))
