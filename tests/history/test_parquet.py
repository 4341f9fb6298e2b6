"""Messages as Parquet: PyArrow reads the stored values."""

from __future__ import annotations

import datetime
import os

import pyarrow.parquet as pq
import pytest
from history.finished import finished, make_store
from history.stores import opened
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalkd_py.history.queries import parquet
from beanstalkd_py.history.queries.parquet import COUNTS, SCHEMA
from beanstalkd_py.history.store import Message, StoreReader

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
TEXT = st.text(
    st.characters(exclude_characters="\0\x01\x02", exclude_categories=["Cs"]), min_size=1
)
NUMBERS = st.one_of(st.integers(0, 2**70).map(str), st.sampled_from(["", "-1", "x", "1 2", "٣"]))
MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["mails", "a%2Fb", "%H" + "0" * 64, "a|b", "%FF"]),
    body=st.binary(max_size=50),
    properties=st.one_of(
        st.dictionaries(TEXT, TEXT, max_size=3),
        st.dictionaries(
            st.sampled_from(["TUBE", "TAGS", "KEYS", "timeline", *COUNTS]), NUMBERS.filter(bool)
        ),
    ),
    queue_id=st.integers(0, 2),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.sampled_from([0, 4, 8, 12]),
    born_timestamp=st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**41)),
    born_host=st.sampled_from([("10.1.2.3", 4), ("2001:db8::1", 5)]),
    reconsume_times=st.integers(0, 5),
)


def whole(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit()
    return int(text) if is_number and int(text) < 2**63 else None


def moment(timestamp: int) -> datetime.datetime | None:
    try:
        return EPOCH + datetime.timedelta(milliseconds=timestamp)
    except OverflowError:
        return None


def row_of(message) -> dict[str, object]:
    """Return the expected row of a message."""
    reported = message.properties
    tubes = {"mails": "mails", "a%2Fb": "a/b", "%FF": "�"}
    host, port = message.born_host
    return {
        "tube": reported.get("TUBE") or tubes.get(message.topic, message.topic),
        "topic": message.topic,
        "job_id": whole(reported.get("KEYS")),
        "tags": reported.get("TAGS"),
        "keys": [word for word in reported.get("KEYS", "").split(" ") if word],
        "stored_at": moment(message.store_timestamp),
        "born_at": moment(message.born_timestamp),
        **{name: whole(reported.get(name)) for name in COUNTS},
        "timeline": reported.get("timeline"),
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "offset": message.offset,
        "size": message.size,
        "message_id": message.message_id,
        "born_host": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        "store_host": "127.0.0.1:10911",
        "reconsume_times": message.reconsume_times,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "prepared_offset": message.prepared_offset,
        "properties": list(reported.items()),
        "body": message.body,
    }


@settings(max_examples=40)
@given(st.lists(MESSAGES, max_size=8), st.sampled_from([1, 3, 1000]))
def test_pyarrow_reads_the_stored_values(tmp_path_factory, messages, group_rows):
    folder = tmp_path_factory.mktemp("parquet")
    with opened(folder / "store") as store:
        store.append(messages)
        stored = list(store.scan())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "GROUP_ROWS", group_rows)
        written = parquet.write_file(stored, folder / "out.parquet")
    assert (written.files, written.rows) == (1, len(messages))
    table = pq.read_table(folder / "out.parquet")
    assert table.schema.equals(SCHEMA)
    assert table.to_pylist() == [row_of(message) for message in stored]
    file = pq.ParquetFile(folder / "out.parquet")
    assert file.metadata.num_row_groups == -(-len(messages) // group_rows)
    columns = [file.metadata.row_group(0).column(0)] if messages else []
    assert all(column.compression == "ZSTD" for column in columns)
    assert sorted(path.name for path in folder.iterdir()) == ["out.parquet", "store"]


@settings(max_examples=15)
@given(
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(1, 45)),
    st.one_of(st.none(), st.integers(1, 8000)),
)
def test_files_of_a_folder_respect_the_limits(tmp_path_factory, count, most_rows, most_bytes):
    folder = tmp_path_factory.mktemp("folder")
    make_store(folder / "store", [finished(number) for number in range(count)])
    with StoreReader.open(folder / "store") as store:
        stored = list(store.scan())
    written = parquet.write_folder(stored, folder / "out", most_rows, most_bytes)
    names = sorted(path.name for path in (folder / "out").iterdir())
    assert names == ["_SUCCESS", *(f"part-{number:05d}.parquet" for number in range(written.files))]
    sizes = {message.offset: message.size for message in stored}
    bounds = []
    for name in names[1:]:
        offsets = pq.read_table(folder / "out" / name, columns=["offset"])["offset"].to_pylist()
        total = sum(sizes[offset] for offset in offsets)
        assert most_rows is None or len(offsets) <= most_rows
        assert most_bytes is None or total <= most_bytes or len(offsets) == 1
        bounds += [(len(offsets), total)]
    whole_folder = pq.read_table(folder / "out")
    assert whole_folder["offset"].to_pylist() == [message.offset for message in stored]
    # No file is smaller than necessary.
    behind = 0
    for rows, total in bounds:
        behind += rows
        assert (
            behind == count
            or rows == most_rows
            or (most_bytes is not None and total + stored[behind].size > most_bytes)
        )


def test_a_file_is_complete_or_missing(tmp_path, monkeypatch):
    make_store(tmp_path / "store", [finished(number) for number in range(20)])
    with StoreReader.open(tmp_path / "store") as store:
        stored = list(store.scan())
    target = tmp_path / "out" / "jobs.parquet"
    target.parent.mkdir()
    target.write_bytes(b"before")

    def breaking():
        yield from stored[:10]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parquet.write_file(breaking(), target)
    assert [path.name for path in target.parent.iterdir()] == ["jobs.parquet"]
    assert target.read_bytes() == b"before"

    def full(_fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        parquet.write_file(stored, target)
    assert [path.name for path in target.parent.iterdir()] == ["jobs.parquet"]
    assert target.read_bytes() == b"before"
