"""Deferred entries, which only a history needs: their contents, and that they delay no reply."""

from __future__ import annotations

import datetime
import errno
import select
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from binlog.disk import wait_until
from binlog.reader import Entry, files, read_folder
from cli.operator import CommandResult, Operator
from core import fault_injection
from core.fault_injection import Call
from core.rig import MILLISECOND, SECOND, Rig, RigClient, put_line
from core.test_model import ACTIONS, SESSIONS, line_of
from core.workers.played_worker import HERE, HOME, PUT, C, Other, step
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import eventually
from servers import reference

from beanstalkd_py.binlog.layout import Layout
from beanstalkd_py.binlog.reshard import reshard
from beanstalkd_py.core.clocks import Now, read_clocks

FILE = 4096
DEFERRAL = 500 * MILLISECOND
"""The delay after which a reserve without a later entry gets a deferred entry."""
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")
JOBREC = struct.Struct("<QIIqqiIqqIIIIIB3s")
"""The layout of Jobrec in a file, from the description of the format."""


def counters(entry: Entry) -> tuple[int, ...]:
    return tuple(getattr(entry, name) for name in COUNTERS)


def job_entries(folder: Path, job: int) -> list[tuple[str, int, tuple[int, ...]]]:
    """Return the entries of a job: state, deadline or time of the event, counters."""
    return [(e.state, e.deadline_at, counters(e)) for e in read_folder(folder) if e.id == job]


# --- contents ---


def test_all_events_are_recorded(folder: Path) -> None:
    """Test reserve, touch, TTR timeout and disconnect, with their times."""
    with Rig(folder, history=True) as rig:
        client, other = rig.client(), rig.client()
        put = rig.now.wall
        job = client.put(ttr=10)
        rig.advance(3 * SECOND)
        assert client.reserve() == job
        reserved = rig.now.wall
        rig.advance(4 * SECOND)
        client.do(b"touch %d" % job, b"TOUCHED")
        touched = rig.now.wall
        rig.advance(10 * SECOND)
        over = rig.now.wall
        rig.advance(SECOND)
        assert other.ask(b"reserve-job %d\r\n" % job).startswith(b"RESERVED")
        again = rig.now.wall
        rig.advance(SECOND)
        other.close()
        gone = rig.now.wall
        rig.advance(SECOND)
        client.do(b"delete %d" % job, b"DELETED")
        assert job_entries(folder, job) == [
            ("ready", put, (0, 0, 0, 0, 0)),
            ("reserved", reserved + 10 * SECOND, (1, 0, 0, 0, 0)),
            ("reserved", touched + 10 * SECOND, (1, 0, 0, 0, 0)),
            ("ready", over, (1, 1, 0, 0, 0)),
            ("reserved", again + 10 * SECOND, (2, 1, 0, 0, 0)),
            ("ready", gone, (2, 1, 0, 0, 0)),
            ("invalid", rig.now.wall, (2, 1, 0, 0, 0)),
        ]


def test_an_entry_soon_after_a_reserve_records_it(folder: Path) -> None:
    """Therefore most jobs need no more space than without a history."""
    with Rig(folder, history=True) as rig:
        client, other = rig.client(), rig.client()
        jobs = [client.put(ttr=100) for _ in range(5)]
        for job in jobs:
            assert client.reserve() == job
        reserved = rig.now.wall
        held = DEFERRAL - 1
        rig.advance(held)
        client.do(b"delete %d" % jobs[0], b"DELETED")
        client.do(b"release %d 0 0" % jobs[1], b"RELEASED")
        client.do(b"release %d 0 9" % jobs[2], b"RELEASED")
        client.do(b"bury %d 0" % jobs[3], b"BURIED")
        client.close()
        rig.advance(10 * SECOND)
        reported = [row for row in rows(folder) if row["id"] in jobs]
        assert [row["state"] for row in reported] == [
            *(["ready"] * 5),
            *("deleted", "ready", "delayed", "buried", "ready"),
        ]
        assert {row["reserved_at"] for row in reported[:5]} == {None}
        assert {nanoseconds(row["reserved_at"]) for row in reported[5:]} == {reserved}
        assert other.reserve() == jobs[1]


def test_a_touch_comes_after_the_reserve_and_once(folder: Path) -> None:
    with Rig(folder, history=True) as rig:
        client = rig.client()
        job = client.put(ttr=100)
        client.reserve()
        deadlines = [rig.now.wall + 100 * SECOND]
        for _ in range(3):
            rig.advance(MILLISECOND)
            client.do(b"touch %d" % job, b"TOUCHED")
            deadlines.append(rig.now.wall + 100 * SECOND)
        client.do(b"delete %d" % job, b"DELETED")
        assert [at for state, at, _ in job_entries(folder, job) if state == "reserved"] == deadlines
        assert rows(folder)[-1]["reserved_at"] is None


def test_a_copy_records_the_reserve_too(folder: Path) -> None:
    with Rig(folder, file_size=FILE, history=True) as rig:
        client = rig.client()
        job = client.put(ttr=100)
        client.reserve()
        while rig.counters.records_migrated == 0:
            client.do(b"delete %d" % client.put(b"x" * 900), b"DELETED")
        rig.advance(2 * SECOND)
    # Until then the file thread renames files.
    states = [state for state, _, _ in job_entries(folder, job)]
    assert states[-1] == "reserved" and states.count("reserved") == 1


def rows(folder: Path) -> list[dict[str, Any]]:
    return list(run("dump", "--json", folder).json_lines)


def nanoseconds(text: str) -> int:
    """Parse a time as dump shows it."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    moment = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.UTC)
    return int(moment.timestamp()) * SECOND + int(fraction)


def test_the_bytes_of_deferred_entries(folder: Path) -> None:
    with Rig(folder, history=True) as rig:
        client = rig.client()
        job = client.put(b"body", pri=7, ttr=9)
        client.reserve()
        reserved = rig.now.wall
        rig.advance(DEFERRAL)
        data = (folder / "binlog.1").read_bytes()
        at = 4 + 84 + len("default") + 6
        assert data[at : at + 4] == bytes(4), "a short entry has no name"
        fields = JOBREC.unpack_from(data, at + 4)
        assert fields[:2] == (job, 7)
        assert fields[3:9] == (0, 9 * SECOND, 6, 0, reserved, reserved + 9 * SECOND)
        assert fields[9:] == (1, 0, 0, 0, 0, 2, b"\xbd\x01\x00")
        assert read_folder(folder)[-1].checksum_is_right
        assert not any(data[at + 84 :])


def test_a_waiting_reserve_is_recorded_after_the_put(folder: Path) -> None:
    with Rig(folder, history=True) as rig:
        waiter, client = rig.client(), rig.client()
        waiter.send(b"reserve\r\n")
        job = client.put()
        assert waiter.read().startswith(b"RESERVED %d " % job)
        rig.advance(DEFERRAL)
        assert [state for state, _, _ in job_entries(folder, job)] == ["ready", "reserved"]
        client.put(delay=5)
        waiter.ask(b"release %d 3 0\r\nreserve\r\n" % job)
        rig.advance(DEFERRAL)
        assert [state for state, _, _ in job_entries(folder, job)[2:]] == ["ready", "reserved"]


def test_a_claim_is_recorded_when_it_is_taken(folder: Path) -> None:
    # Small files are read quickly: a claim that is not decided is put back after some time.
    other = Other(binlog_dir=str(folder), history=True, file_size=4096)
    other.send((C.FEED, HOME, PUT % HERE + b"\x02+%b\r\n" % HERE))
    other.send(step(C.WAIT, HOME, 1), step(C.CANCEL, HOME, 1), step(C.WAIT, HOME, 2))
    assert [state for state, _, _ in job_entries(folder, 1)] == ["ready"]
    other.send(step(C.TAKE, HOME, 2))

    def is_recorded() -> bool:
        other.run()  # writes nothing while a sync of the thread is not over
        return len(job_entries(folder, 1)) > 1

    assert eventually(is_recorded)
    states = [(state, counts) for state, _, counts in job_entries(folder, 1)]
    assert states[1:] == [("reserved", (1, 0, 0, 0, 0))]
    other.close()


def test_a_claim_of_a_client_that_disconnects_is_not_recorded(folder: Path) -> None:
    other = Other(binlog_dir=str(folder), history=True)
    other.send((C.FEED, HOME, PUT % HERE + b"\x02+%b\r\n" % HERE), step(C.WAIT, HOME, 1))
    other.send((C.CLOSE, HOME, b""))
    other.frames()
    time.sleep(2 * DEFERRAL / SECOND)
    other.send((C.FEED, HOME + 1, b"peek 1\r\n"))
    assert other.frames()[-1] == (C.OUTPUT, HOME + 1, b"FOUND 1 1\r\nx\r\n")
    assert len(job_entries(folder, 1)) == 1
    other.close()


def test_without_a_history_there_are_no_deferred_entries(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        job = client.put(ttr=2)
        client.reserve()
        client.ask(b"touch %d\r\n" % job)
        rig.advance(3 * SECOND)
        client.reserve()
        client.close()
        assert len(read_folder(folder)) == 1
        assert rig.counters.binlog_durable_file == 0


# --- no reply waits for them ---


def test_deferred_entries_are_synced_after_a_second(folder: Path) -> None:
    with Rig(folder, history=True) as rig:
        client = rig.client()
        job = client.put()
        syncs = rig.counters.syncs
        client.reserve()
        client.do(b"touch %d" % job, b"TOUCHED")
        rig.advance(999 * MILLISECOND)
        assert client.ask(b"stats-job %d\r\n" % job).startswith(b"OK ")
        assert rig.counters.syncs == syncs
        rig.advance(MILLISECOND)
        rig.core.commit(rig.now)  # waits for the sync thread
        assert rig.counters.syncs == syncs + 1
        rig.advance(3600 * SECOND // 1000)
        rig.core.commit(rig.now)
        assert rig.counters.syncs == syncs + 1, "nothing is left to sync"


def test_an_idle_server_syncs_deferred_entries(folder: Path) -> None:
    """The core's descriptor becomes readable after a second."""
    with Rig(folder, history=True, now=read_clocks()) as rig:
        client = rig.client()
        client.put()
        client.reserve()
        syncs = rig.counters.syncs
        while rig.counters.syncs == syncs:
            rig.core.run(MILLISECOND, linger=False)
            if rig.counters.syncs == syncs:
                assert select.select([rig.core.fd], [], [], 10)[0], (
                    "the descriptor did not become readable"
                )
        assert time.monotonic_ns() - rig.now.mono > DEFERRAL


def test_deferred_entries_hold_no_reply_even_while_they_are_synced(folder: Path) -> None:
    """Output that may leave before the end of the round waits for no sync."""
    with Rig(folder, history=True) as rig:
        client = rig.client()
        client.put()
        client.reserve()
        syncs = rig.counters.syncs
        rig.advance(DEFERRAL)
        rig.advance(SECOND)  # the sync is running until `settle`
        for command in (b"peek 1", b"stats-job 1", b"stats-tube default", b"delete 99"):
            rig.core.feed(client.session, command + b"\r\n", rig.now)
            assert client.read() != b"", command
        assert rig.counters.syncs == syncs
        rig.core.commit(rig.now)
        assert rig.counters.syncs == syncs + 1


def test_the_sync_of_a_put_includes_deferred_entries(folder: Path) -> None:
    with Rig(folder, history=True) as rig:
        client = rig.client()
        client.put()
        client.reserve()
        client.put()
        syncs = rig.counters.syncs
        rig.advance(10 * SECOND)
        rig.core.commit(rig.now)
        assert rig.counters.syncs == syncs


def test_with_f_ms_deferred_entries_cause_no_more_syncs(folder: Path) -> None:
    with Rig(folder, sync_interval_ns=60 * SECOND, history=True) as rig:
        client = rig.client()
        client.put(ttr=10_000)
        client.reserve()
        syncs = rig.counters.syncs
        for _ in range(10 * 60):
            rig.advance(SECOND)
            client.do(b"touch 1", b"TOUCHED")
        assert 9 <= rig.counters.syncs - syncs <= 10


@pytest.mark.costly
@settings(max_examples=25)
@given(
    steps=st.lists(st.tuples(st.integers(0, SESSIONS - 1), ACTIONS), min_size=50, max_size=150),
    interval=st.sampled_from([0, -1, SECOND]),
)
def test_replies_are_the_same_with_and_without_a_history(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, tuple[object, ...]]],
    interval: int,
) -> None:
    """Byte for byte, with files so small that they are compacted and renamed all the time.

    With -f MS the reply to a move waits for a sync, whose time depends on the entries before.
    """
    steps = [step for step in steps if interval <= 0 or step[1][0] != "move"]
    seen = []
    for history in (False, True):
        folder = tmp_path_factory.mktemp("binlog")
        with Rig(folder, file_size=FILE, sync_interval_ns=interval, history=history) as rig:
            seen.append(replies_to(rig, steps))
    assert seen[0] == seen[1]


def replies_to(rig: Rig, steps: list[tuple[int, tuple[object, ...]]]) -> list[bytes]:
    clients = [rig.client() for _ in range(SESSIONS)]
    replies = []
    for which, (name, *arguments) in steps:
        rig.advance(1)
        if name == "wait":
            assert isinstance(arguments[0], int)
            rig.advance(arguments[0] * SECOND)
        elif name == "reconnect":
            clients[which].close()
            clients[which] = rig.client()
        else:
            clients[which].send(line_of(str(name), arguments))
        replies += [client.read() for client in clients]
    for job in range(1, 13):
        stats = clients[0].ask(b"stats-job %d\r\n" % job)
        replies.append(b"".join(line for line in stats.splitlines() if b"file" not in line[:4]))
    return [reply.partition(b"\r\n")[2] if reply[:3] == b"OK " else reply for reply in replies]


# --- space ---


def test_without_space_deferred_entries_are_dropped_and_jobs_can_be_deleted(folder: Path) -> None:
    """Invariant B1 on a full disk: the remaining space is reserved for deletes."""
    with Rig(folder, file_size=FILE, history=True) as rig:
        client = rig.client()
        client.put()
        fault_injection.fail(Call.FILL, error=errno.ENOSPC, lasting=True)
        jobs = [1]
        while (reply := client.ask(put_line(b"x" * 100, ttr=1000))) != b"OUT_OF_MEMORY\r\n":
            jobs.append(int(reply.split()[1]))
        assert len(jobs) > 10
        for job in jobs:
            assert client.reserve() == job
            client.ask(b"touch %d\r\n" % job * 10)
        assert rig.counters.deferred_dropped > 0
        for job in jobs:
            client.do(b"delete %d" % job, b"DELETED")
        assert rig.counters.ready == rig.counters.reserved == 0


def test_a_full_file_delays_no_command(folder: Path) -> None:
    """They use the next file if it exists; no command waits for its creation."""
    with Rig(folder, file_size=FILE, history=True) as rig:
        client = rig.client()
        client.put(ttr=1000)
        client.reserve()
        touches = 0

        def third_file() -> bool:
            nonlocal touches
            touches += 1
            client.do(b"touch 1", b"TOUCHED")
            return int(rig.counters.binlog_current) > 2

        wait_until(third_file)
        missing = rig.counters.deferred_dropped
        written = rig.counters.records_written - rig.counters.records_migrated
        assert touches + 2 - missing <= written <= touches + 2 - missing + 2


def test_the_disk_does_not_fill_with_touches(folder: Path) -> None:
    """Touches count for compaction, so a job that is touched forever keeps only a few files."""
    with Rig(folder, file_size=FILE, sync_interval_ns=-1, history=True) as rig:
        client = rig.client()
        client.put(ttr=1000)
        client.reserve()
        for _ in range(3000):
            client.ask(b"touch 1\r\n")
        wait_until(lambda: len(files(folder)) <= 6)


# --- restart and tools ---


def work(client: RigClient, other: RigClient) -> dict[int, str]:
    """Make jobs in every state that deferred entries leave; return the states after a restart."""
    jobs = [client.put(b"job %d" % i, ttr=1000) for i in range(8)]
    for job in jobs[:5]:
        assert client.reserve() == job
    client.do(b"touch %d" % jobs[0], b"TOUCHED")
    client.do(b"release %d 0 500" % jobs[1], b"RELEASED")
    client.do(b"bury %d 0" % jobs[2], b"BURIED")
    client.do(b"delete %d" % jobs[3], b"DELETED")
    assert other.ask(b"reserve-job %d\r\n" % jobs[5]).startswith(b"RESERVED")
    client.rig.advance(DEFERRAL)
    other.close()
    states = dict.fromkeys(jobs, "ready") | {jobs[1]: "delayed", jobs[2]: "buried"}
    del states[jobs[3]]
    return states


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_restart_restores_every_state(folder: Path, end: str) -> None:
    with Rig(folder, history=True) as rig:
        states = work(rig.client(), rig.client())
        if end == "stopped":
            rig.stop()
        live = rig.counters.binlog_live_bytes
        now = rig.now
    with Rig(folder, history=True, now=now) as rig:
        client = rig.client()
        assert rig.warnings() == []
        assert {job: client.job(job)["state"] for job in states} == states
        assert client.job(1)["reserves"] == "1"
        assert client.job(6)["reserves"] == "1", "the job of the disconnected client"
        assert client.job(7)["reserves"] == "0"
        assert rig.counters.binlog_live_bytes == live, "B5: not equal to the count of a reader"


def run(*arguments: str | Path) -> CommandResult:
    """Run a command on folders, which must succeed."""
    reported = Operator("").try_("binlog", *map(str, arguments))
    assert reported.status == 0, reported.errors
    return reported


def states_in(folder: Path, now: Now) -> dict[int, str]:
    with Rig(folder, now=now) as rig:
        client = rig.client()
        found = {}
        for job in range(1, 20):
            if client.body(job) is not None:
                assert client.body(job) == b"job %d" % (job - 1)
                found[job] = client.job(job)["state"]
        assert rig.warnings() == []
    return found


def rewritten(folder: Path) -> Path:
    run("compact", folder)
    return folder


def divided(folder: Path) -> Path:
    assert reshard(folder, Layout(2), 1 << 20) > 0
    assert reshard(folder, Layout(1), 1 << 20) > 0
    return folder


@pytest.mark.parametrize("tool", [rewritten, divided])
def test_tools_keep_every_job(folder: Path, tool: Callable[[Path], Path]) -> None:
    now = read_clocks()
    with Rig(folder, history=True, now=now) as rig:
        states = work(rig.client(), rig.client())
        rig.stop()
    assert run("verify", "--json", folder).json["clean"]
    total = run("stats", "--json", folder).json["total"]
    assert total["jobs"] == len(states)
    assert total["live_bytes"] == rig.counters.binlog_live_bytes
    assert states_in(tool(folder), now) == states


def test_a_damaged_deferred_entry_affects_no_other_entry(folder: Path, tmp_path: Path) -> None:
    """The last entry records a disconnect; without it the job is reserved, and so ready."""
    now = read_clocks()
    with Rig(folder, history=True, now=now) as rig:
        states = work(rig.client(), rig.client())
        rig.stop()
    path = folder / "binlog.1"
    path.write_bytes(path.read_bytes()[:-20] + b"\xff" + path.read_bytes()[-19:])
    new = tmp_path / "new"
    reported = Operator("").try_("binlog", "repair", folder, "--output", new)
    assert reported.status == 0 and b"its checksum is wrong" in reported.out
    assert states_in(new, now) == states


def test_dump_shows_deferred_entries(folder: Path) -> None:
    with Rig(folder, history=True) as rig:
        work(rig.client(), rig.client())
        rig.stop()
    rows = run("dump", "--json", folder).json_lines
    first = [row for row in rows if row["id"] == 1]
    assert [row["state"] for row in first] == ["ready", "reserved", "reserved"]
    assert [row["reserves"] for row in first] == [0, 1, 1]
    assert first[1]["event_at"] == first[0]["created_at"]
    assert first[1]["tube"] == "default" and first[1]["kind"] == "short"
    assert all(row["checksum"] == "right" for row in rows)
    assert {row["file"] for row in first} == {"binlog.1"}


def test_c_beanstalkd_opens_the_folder_with_correct_jobs(folder: Path) -> None:
    with Rig(folder, history=True, now=read_clocks()) as rig:
        states = work(rig.client(), rig.client())
    assert any(entry.state == "reserved" for entry in read_folder(folder))
    with reference("-b", folder) as server, server.connect() as client:
        assert server.complaints() == ""
        for job in range(1, 10):
            reply = client.ask(b"peek %d\r\n" % job)
            if job not in states:
                assert reply == b"NOT_FOUND\r\n"
                continue
            assert reply.endswith(b"\r\njob %d\r\n" % (job - 1))
            stats = client.job_stats(job)
            assert stats["state"] == states[job]
            assert stats["reserves"] == ("1" if job <= 6 else "0")
