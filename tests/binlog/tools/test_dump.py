"""dump shows every entry as the independent reader reads it, and follows a running server."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from binlog.damaged_folders import KINDS, make
from binlog.reader import Entry, read_file, read_folder
from core.rig import Rig
from servers import Server, ours, reference
from wire import Client

from beanstalkd_py.binlog.dump import Follower, dump, headings, line_of
from beanstalkd_py.binlog.file_walk import Damage
from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.binlog.layout import Layout
from beanstalkd_py.core.binlog_reader import Selection

Row = dict[str, Any]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
WAIT_S = 20.0
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")


def rows_of(folder: Path, selection: Selection | None = None) -> list[Row]:
    parts: list[bytes] = []
    clean = dump(
        inspect_folder(folder),
        selection or Selection(as_json=True),
        lambda text: parts.append(bytes(text)),
    )
    assert clean
    return [json.loads(line) for line in b"".join(parts).splitlines()]


def nanoseconds(text: str | None) -> int | None:
    if text is None:
        return None
    whole, _, fraction = text.removesuffix("Z").partition(".")
    moment = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.UTC)
    return (moment - EPOCH) // datetime.timedelta(seconds=1) * 10**9 + int(fraction)


def is_right(entry: Entry) -> bool:
    return entry.mark[:1] == b"\xbd" and entry.checksum_is_right


def event_of(entry: Entry) -> int | None:
    if entry.state == "delayed":
        return entry.deadline_at - entry.delay
    if entry.state == "reserved":
        return entry.deadline_at - entry.ttr
    return entry.deadline_at if is_right(entry) else None


def reserved_at(entry: Entry) -> int | None:
    ago = entry.reserve_age if is_right(entry) else 0
    event = event_of(entry)
    return event - (ago - 1) if ago and event is not None else None


def ended(entry: Entry) -> str | None:
    return entry.ended if is_right(entry) or entry.ended is None else "deleted"


def expected(entry: Entry, tube: bytes | None) -> Row:
    name = entry.tube if entry.tube is not None else tube
    marked = entry.mark[:1] == b"\xbd"
    return {
        "file": f"binlog.{entry.file}",
        "offset": entry.offset,
        "bytes": entry.size,
        "kind": "full" if entry.full else "short",
        "id": entry.id,
        "tube": None if name is None else name.decode(),
        "state": "deleted" if entry.state == "invalid" else entry.state,
        "pri": 0 if entry.is_length_entry else entry.pri,
        "delay_s": 0 if entry.is_length_entry else entry.delay / 10**9,
        "ttr_s": entry.ttr / 10**9,
        "body_bytes": max(0, entry.body_size - 2),
        "created_at": entry.created_at,
        "event_at": event_of(entry),
        "deadline_at": entry.deadline_at if entry.state in ("delayed", "reserved") else None,
        "reserved_at": reserved_at(entry),
        "reserves": entry.reserves,
        "timeouts": entry.timeouts,
        "releases": entry.releases,
        "buries": entry.buries,
        "kicks": entry.kicks,
        "ended": ended(entry),
        "length_of": f"binlog.{entry.pri}" if entry.is_length_entry else None,
        "length": entry.delay if entry.is_length_entry else None,
        "attributes_of": None,
        "expires_s": None,
        "unique_key": None,
        "window_s": None,
        "key_until": None,
        "checksum": "right" if is_right(entry) else "foreign" if marked else None,
    }


def expected_attributes(entry: Entry) -> Row:
    """The row of an attribute entry: its values are not shown as those of a job."""
    unused = dict.fromkeys(("delay_s", "ttr_s", *COUNTERS), 0)
    return (
        expected(entry, None)
        | unused
        | {
            "kind": "attribute",
            "created_at": entry.deadline_at,
            "attributes_of": entry.attributes_of,
            "expires_s": 0 if entry.is_ended_key else entry.ttr,
            "window_s": entry.delay,
            "key_until": entry.ttr * 10**9 if entry.is_ended_key else None,
            "unique_key": entry.unique_key,
        }
    )


def all_expected(folder: Path) -> list[Row]:
    tubes: dict[int, bytes] = {}
    rows = []
    for entry in read_folder(folder):
        if entry.is_attribute_entry or entry.is_ended_key:
            rows.append(expected_attributes(entry))
            continue
        rows.append(expected(entry, tubes.get(entry.id)))
        if entry.tube is not None:
            tubes[entry.id] = entry.tube
        if entry.state == "invalid":
            tubes.pop(entry.id, None)
    return rows


@pytest.fixture(params=KINDS)
def original(request: pytest.FixtureRequest, folder: Path) -> Path:
    make(request.param, folder / "jobs")
    return folder / "jobs"


def test_every_field_of_every_entry(original: Path) -> None:
    rows = rows_of(original)
    for row in rows:
        for key in ("created_at", "event_at", "deadline_at", "reserved_at", "key_until"):
            row[key] = nanoseconds(row[key])
    assert rows == all_expected(original)
    assert rows


def test_filters_choose_and_combine(original: Path) -> None:
    rows = rows_of(original)
    ids = tuple(sorted({row["id"] for row in rows})[1:4])
    tube = next(row["tube"] for row in rows if row["tube"])

    def chosen(**wanted: Any) -> list[Row]:
        return rows_of(original, Selection(as_json=True, **wanted))

    assert chosen(ids=ids) == [row for row in rows if row["id"] in ids]
    assert chosen(tubes=(tube.encode(), b"no-such")) == [r for r in rows if r["tube"] == tube]
    assert chosen(states=("buried", "deleted")) == [
        row for row in rows if row["state"] in ("buried", "deleted")
    ]
    both = chosen(ids=ids, states=("ready",))
    assert both == [row for row in rows if row["id"] in ids and row["state"] == "ready"]


def test_since_and_until_partition_all_entries(original: Path) -> None:
    """Every entry is either before or after a moment, also entries without a time."""
    rows = rows_of(original)
    times = sorted({t for row in rows if (t := nanoseconds(row["event_at"])) is not None})
    for moment in (times[:1] or [0]) + times[len(times) // 2 :][:1] + [2**62]:
        before = rows_of(original, Selection(as_json=True, until=moment))
        after = rows_of(original, Selection(as_json=True, since=moment))
        assert len(before) + len(after) == len(rows)
        for row in rows:
            if row["event_at"] is not None:
                side = before if (nanoseconds(row["event_at"]) or 0) < moment else after
                assert row in side


def test_columns_have_the_same_content(original: Path) -> None:
    parts: list[bytes] = []
    dump(inspect_folder(original), Selection(), lambda text: parts.append(bytes(text)))
    lines = b"".join(parts).decode().splitlines()
    rows = rows_of(original)
    width = headings(inspect_folder(original)).index("tube")
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        fields = line[:width].split()
        assert fields[:4] == [
            f"{row['file']}:{row['offset']}",
            "short" if row["attributes_of"] else row["kind"],
            str(row["id"]),
            row["state"],
        ]
        assert fields[-5:] == [
            str(row["pri"]),
            f"{row['delay_s']:g}",
            f"{row['ttr_s']:g}",
            str(row["body_bytes"]),
            row["checksum"] or "-",
        ]
        length = f" ({row['length_of']} ends at {row['length']})" if row["length_of"] else ""
        what = "ended key" if row["key_until"] else "attributes"
        attributes = f" ({what} of {row['attributes_of']})" if row["attributes_of"] else ""
        assert line[width:] == (row["tube"] or "-") + length + attributes


# --- following ------------------------------------------------------------------------------------


class Following:
    """A running `dump --follow --json`, and its output."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "beanstalkd_py", "binlog", "dump", "--follow", "--json"]
        self.process = subprocess.Popen([*command, str(folder)], stdout=subprocess.PIPE)
        self.rows: list[Row] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.rows.append(json.loads(line))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert self.process.poll() is None, "dump has ended"
            assert time.monotonic() < end, self.rows[-3:]
            time.sleep(0.01)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def following(folder: Path) -> Iterator[Following]:
    follower = Following(folder)
    try:
        yield follower
    finally:
        follower.stop()


def deletes(rows: list[Row]) -> list[int]:
    short = [row for row in rows if row["kind"] == "short" and row["state"] == "deleted"]
    return [row["id"] for row in short if not row.get("length_of")]


@pytest.mark.slow
@pytest.mark.parametrize("start", [ours, reference], ids=["ours", "c"])
def test_follows_a_server_into_its_next_files(
    folder: Path, start: Callable[..., AbstractContextManager[Server]]
) -> None:
    """Each entry is shown once and in order, over many files."""
    with start("-b", folder, "-s", "8192") as server, server.connect() as client:
        first = [client.put(b"before") for _ in range(3)]
        with following(folder) as follower:
            follower.wait_for(lambda: len(follower.rows) >= 3)
            jobs: list[int] = []
            for _ in range(10):
                # In step with dump, so that no file is removed before dump has read it.
                some = [client.put(b"x" * 300) for _ in range(6)]
                for job in some:
                    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
                jobs += some
                follower.wait_for(lambda j=jobs[-1:]: deletes(follower.rows)[-1:] == j)
            last = client.put(b"last")
            follower.wait_for(lambda: any(row["id"] == last for row in follower.rows))
        rows = follower.rows
        assert {row["kind"] for row in rows} == {"full", "short"}
        puts = [row["id"] for row in rows if row["kind"] == "full" and row["state"] == "ready"]
        assert sorted(set(puts)) == [*first, *jobs, last]
        assert deletes(rows) == jobs
        places = [(int(row["file"].split(".")[1]), row["offset"]) for row in rows]
        assert places == sorted(set(places))
        assert len({number for number, _ in places}) > 2


def test_files_removed_before_they_were_read_are_reported(folder: Path) -> None:
    rows: list[Row] = []

    def sink(text: Any) -> None:
        rows.extend(json.loads(line) for line in bytes(text).splitlines())

    make("stopped", folder / "jobs")
    first = folder / "jobs" / "binlog.1"
    follower = Follower(inspect_folder(folder / "jobs").shards[0], Selection(as_json=True), sink)
    while follower.step():
        pass
    seen = len(rows)
    first.rename(folder / "jobs" / "binlog.5")
    while follower.step():
        pass
    follower.close()
    assert rows[seen]["kind"] == "gone"
    assert rows[seen]["what"].startswith("binlog.3 to binlog.4 were removed")


@pytest.mark.costly
def test_follows_several_workers(folder: Path) -> None:
    with ours("-b", folder, "--workers", "2") as server, server.connect() as client:
        with following(folder) as follower:
            jobs = []
            for tube in range(10):
                client.ask(b"use t%d\r\n" % tube)
                jobs.append(client.put(b"x"))
            follower.wait_for(lambda: {row["id"] for row in follower.rows} >= set(jobs))
        assert {row["file"].split("/")[0] for row in follower.rows} == {"shard-000", "shard-001"}


def test_an_incomplete_entry_is_shown_once_it_is_complete(folder: Path) -> None:
    """An entry that is partly written is never shown as damage."""
    make("stopped", folder / "whole")
    data = (folder / "whole" / "binlog.1").read_bytes()
    entries = read_file(folder / "whole" / "binlog.1")[-3:]
    path = folder / "grown" / "binlog.1"
    path.parent.mkdir()
    rows: list[Row] = []

    def sink(text: Any) -> None:
        rows.extend(json.loads(line) for line in bytes(text).splitlines())

    def written_to(end: int) -> None:
        with path.open("r+b") as file:
            file.write(data[:end])
        for _ in range(3):
            follower.step()

    path.write_bytes(bytes(len(data) + 4096))
    follower = Follower(inspect_folder(path.parent).shards[0], Selection(as_json=True), sink)
    written_to(entries[0].offset)
    seen = len(rows)
    for entry in entries:
        for size in range(1, entry.size, 7):
            written_to(entry.offset + size)
            assert len(rows) == seen
        written_to(entry.offset + entry.size)
        seen += 1
        assert (len(rows), rows[-1]["offset"]) == (seen, entry.offset)
    follower.close()


def read_all(fd: int) -> bytes:
    got = b""
    with contextlib.suppress(OSError):  # a terminal reports its closed other end as an error
        while piece := os.read(fd, 4096):
            got += piece
    return got


def test_columns_are_aligned_with_shards(folder: Path) -> None:
    """Also with large file numbers and offsets, and with damage between the entries."""
    shard = folder / "jobs" / "shard-000"
    with Rig(folder, file_size=1 << 24, max_job_size=1 << 22) as rig:
        client = rig.client()
        for _ in range(4):
            client.put(b"x" * (1 << 21))
        rig.stop()
    shard.mkdir(parents=True)
    (folder / "jobs" / "layout").write_bytes(Layout(2).to_bytes())
    (folder / "jobs" / "shard-001").mkdir()
    (folder / "binlog.1").rename(shard / "binlog.12345")
    parts: list[bytes] = []
    found = inspect_folder(folder / "jobs")
    dump(found, Selection(), lambda text: parts.append(bytes(text)))
    head, *lines = [headings(found).rstrip("\n"), *b"".join(parts).decode().splitlines()]
    assert lines[-1].startswith("shard-000/binlog.12345:6")
    for line in lines:
        for column in ("kind", "state", "checksum", "tube"):
            at = head.index(column)
            assert line[at - 2 : at] == "  " and line[at] != " ", line
    damage = line_of(Damage("shard-000/binlog.12345", 6291656, "unreadable entry"), as_json=False)
    at = head.index("kind")
    assert damage[at - 2 : at] == b"  " and damage[at : at + 1] != b" "


def test_a_terminal_gets_columns_with_headings(folder: Path) -> None:
    make("stopped", folder / "jobs")
    ours_end, its_end = pty.openpty()
    command = [sys.executable, "-m", "beanstalkd_py", "binlog", "dump", str(folder / "jobs")]
    with subprocess.Popen(command, stdout=its_end, stderr=subprocess.PIPE) as process:
        os.close(its_end)
        text = read_all(ours_end).decode()
        os.close(ours_end)
    assert process.returncode == 0
    first, *rest = text.replace("\r\n", "\n").splitlines()
    assert headings(inspect_folder(folder / "jobs")).strip() in first and "\x1b[1m" in first
    assert len(rest) == len(read_folder(folder / "jobs"))


@pytest.mark.costly
def test_a_closed_pipe_is_not_an_error(folder: Path) -> None:
    make("ours", folder / "jobs")
    with ours("-b", folder / "jobs") as server:
        client: Client = server.connect()
        for _ in range(20):
            client.send(b"put 0 0 60 1\r\nx\r\n" * 300)
            client.replies(300)
        script = '"$0" -m beanstalkd_py binlog dump "$1" | head -1; echo "${PIPESTATUS[0]}"'
        command = ["bash", "-c", script, sys.executable, str(folder / "jobs")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        client.close()
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"
