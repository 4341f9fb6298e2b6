"""The last entry of a job records its end: deleted by a client, truncated, or by a policy."""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from typing import Any

import pytest
from binlog.disk import wait_until
from binlog.reader import read_folder
from cli.operator import Operator
from core import fault_injection
from core.fault_injection import Call
from core.rig import SECOND, Now, Rig, RigClient, put_line
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import Server, ours, reference

from beanstalkd_py import errors
from beanstalkd_py.control.client import connect
from beanstalkd_py.core.step_results import FREE_STATES, StepOutcome
from beanstalkd_py.core.tube_policy import DELETE, MOVE, TubePolicy

AT_ENDED = 36
ALL = tuple(FREE_STATES)


def ended(folder: Path) -> dict[int, int]:
    """Return the value in the unused bytes of each job's Invalid entry."""
    found = {}
    for entry in read_folder(folder):
        (value,) = struct.unpack_from("<I", entry.raw, 4 + len(entry.tube or b"") + AT_ENDED)
        if entry.state == "invalid":
            found[entry.id] = value
        else:
            assert value == 0, "the bytes are used only in Invalid entries"
    return found


def shown(folder: Path) -> dict[int, str | None]:
    """Return the end of each job as `dump` shows it."""
    rows = Operator("").do("binlog", "dump", "--json", folder).json_lines
    return {row["id"]: row["ended"] for row in rows if not row["length_of"]}


def empty(rig: Rig, tube: bytes, states: tuple[str, ...] = ALL, most: int = 1000) -> int:
    """Truncate the tube as the server does, with a round after each step; return the job count."""
    removed = generation = 0
    while True:
        step = rig.core.truncate(tube, states, most, generation, rig.now)
        removed, generation = removed + step.removed, step.generation
        assert not step.full
        if step.outcome == StepOutcome.DONE:
            return removed
        if step.outcome == StepOutcome.WAIT:
            most = 0
        rig.settle()


def jobs_of(client: RigClient, tube: bytes) -> dict[str, list[int]]:
    """Put two jobs in each state into the tube."""
    client.use(tube)
    jobs = {state: [client.put(b"%d" % i) for i in range(2)] for state in ("buried", "reserved")}
    for job in jobs["buried"]:
        client.bury(job)
    assert [client.reserve() for _ in range(2)] == jobs["reserved"]
    jobs["delayed"] = [client.put(delay=100) for _ in range(2)]
    jobs["ready"] = [client.put(pri=i) for i in range(2)]
    return jobs


def test_the_last_entry_records_the_end(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        jobs = [client.put() for _ in range(3)]
        client.do(b"delete %d" % jobs[0], b"DELETED")
        assert empty(rig, b"default") == 2
        assert ended(folder) == {jobs[0]: 0, jobs[1]: 1 << 31, jobs[2]: 1 << 31}
        assert all(entry.checksum_is_right for entry in read_folder(folder))
        last = client.put()
        rig.stop()
    assert shown(folder) == {1: "deleted", 2: "truncated", 3: "truncated", last: None}
    with Rig(folder) as rig:
        assert [rig.client().body(job) for job in jobs] == [None] * 3
        assert rig.client().body(last) == b"x"


POLICIES = [
    TubePolicy("old", expires=10),
    TubePolicy("failing", max_reserves=1, then=MOVE + "dead"),
    TubePolicy("hopeless", max_reserves=1, then=DELETE),
]


def last_rows(folder: Path) -> dict[int, Any]:
    """Return the last entry of each ended job as `dump` shows it."""
    rows = Operator("").do("binlog", "dump", "--json", folder).json_lines
    return {row["id"]: row for row in rows if row["ended"] and row["ttr_s"]}


BY_POLICY = {b"old": "expired", b"failing": "dead-lettered", b"hopeless": "discarded"}


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("held_ns", [0, 300_000_000, 3 * SECOND])
def test_the_last_entry_records_which_policy_ended_a_job(
    folder: Path, history: bool, held_ns: int
) -> None:
    """And the time of a reserve that no other entry has, if it was up to half a second ago."""
    ends = {}
    with Rig(folder, history=history) as rig:
        rig.core.set_policies(POLICIES, rig.now)
        client = rig.client()
        for tube, end in BY_POLICY.items():
            client.use(tube)
            job = client.put()
            ends[job] = end
            client.ask(b"reserve-job %d\r\n" % job)
            if end == "expired":
                rig.advance(10 * SECOND)
            rig.advance(held_ns)
            client.do(b"release %d 0 0" % job, b"RELEASED")
        client.use(b"old")
        waiting = client.put()
        rig.advance(11 * SECOND)
        assert client.body(waiting) is None
        ends[waiting] = "expired"
    last = last_rows(folder)
    assert {job: row["ended"] for job, row in last.items()} == ends
    with_reserve = {row["ended"] for row in last.values() if row["reserved_at"]}
    is_short = history and held_ns < SECOND
    assert with_reserve == ({"dead-lettered", "discarded"} if is_short else set())
    assert all(entry.checksum_is_right for entry in read_folder(folder))
    with Rig(folder) as rig:
        assert [rig.client().body(job) for job in ends] == [None] * 4
        assert rig.counters.ready == 1, "the dead letter"


@pytest.mark.parametrize("history", [False, True])
def test_the_last_entry_records_a_move(folder: Path, history: bool) -> None:
    """The reserve before it has an entry of its own."""
    with Rig(folder, history=history) as rig:
        client = rig.client()
        jobs = [client.put(), client.put()]
        assert client.reserve() == jobs[0]
        rig.advance(SECOND // 10)
        for job in jobs:
            client.do(b"move %d other 0 0" % job, b"MOVED %d" % (job + 2))
    assert {job: ended(folder)[job] for job in jobs} == dict.fromkeys(jobs, 1 << 31 | 1)
    assert {job: end for job, end in shown(folder).items() if end} == dict.fromkeys(jobs, "moved")
    entries = [entry for entry in read_folder(folder) if entry.id == jobs[0]]
    assert [entry.state for entry in entries][1:-1] == ["reserved"] * history
    assert all(entry.checksum_is_right for entry in entries)
    with reference("-b", folder) as server, server.connect() as client_of_c:
        assert server.complaints() == ""
        found = [client_of_c.ask(b"peek %d\r\n" % job) for job in range(1, 5)]
        assert found == [b"NOT_FOUND\r\n"] * 2 + [b"FOUND %d 1\r\nx\r\n" % n for n in (3, 4)]


def test_a_reserve_that_does_not_fit_into_the_last_entry_is_left_out(folder: Path) -> None:
    """If the round that should have recorded it is late."""
    with Rig(folder, history=True) as rig:
        rig.core.set_policies(POLICIES, rig.now)
        client = rig.client()
        ages = (500_000_000, (1 << 29) - 2, (1 << 29) - 1, SECOND)
        for age in ages:
            client.use(b"hopeless")
            job = client.put()
            client.ask(b"reserve-job %d\r\n" % job)
            rig.now = Now(rig.now.mono + age, rig.now.wall + age)
            client.do(b"release %d 0 0" % job, b"RELEASED")
    last = last_rows(folder)
    assert [row["ended"] for row in last.values()] == ["discarded"] * len(ages)
    assert [bool(row["reserved_at"]) for row in last.values()] == [True, True, False, False]


def test_jobs_deleted_by_c_beanstalkd_count_as_deleted(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        jobs = [client.put() for _ in range(3)]
        empty(rig, b"default", ("ready",), most=1)
        for _ in range(2):
            client.put()
        rig.stop()
    (folder / "binlog.2").unlink()  # C beanstalkd compacts folders with three files
    with reference("-b", folder) as server, server.connect() as client_of_c:
        assert server.complaints() == ""
        assert all(client_of_c.ask(b"peek %d\r\n" % job) == b"NOT_FOUND\r\n" for job in jobs)
        assert client_of_c.ask(b"delete 4\r\n") == b"DELETED\r\n"
        ends = {job: end for job, end in shown(folder).items() if end}
        assert ends == {1: "truncated", 2: "truncated", 3: "truncated", 4: "deleted"}


@pytest.mark.parametrize(
    "states", [("ready",), ("delayed",), ("buried",), ("ready", "buried"), ALL]
)
def test_only_the_given_states_and_tube_are_truncated(states: tuple[str, ...]) -> None:
    with Rig() as rig:
        client = rig.client()
        jobs, others = jobs_of(client, b"this"), jobs_of(client, b"other")
        before = client.stats(b"stats-tube this")
        assert empty(rig, b"this", states) == 2 * len(states)
        for state, ids in jobs.items():
            for job in ids:
                assert (client.body(job) is None) == (state in states)
        assert all(client.body(job) is not None for ids in others.values() for job in ids)
        stats = client.stats(b"stats-tube this")
        for state in jobs:
            assert stats[f"current-jobs-{state}"] == ("0" if state in states else "2")
            assert getattr(rig.counters, state) == (2 if state in states else 4)
        assert stats["cmd-delete"] == before["cmd-delete"] == "0", "no client sent a delete"
        assert rig.counters.cmd[7] == 0
        assert empty(rig, b"no-such-tube") == 0


@settings(max_examples=15)
@given(counts=st.tuples(*[st.integers(0, 9)] * 3), most=st.integers(1, 7))
def test_steps_of_any_size_remove_all_jobs(counts: tuple[int, int, int], most: int) -> None:
    with Rig() as rig:
        client = rig.client()
        client.use(b"t")
        for state, count in zip(ALL, counts, strict=True):
            for i in range(count):
                job = client.put(pri=i % 3, delay=5 if state == "delayed" else 0)
                if state == "buried":
                    client.bury(job)
        other = rig.client()
        other.send(b"use t\r\n")
        client.close()
        bytes_before = rig.counters.job_bytes
        assert empty(rig, b"t", ALL, most) == sum(counts)
        assert rig.counters.job_bytes == 0 <= bytes_before
        assert rig.counters.urgent == rig.counters.ready == 0
        other.close()
        assert rig.counters.tubes == 1


def test_truncate_waits_for_its_own_sync_only(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        for _ in range(5):
            client.put()
        step = rig.core.truncate(b"default", ALL, 3, 0, rig.now)
        assert (step.outcome, step.removed) == (StepOutcome.MORE, 3)
        step = rig.core.truncate(b"default", ALL, 3, step.generation, rig.now)
        assert (step.outcome, step.removed) == (StepOutcome.WAIT, 2)
        rig.settle()
        client.put()
        step = rig.core.truncate(b"default", ALL, 0, step.generation, rig.now)
        assert (step.outcome, step.removed) == (StepOutcome.DONE, 0)
        assert rig.counters.ready == 1
    with Rig(folder, sync_interval_ns=SECOND) as rig:
        step = rig.core.truncate(b"default", ALL, 9, 0, rig.now)
        assert (step.outcome, step.removed) == (StepOutcome.DONE, 1), (
            "with -f MS truncate must not wait"
        )


def test_a_job_reserved_by_a_client_is_kept(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        client.put()
        assert client.reserve() == 1
        assert empty(rig, b"default") == 0
        client.do(b"release 1 0 0", b"RELEASED")
        assert empty(rig, b"default") == 1
        client.do(b"delete 1", b"NOT_FOUND")


def test_on_a_full_disk_everything_can_be_truncated(folder: Path) -> None:
    """Invariant B1: space for these entries is kept, as for deletes by clients."""
    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        fault_injection.fail(Call.FILL, error=errno.ENOSPC, lasting=True)
        count = 0
        while client.ask(put_line(b"x" * 50)) != b"OUT_OF_MEMORY\r\n":
            count += 1
        assert count > 10
        assert empty(rig, b"default", most=7) == count
        assert rig.counters.ready == 0


# --- server and command ---


@pytest.mark.parametrize("workers", [1, 3])
def test_truncate_by_the_control_socket(tmp_path: Path, workers: int) -> None:
    with ours("-b", tmp_path, "--workers", str(workers)) as server, server.connect() as client:
        tubes = [f"tube-{number}" for number in range(6)]
        for tube in tubes:
            client.ask(b"use %b\r\n" % tube.encode())
            for _ in range(3):
                client.put()
        with connect(f"127.0.0.1:{server.port}") as control:
            for tube in tubes[:-1]:
                done = control.ask("truncate", tube=tube, states=["ready"])
                assert done == {"deleted": 3}
        stats = client.stats()
        assert (stats["current-jobs-ready"], stats["cmd-delete"]) == ("3", "0")
        assert client.ask(b"delete %d\r\n" % (3 * len(tubes))) == b"DELETED\r\n"
        server.kill()  # acknowledged truncates are on disk
    ends = [end for end in shown(tmp_path).values() if end]
    assert sorted(ends) == ["deleted"] + ["truncated"] * 15


def test_many_jobs_in_pieces(tmp_path: Path) -> None:
    with ours("-b", tmp_path) as server, server.connect() as client:
        count = 4321
        client.send(b"put 0 0 9 1\r\nx\r\n" * count)
        client.replies(count)
        with connect(f"127.0.0.1:{server.port}") as control:
            assert control.ask("truncate", tube="default", states=list(ALL)) == {"deleted": count}
        assert client.stats()["current-jobs-ready"] == "0"


def test_invalid_requests_are_rejected(tmp_path: Path) -> None:
    with ours() as server, connect(f"127.0.0.1:{server.port}") as control:
        for request in (
            {"tube": "default", "states": ["reserved"]},
            {"tube": b"default", "states": ["ready"]},
            {"tube": "default"},
            {"states": ["ready"]},
            {"tube": "default", "states": []},
            {"tube": "default", "states": [["ready"]]},
            {"tube": "default", "states": [{}, 1, None]},
            {"tube": "default", "states": {"ready": 1}},
            {"tube": "default", "states": "ready"},
            {"tube": ["default"], "states": ["ready"]},
        ):
            with pytest.raises(errors.ControlError, match="give a tube and states"):
                control.ask("truncate", **request)


def fill(server: Server) -> Operator:
    with server.connect() as client:
        for _ in range(3):
            client.put()
    return Operator(f"127.0.0.1:{server.port}")


def test_the_command_uses_the_server_or_falls_back_to_the_protocol(tmp_path: Path) -> None:
    for start, how in ((ours, "truncated"), (reference, "deleted")):
        folder = tmp_path / how
        folder.mkdir()
        with start("-b", folder, "-f", "0") as server:
            reported = fill(server).do("truncate", "--yes", "default")
            assert reported.lines == ["deleted 3 jobs of tube default"]
            ends = shown(folder)
            assert ends == dict.fromkeys((1, 2, 3), how)


def test_without_a_control_socket_the_command_uses_the_protocol(tmp_path: Path) -> None:
    with ours("-b", tmp_path, "--control", "none") as server:
        fill(server).do("truncate", "--yes", "default")
        wait_until(lambda: shown(tmp_path) == dict.fromkeys((1, 2, 3), "deleted"))
