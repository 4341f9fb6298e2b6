"""`binlog-health` against a plain computation and `binlog usage`."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from binlog.reader import files
from core.rig import Rig
from pipeline.jobs.made import Made, made
from pipeline.plain import is_highest_id, nanoseconds

from beanstalkd_py import pipeline
from beanstalkd_py.binlog.dump import dump
from beanstalkd_py.binlog.file_usage import folder_usage
from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.core.binlog_reader import Selection
from beanstalkd_py.pipeline.jobs.binlog_health import COLUMNS, binlog_health

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Row = dict[str, Any]


def entries(spark: Any, path: Path, **options: object) -> Any:
    return pipeline.read_binlog(spark, str(path), columns=list(COLUMNS), host="h", **options)


def health(spark: Any, path: Path) -> dict[str, Row]:
    rows = [row.asDict() for row in binlog_health(entries(spark, path)).collect()]
    order = [(row["shard"], row["file_number"]) for row in rows]
    assert order == sorted(set(order))
    return {f"{row['shard']}/{row['file']}".lstrip("/"): row for row in rows}


# --- the plain computation ---------------------------------------------------------------------


def dumped(path: Path) -> list[Row]:
    lines: list[bytes] = []
    dump(inspect_folder(path), Selection(as_json=True), lambda text: lines.append(bytes(text)))
    return [json.loads(line) for line in b"".join(lines).splitlines()]


def plain(path: Path) -> dict[str, Row]:
    """Compute the measures in one pass over all entries."""
    found: dict[str, Row] = {}
    seen: set[Any] = set()
    live: dict[Any, Row] = {}
    for entry in dumped(path):
        if is_highest_id(entry):
            continue
        file = found.setdefault(entry["file"], empty(entry["file"]))
        if "what" in entry:
            file["damage"] += 1
            continue
        full, size = entry["kind"] == "full", entry["bytes"]
        shard = entry["file"].rpartition("/")[0]
        key = (shard, entry["id"])
        life = (*key, entry["created_at"])
        is_put = full and life not in seen
        file["entries"] += 1
        file["bytes"] += size
        name = "put_bytes" if is_put else "copy_bytes" if full else "short_bytes"
        file[name] += size
        if full:
            seen.add(life)
        if entry["state"] == "deleted":
            live.pop(key, None)
        elif full:
            live[key] = {"full": entry, "short": None}
        elif key in live:
            live[key]["short"] = entry
    for job in live.values():
        full = job["full"]
        file = found[full["file"]]
        file["live_jobs"] += 1
        file["jobs"].append((full["created_at"], full["id"], full["tube"]))
        for entry in filter(None, job.values()):
            found[entry["file"]]["live_bytes"] += entry["bytes"]
    return found


def empty(name: str) -> Row:
    counts = ("entries", "bytes", "put_bytes", "copy_bytes", "short_bytes", "live_jobs")
    row: Row = dict.fromkeys((*counts, "live_bytes", "damage"), 0)
    return row | {"shard": name.rpartition("/")[0], "jobs": []}


def completed(found: dict[str, Row]) -> dict[str, Row]:
    so_far: dict[str, Row] = {}
    for file in found.values():
        sums = so_far.setdefault(file["shard"], dict.fromkeys(("bytes", "put", "jobs"), 0))
        sums["bytes"] += file["bytes"]
        sums["put"] += file["put_bytes"]
        sums["jobs"] += file["live_jobs"]
        file["dead_bytes"] = file["bytes"] - file["live_bytes"]
        file["pinned_by"] = sums["jobs"]
        file["write_amplification"] = sums["bytes"] / sums["put"] if sums["put"] else None
        put_at, number, tube = min(file.pop("jobs"), default=(None, None, None))
        file |= {"oldest_job_id": number, "oldest_job_tube": tube, "oldest_job_put_at": put_at}
    return found


def same(found: dict[str, Row], expected: dict[str, Row]) -> None:
    assert found.keys() == expected.keys()
    for name, row in found.items():
        put_at = row["oldest_job_put_at"]
        put_ns = nanoseconds(expected[name].pop("oldest_job_put_at"))
        assert micros(put_at) == (None if put_ns is None else put_ns // 1000), name
        assert {key: row[key] for key in expected[name]} == expected[name], name


def micros(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 10**6)


@pytest.mark.parametrize("name", ["ours", "history", "c"])
def test_numbers_match_a_plain_computation(spark, name):
    run = made(name)
    found = health(spark, run.binlog)
    same(found, completed(plain(run.binlog)))
    assert sum(row["live_jobs"] for row in found.values()) > 50
    assert sum(row["copy_bytes"] for row in found.values()) > 0 or name == "history"


@pytest.mark.parametrize("name", ["ours", "history", "c", "removed"])
def test_live_bytes_and_jobs_match_binlog_usage(spark, name):
    """`binlog usage` also counts the entries of the highest id."""
    run = made(name)
    ids = Counter(entry["file"] for entry in dumped(run.binlog) if is_highest_id(entry))
    usage = {each.file: each for each in folder_usage(inspect_folder(run.binlog)).files}
    found = health(spark, run.binlog)
    for file, row in found.items():
        counted = usage.pop(file)
        assert row["live_bytes"] == counted.live_bytes
        assert row["live_jobs"] == counted.jobs
        assert row["entries"] == counted.full_entries + counted.short_entries - ids.pop(file, 0)
        assert row["bytes"] <= counted.bytes
    assert {each.file: each.short_entries for each in usage.values() if each.short_entries} == ids
    assert all(each.full_entries == 0 for each in usage.values())


def test_bytes_and_jobs_match_the_sent_puts(spark, monkeypatch):
    """A full entry has 84 bytes, the tube, the body and CR LF."""
    run = made("ours")
    puts = [line for line in log_lines(run) if line["event"] == "put"]
    found = health(spark, run.binlog)
    sizes = [84 + len(line["tube"]) + line["body_bytes"] + 2 for line in puts]
    assert sum(row["put_bytes"] for row in found.values()) == sum(sizes)
    left = log_lines(run)[-1]["left"].values()
    assert sum(row["live_jobs"] for row in found.values()) == sum(
        sum(states.values()) for states in left
    )


def log_lines(run: Made) -> list[Row]:
    return [json.loads(line) for line in run.log.read_text().splitlines()]


def test_event_times_match_the_log(spark):
    run = made("ours")
    lines = log_lines(run)[1:-1]
    all_rows = health(spark, run.binlog).values()
    rows = [row for row in all_rows if row["first_event_at"] is not None]  # others: copies only
    assert len(rows) > 2
    firsts = [micros(row["first_event_at"]) for row in rows]
    lasts = [micros(row["last_event_at"]) for row in rows]
    assert firsts == sorted(firsts) and lasts == sorted(lasts)
    assert all(first <= last for first, last in zip(firsts, lasts, strict=True))
    assert firsts[0] >= lines[0]["sent_ns"] // 1000
    assert all(last <= first for last, first in zip(lasts, firsts[1:], strict=False))


def test_copies_do_not_count_as_puts_after_the_put_was_removed(spark):
    """Copies are recognized by the times of the file before."""
    run = made("removed")
    found = health(spark, run.binlog)
    put = {line["id"]: line for line in log_lines(run) if line["event"] == "put"}
    assert min(row["file_number"] for row in found.values()) > 1
    first, *others = found
    begun = {name: micros(row["first_event_at"]) for name, row in found.items()}
    # The server put the job between the send and the reply, perhaps before it created the file.
    least, most = dict.fromkeys(others, 0), dict.fromkeys(others, 0)
    seen: set[int] = set()
    for entry in dumped(run.binlog):
        if entry["kind"] == "full" and entry["id"] not in seen:
            seen.add(entry["id"])
            file, line = entry["file"], put[entry["id"]]
            for bound, moment in ((least, "sent_ns"), (most, "at_ns")):
                if file != first and line[moment] // 1000 >= begun[file]:
                    bound[file] += entry["bytes"]
    for name in others:
        assert least[name] <= found[name]["put_bytes"] <= most[name], name
    full = sum(found[name]["put_bytes"] + found[name]["copy_bytes"] for name in others)
    assert sum(most.values()) < full
    assert sum(found[name]["copy_bytes"] for name in others) > 0


def test_a_file_without_live_jobs_is_pinned_by_an_older_one(spark, folder):
    """There are too few dead bytes for compaction."""
    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        client.do(b"use mails", b"USING mails")
        kept = [client.put(b"k" * 400) for _ in range(8)]
        client.bury(kept[0])
        for _ in range(8):
            client.do(b"delete %d" % client.put(b"c" * 400), b"DELETED")
        assert rig.counters.records_migrated == 0
        rows = list(health(spark, folder).values())
    first, last = rows[0], rows[-1]
    assert (first["oldest_job_id"], first["oldest_job_tube"]) == (kept[0], "mails")
    assert (last["live_jobs"], last["pinned_by"], last["oldest_job_id"]) == (0, 8, None)
    assert sum(row["live_jobs"] for row in rows) == 8
    assert sum(row["live_bytes"] for row in rows) == 8 * (84 + len("mails") + 402) + 84


def test_damage_is_counted_and_affects_no_other_job(spark, folder):
    with Rig(folder, file_size=1 << 16) as rig:
        client = rig.client()
        for _ in range(20):
            client.put(b"x" * 50)
        rig.stop()
    path = files(folder)[0]
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    same(health(spark, folder), completed(plain(folder)))
    row = health(spark, folder)["binlog.1"]
    assert (row["damage"], row["live_jobs"]) == (1, 19)


def test_an_empty_folder_has_no_rows(spark, folder):
    with Rig(folder):
        pass
    assert health(spark, folder) == {}
