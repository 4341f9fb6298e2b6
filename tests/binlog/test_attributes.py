"""Attribute entries: what `with` has set survives whatever happens to the job's full entry."""

from __future__ import annotations

import errno
import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from binlog.reader import SHORT, Entry, files, read_folder
from core import fault_injection
from core.fault_injection import Call
from core.rig import SECOND, START, Rig, RigClient, put_line
from servers import reference

from beanstalkd_py.binlog.compact import compact
from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.binlog.layout import WHOLE, Layout
from beanstalkd_py.binlog.repair import repair
from beanstalkd_py.binlog.reshard import reshard
from beanstalkd_py.binlog.verify import verify
from beanstalkd_py.core.clocks import Now, read_clocks

FILE = 4096
EXPIRES = 100
# Times of a start at which the jobs have not expired, and have.
BEFORE = Now(START.mono, START.wall + (EXPIRES - 1) * SECOND)
AFTER = Now(START.mono, START.wall + EXPIRES * SECOND)


def put(client: RigClient, body: bytes = b"x", delay: int = 0) -> int:
    client.do(b"with expires=%d" % EXPIRES, b"WITH")
    return client.put(body, delay=delay)


def pairs(entries: list[Entry]) -> list[tuple[Entry, Entry]]:
    """Return the attribute entries with the entries that follow them."""
    return [(one, other) for one, other in itertools.pairwise(entries) if one.is_attribute_entry]


def assert_jobs_expire(folder: Path, jobs: list[int], *, body_memory: int = 0) -> None:
    with Rig(folder, file_size=FILE, now=BEFORE, body_memory=body_memory) as rig:
        assert rig.warnings() == []
        client = rig.client()
        assert all(client.body(job) is not None for job in jobs)
    with Rig(folder, file_size=FILE, now=AFTER, body_memory=body_memory) as rig:
        rig.tick()
        assert [job for job in jobs if rig.client().body(job) is not None] == []


def test_it_precedes_the_full_entry_of_its_job(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        plain, job = client.put(), put(client)
    entries = read_folder(folder)
    [(attributes, full)] = pairs(entries)
    assert (full.id, full.full) == (job, True)
    assert attributes.attributes_of == job
    assert attributes.id > job
    assert (attributes.delay, attributes.ttr, attributes.size) == (0, EXPIRES, SHORT)
    assert attributes.checksum_is_right
    assert [entry.id for entry in entries if entry.full] == [plain, job]


@pytest.mark.parametrize("body_memory", [0, 1 << 20])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 5000])
def test_a_restart(folder: Path, size: int, body_memory: int) -> None:
    with Rig(folder, file_size=FILE, body_memory=body_memory) as rig:
        jobs = [put(rig.client(), b"y" * size, delay) for delay in (0, 10**6)]
    assert_jobs_expire(folder, jobs, body_memory=body_memory)


def test_each_pair_is_in_one_file(folder: Path) -> None:
    """Whatever the position in a file at which a pair begins."""
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        jobs = [put(client, b"z" * (number * 37 % 500)) for number in range(200)]
    for path in files(folder):
        found = pairs(read_folder(folder))
        assert all(one.file == other.file for one, other in found), path
    assert {other.id for _, other in pairs(read_folder(folder))} == set(jobs)
    assert_jobs_expire(folder, jobs)


def test_a_compaction_moves_it(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        jobs = [put(client) for _ in range(5)]
        for _ in range(300):
            client.do(b"delete %d" % put(client, b"c" * 300), b"DELETED")
        assert rig.counters.records_migrated >= 5
        rig.tick()
        live = rig.counters.binlog_live_bytes
        rig.stop()
    assert min(entry.file for entry in read_folder(folder)) > 1
    with Rig(folder, file_size=FILE, now=BEFORE) as rig:
        rig.tick()
        assert rig.counters.binlog_live_bytes == live
    assert_jobs_expire(folder, jobs)


def by_compact(folder: Path) -> Path:
    assert compact(inspect_folder(folder), FILE).files_after > 0
    assert compact(inspect_folder(folder), FILE).freed == 0
    return folder


def by_repair(folder: Path) -> Path:
    """Repair a folder with one damaged entry, of another job."""
    entry = next(entry for entry in read_folder(folder) if entry.body and b"other" in entry.body)
    path = folder / f"binlog.{entry.file}"
    data = bytearray(path.read_bytes())
    data[entry.offset + entry.size - 4] ^= 1
    path.write_bytes(data)
    output = folder.with_name("repaired")
    repair(inspect_folder(folder), output, FILE)
    return output


def by_resharding(folder: Path) -> Path:
    for layout in (Layout(3), WHOLE):
        assert reshard(folder, layout, FILE) > 0
    return folder


@pytest.mark.parametrize("change", [by_compact, by_repair, by_resharding])
def test_tools_keep_it(folder: Path, change: Callable[[Path], Path]) -> None:
    folder = folder / "jobs"
    folder.mkdir()
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        client.put(b"other")
        jobs = [put(client, b"k" * (number * 91 % 300), number % 2 * 10**6) for number in range(40)]
        for job in jobs[10:20]:
            client.bury(job)
            client.do(b"kick-job %d" % job, b"KICKED")
        rig.stop()
    changed = change(folder)
    found = pairs(read_folder(changed))
    assert {other.id for _, other in found} == set(jobs)
    assert all(one.attributes_of == other.id and one.file == other.file for one, other in found)
    assert_jobs_expire(changed, jobs)


@pytest.mark.parametrize("at", range(SHORT))
def test_a_damaged_one_is_reported_and_its_job_survives(folder: Path, at: int) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        client.put()
        job = put(client)
    [(attributes, _)] = pairs(read_folder(folder))
    path = files(folder)[0]
    data = bytearray(path.read_bytes())
    data[attributes.offset + at] ^= 1 << at % 8
    path.write_bytes(data)
    reports: list[object] = []
    assert not verify(inspect_folder(folder), reports.append).clean
    assert len(reports) == 1
    with Rig(folder, now=AFTER) as rig:
        rig.tick()
        assert [line for line in rig.warnings() if f"binlog.1:{attributes.offset}: " in line]
        assert rig.client().body(job) == b"x"


def test_one_without_its_job_has_no_effect(folder: Path) -> None:
    """A crash may cut the full entry off."""
    with Rig(folder) as rig:
        client = rig.client()
        kept, lost = client.put(), put(client)
    [(_, full)] = pairs(read_folder(folder))
    path = files(folder)[0]
    path.write_bytes(path.read_bytes()[: full.offset])
    with Rig(folder, now=AFTER) as rig:
        client = rig.client()
        assert client.body(kept) == b"x"
        assert client.body(lost) is None
        next_job = client.put()
        assert next_job >= lost
    with Rig(folder, now=AFTER) as rig:
        rig.tick()
        assert rig.client().body(next_job) == b"x"


def test_beanstalkd_opens_the_folder_and_has_every_job(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        jobs = [put(client, b"body %d" % number, number % 2 * 10**6) for number in range(20)]
        client.do(b"delete %d" % jobs.pop(), b"DELETED")
        end(client, b"k")
        rig.stop()
    with reference("-b", folder) as server, server.connect() as other:
        for number, job in enumerate(jobs):
            body = b"body %d" % number
            assert other.ask(b"peek %d\r\n" % job) == b"FOUND %d %d\r\n%b\r\n" % (
                job,
                len(body),
                body,
            )
        assert other.put() > jobs[-1]
        server.stop()


def test_no_memory_and_no_bytes_without_attributes(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        client.put()
        plain = rig.counters.job_bytes
        job = put(client)
        attributes, key_entry = 32, 32
        assert plain < rig.counters.job_bytes - plain <= plain + attributes + key_entry
        client.do(b"delete %d" % job, b"DELETED")
        assert rig.counters.job_bytes == plain


# --- unique keys ----------------------------------------------------------------------------------


def put_unique(client: RigClient, key: bytes, body: bytes = b"x") -> int:
    client.do(b"with unique=" + key, b"WITH")
    return client.put(body)


@pytest.mark.parametrize("length", [1, 2, 55, 56, 63, 64, 65, 119, 127, 128])
def test_a_key_is_a_hash_of_tube_and_text(folder: Path, length: int) -> None:
    key = bytes(0x21 + (7 * at) % 94 for at in range(length))
    tube = b"t" * length
    with Rig(folder) as rig:
        client = rig.client()
        client.use(tube)
        put_unique(client, key)
    [(attributes, _)] = pairs(read_folder(folder))
    assert attributes.unique_key == hash_of(tube + b"\0" + key)


def hash_of(data: bytes) -> str:
    return hashlib.blake2s(data, digest_size=16).hexdigest()


@pytest.mark.parametrize("body_memory", [0, 1 << 20])
def test_keys_survive_a_restart(folder: Path, body_memory: int) -> None:
    with Rig(folder, file_size=FILE, body_memory=body_memory) as rig:
        client = rig.client()
        jobs = {b"key-%d" % n: put_unique(client, b"key-%d" % n, b"b" * n) for n in range(200)}
        for key in list(jobs)[::3]:
            client.do(b"delete %d" % jobs.pop(key), b"DELETED")
    with Rig(folder, file_size=FILE, body_memory=body_memory) as rig:
        client = rig.client()
        assert {key: put_unique(client, key) for key in jobs} == jobs
        assert put_unique(client, b"key-0") > max(jobs.values())
        for job in jobs.values():
            client.do(b"delete %d" % job, b"DELETED")
        assert all(put_unique(client, key) > jobs[key] for key in jobs)


@pytest.mark.parametrize("change", [by_compact, by_repair, by_resharding])
def test_tools_keep_keys(folder: Path, change: Callable[[Path], Path]) -> None:
    folder = folder / "jobs"
    folder.mkdir()
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        client.put(b"other")
        jobs = {b"key-%d" % n: put_unique(client, b"key-%d" % n, b"b" * n) for n in range(40)}
        rig.stop()
    with Rig(change(folder), file_size=FILE) as rig:
        client = rig.client()
        assert {key: put_unique(client, key) for key in jobs} == jobs


def test_a_duplicate_is_acknowledged_when_the_first_job_is_on_disk(folder: Path) -> None:
    data = b"with unique=k\r\nput 0 0 1 1\r\nx\r\n"
    with Rig(folder) as rig:
        clients = [rig.client() for _ in range(2)]
        for client in clients:
            rig.core.feed(client.session, data, rig.now)
        assert [client.read() for client in clients] == [b"WITH\r\n"] * 2
        rig.settle()
        assert [client.read() for client in clients] == [b"INSERTED 1\r\n"] * 2
        syncs = rig.counters.syncs
        assert clients[0].ask(data) == b"WITH\r\nINSERTED 1\r\n"
        assert rig.counters.syncs == syncs


def test_two_jobs_with_one_key_after_a_lost_delete(folder: Path) -> None:
    """The first one holds the key. When it ends, the key is free."""
    with Rig(folder) as rig:
        client = rig.client()
        first = put_unique(client, b"k")
        client.do(b"delete %d" % first, b"DELETED")
        second = put_unique(client, b"k")
    [delete] = [entry for entry in read_folder(folder) if entry.id == first and not entry.full]
    path = files(folder)[0]
    data = bytearray(path.read_bytes())
    data[delete.offset + 20] ^= 1
    path.write_bytes(data)
    with Rig(folder) as rig:
        client = rig.client()
        assert put_unique(client, b"k") == first
        client.do(b"delete %d" % second, b"DELETED")
        assert put_unique(client, b"k") == first
        client.do(b"delete %d" % first, b"DELETED")
        assert put_unique(client, b"k") > second


def test_a_full_binlog_leaves_no_key(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        fault_injection.fail(Call.FILL, error=errno.ENOSPC, lasting=True)
        try:
            numbers = iter(range(100))
            for number in numbers:
                client.do(b"with unique=%d" % number, b"WITH")
                if client.ask(put_line(b"f" * 400)) == b"OUT_OF_MEMORY\r\n":
                    break
            number = next(numbers) - 1
        finally:
            fault_injection.heal()
        rig.advance(SECOND)
        rig.advance(SECOND)
        job = put_unique(client, b"%d" % number)
        assert client.body(job) == b"x"


# --- keys of ended jobs ---------------------------------------------------------------------------

WINDOW = 100
WITHIN = Now(START.mono, START.wall + (WINDOW - 1) * SECOND)
OVER = Now(START.mono, START.wall + WINDOW * SECOND)


def end(client: RigClient, key: bytes, body: bytes = b"x") -> int:
    """Put and delete a job whose key has a window."""
    job = put_unique(client, b"%b window=%d" % (key, WINDOW), body)
    client.do(b"delete %d" % job, b"DELETED")
    return job


def assert_keys_end(folder: Path, keys: dict[bytes, int]) -> None:
    with Rig(folder, file_size=FILE, now=WITHIN) as rig:
        assert rig.warnings() == []
        client = rig.client()
        assert {key: put_unique(client, key) for key in keys} == keys
        rig.tick()
        assert {key: put_unique(client, key) for key in keys} == keys
    with Rig(folder, file_size=FILE, now=OVER) as rig:
        client = rig.client()
        assert all(put_unique(client, key) > job for key, job in keys.items())


def test_ended_keys_in_memory() -> None:
    with Rig() as rig:
        client = rig.client()
        empty = rig.counters.job_bytes
        keys = {b"key-%d" % number: end(client, b"key-%d" % number) for number in range(300)}
        assert rig.counters.job_bytes > empty + 24 * len(keys)
        assert {key: put_unique(client, key) for key in keys} == keys
        assert rig.advance(WINDOW * SECOND - 1) <= rig.now.mono + 1
        assert put_unique(client, b"key-7") == keys[b"key-7"]
        rig.advance(1)
        assert rig.counters.job_bytes == empty
        assert put_unique(client, b"key-7") > keys[b"key-7"]


def test_an_ended_key_is_written_before_the_delete(folder: Path) -> None:
    with Rig(folder) as rig:
        job = end(rig.client(), b"k")
    attributes, full, ended, deleted = read_folder(folder)
    assert attributes.is_attribute_entry and attributes.delay == WINDOW
    assert full.id == deleted.id == job
    assert ended.is_ended_key and ended.attributes_of == job
    assert ended.ttr == START.wall // SECOND + WINDOW
    assert ended.unique_key == attributes.unique_key
    assert_keys_end(folder, {b"k": job})


def test_a_window_begins_at_the_end_of_the_job(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        job = put_unique(client, b"k window=%d" % WINDOW)
        rig.advance(10 * WINDOW * SECOND)
        assert put_unique(client, b"k") == job
        client.do(b"delete %d" % job, b"DELETED")
        rig.advance((WINDOW - 1) * SECOND)
        assert put_unique(client, b"k") == job
        rig.advance(SECOND)
        later = put_unique(client, b"k window=%d" % WINDOW)
        assert later > job
        client.do(b"delete %d" % later, b"DELETED")
        assert put_unique(client, b"k") == later


def test_ended_keys_pin_their_file_and_a_compaction_moves_them(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        keys = {b"key-%d" % number: end(client, b"key-%d" % number) for number in range(10)}
        for _ in range(300):
            client.do(b"delete %d" % client.put(b"c" * 300), b"DELETED")
        assert rig.counters.records_migrated >= len(keys)
        assert rig.counters.binlog_current - rig.counters.binlog_oldest <= 4
        rig.tick()
        live = rig.counters.binlog_live_bytes
        assert live >= len(keys) * SHORT
        rig.stop()
    with Rig(folder, file_size=FILE, now=WITHIN) as rig:
        rig.tick()
        assert rig.counters.binlog_live_bytes == live
    assert_keys_end(folder, keys)


def test_old_files_go_when_the_windows_are_over(folder: Path) -> None:
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for number in range(300):
            end(client, b"key-%d" % number)
        assert rig.counters.binlog_live_bytes >= 300 * SHORT
        rig.advance(WINDOW * SECOND)
        client.do(b"delete %d" % client.put(), b"DELETED")
        rig.tick()
        assert rig.counters.binlog_live_bytes == 0
        assert rig.counters.binlog_current == rig.counters.binlog_oldest


@pytest.mark.parametrize("change", [by_compact, by_repair, by_resharding])
def test_tools_keep_ended_keys(folder: Path, change: Callable[[Path], Path]) -> None:
    folder = folder / "jobs"
    folder.mkdir()
    with Rig(folder, file_size=FILE, now=read_clocks()) as rig:
        client = rig.client()
        client.put(b"other")
        keys = {b"key-%d" % number: end(client, b"key-%d" % number) for number in range(60)}
        rig.stop()
    with Rig(change(folder), file_size=FILE, now=read_clocks()) as rig:
        client = rig.client()
        assert {key: put_unique(client, key) for key in keys} == keys


def test_every_job_can_be_deleted_on_a_full_disk(folder: Path) -> None:
    """B1 counts the entries of ended keys."""
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        fault_injection.fail(Call.FILL, error=errno.ENOSPC, lasting=True)
        try:
            keys: dict[bytes, int] = {}
            for number in range(1000):
                client.do(b"with unique=%d window=%d" % (number, WINDOW), b"WITH")
                reply = client.ask(put_line(b"f" * (number * 7 % 60)))
                if reply == b"OUT_OF_MEMORY\r\n":
                    break
                keys[b"%d" % number] = int(reply.split()[1])
            assert keys
            for job in keys.values():
                client.do(b"delete %d" % job, b"DELETED")
            assert {key: put_unique(client, key) for key in keys} == keys
        finally:
            fault_injection.heal()
    assert_keys_end(folder, keys)


def test_keys_of_expired_jobs_are_free(folder: Path) -> None:
    """Also of those that are not deleted yet, because a tick deletes only some."""
    with Rig(folder) as rig:
        client = rig.client()
        jobs = []
        for number in range(1500):
            client.do(b"with unique=%d expires=1" % number, b"WITH")
            jobs.append(client.put())
        rig.advance(3 * SECOND)
        client.do(b"with unique=1499", b"WITH")
        assert client.put() == jobs[-1] + 1
        assert client.body(jobs[-1]) is None


def test_a_tick_is_due_when_a_window_is_over(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        client.do(b"with unique=k window=5", b"WITH")
        job = client.put()
        assert rig.tick() > rig.now.mono + 100 * SECOND
        client.do(b"delete %d" % job, b"DELETED")
        at = rig.tick()
        assert rig.now.mono + 4 * SECOND < at <= rig.now.mono + 6 * SECOND
        assert rig.advance(at - rig.now.mono) > rig.now.mono + 100 * SECOND
