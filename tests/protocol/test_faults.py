"""Faults of C beanstalkd that this server must not have, as clients and operators see them.

The numbers are those of the list in our documentation of its behaviour. Every test here fails
against C beanstalkd; tests/binlog covers the faults that only its files show.
"""

from __future__ import annotations

import resource
import struct
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from servers import Server, ours
from wire import Client, in_tube

NOT_FOUND = b"NOT_FOUND\r\n"
SYNC = "-f0"


@pytest.mark.costly
def test_1_a_stored_job_of_the_largest_size_survives_a_restart(tmp_path: Path) -> None:
    """C beanstalkd compares the size with its CR LF, and drops the rest of the file too."""
    bodies = [b"a" * 100, b"b" * 99, b"c" * 98, b"d"]
    args = ("-b", tmp_path, SYNC, "-z", "100")
    with ours(*args) as server, server.connect() as client:
        jobs = [client.put(body) for body in bodies]
    with ours(*args) as server, server.connect() as client:
        for job, body in zip(jobs, bodies, strict=True):
            found = b"FOUND %d %d\r\n%b\r\n" % (job, len(body), body)
            assert client.ask(b"peek %d\r\n" % job) == found


@pytest.mark.parametrize(
    "command", [b"peek", b"reserve-job", b"stats-job", b"delete", b"kick-job", b"touch"]
)
def test_2_a_job_whose_body_is_still_arriving_is_not_there(
    server: Server, tube: bytes, command: bytes
) -> None:
    """C beanstalkd shows old memory in place of the body."""
    with server.connect() as slow, server.connect() as client:
        in_tube(slow, tube)
        in_tube(client, tube)
        last = client.put(b"secret" * 100)
        client.ask(b"delete %d\r\n" % last)
        slow.send(b"put 0 0 100 600\r\nab")
        assert slow.silent()
        assert client.ask(b"%b %d\r\n" % (command, last + 1)) == NOT_FOUND
        assert client.ask(b"peek-ready\r\n") == NOT_FOUND
        slow.send(b"c" * 598 + b"\r\n")
        assert slow.reply() == b"INSERTED %d\r\n" % (last + 1)
        assert client.ask(b"peek-ready\r\n").startswith(b"FOUND %d 600\r\nabc" % (last + 1))


@pytest.mark.slow
def test_5_a_ttr_runs_out_also_after_deadline_soon_and_touch(server: Server, tube: bytes) -> None:
    """C beanstalkd has no timer left for the touched job."""
    with server.connect() as holder, server.connect() as waiter:
        in_tube(holder, tube)
        in_tube(waiter, tube)
        job = holder.put(ttr=2)
        assert holder.reserve() == job
        time.sleep(0.5)
        assert holder.ask(b"reserve-with-timeout 1\r\n") == b"DEADLINE_SOON\r\n"
        assert holder.ask(b"touch %d\r\n" % job) == b"TOUCHED\r\n"
        assert waiter.ask(b"reserve-with-timeout 4\r\n").startswith(b"RESERVED %d " % job)
        assert waiter.job_stats(job)["timeouts"] == "1"


def test_5_no_ttr_of_many_is_forgotten(server: Server, tube: bytes) -> None:
    """C beanstalkd never ends about every second one when the holders do nothing more."""
    with ExitStack() as stack:
        before = int(stack.enter_context(server.connect()).stats()["job-timeouts"])
        for _ in range(30):
            holder = in_tube(stack.enter_context(server.connect()), tube)
            assert holder.put(ttr=1) == holder.reserve()
        time.sleep(1.2)
        client = stack.enter_context(server.connect())
        assert int(client.stats()["job-timeouts"]) - before == 30
        assert client.stats(b"stats-tube " + tube)["current-jobs-ready"] == "30"


@pytest.mark.costly
def test_9_a_file_that_cannot_be_read_is_kept(tmp_path: Path) -> None:
    """C beanstalkd removes it later."""
    unreadable = struct.pack("<i", 99) + b"somebody may still need this" * 10
    (tmp_path / "binlog.1").write_bytes(unreadable)
    reported = ""
    for _ in range(2):
        with ours("-b", tmp_path, SYNC) as server, server.connect() as client:
            client.ask(b"delete %d\r\n" % client.put())
            reported += server.stderr()
    assert "binlog.1" in reported
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.read_bytes().startswith(unreadable) for path in kept), kept


@pytest.mark.slow
def test_10_running_out_of_descriptors_is_survived_quietly() -> None:
    """C beanstalkd spins in accept and floods stderr."""
    limit, seconds = 100, 1.0
    with ours(limits={resource.RLIMIT_NOFILE: limit}) as server, server.connect() as client:
        crowd = [server.connect() for _ in range(2 * limit)]
        quiet = server.cpu_s(), len(server.stderr())
        time.sleep(seconds)
        assert server.cpu_s() - quiet[0] < 0.5 * seconds
        assert len(server.stderr()) - quiet[1] < 2000
        assert client.put() == client.reserve()
        for member in crowd:
            member.close()
        with server.connect() as late:
            assert late.ask(b"list-tube-used\r\n") == b"USING default\r\n"


def make_buried(client: Client, count: int) -> list[int]:
    """Bury jobs in an order that is not that of their ids; return them in it."""
    jobs = [client.put() for _ in range(count)]
    order = [jobs[number] for number in (2, 0, 3, 1)]
    for job in order:
        client.bury(job, pri=job)
    return order


@pytest.mark.slow
def test_11_a_restart_changes_nothing_in_buried_jobs(tmp_path: Path) -> None:
    """C beanstalkd adds one to `buries` and mixes their order."""
    with ours("-b", tmp_path, SYNC) as server, server.connect() as client:
        order = make_buried(client, 4)
    for _ in range(2):
        with ours("-b", tmp_path, SYNC) as server, server.connect() as client:
            for job in order:
                stats = client.job_stats(job)
                assert (stats["state"], stats["buries"], stats["pri"]) == ("buried", "1", str(job))
            assert client.ask(b"peek-buried\r\n").startswith(b"FOUND %d " % order[0])
    with ours("-b", tmp_path, SYNC) as server, server.connect() as client:
        for job in order:
            assert client.ask(b"peek-buried\r\n").startswith(b"FOUND %d " % job)
            assert client.ask(b"kick 1\r\n") == b"KICKED 1\r\n"


@pytest.mark.costly
def test_11_a_release_without_delay_is_kept(tmp_path: Path) -> None:
    """C beanstalkd does not write it: the old priority, or even the old state, comes back."""
    with ours("-b", tmp_path, SYNC) as server, server.connect() as client:
        changed, dug_out = client.put(pri=5), client.put(pri=6)
        client.bury(dug_out, pri=7)
        for job, pri in ((changed, 50), (dug_out, 60)):
            client.ask(b"reserve-job %d\r\n" % job)
            assert client.ask(b"release %d %d 0\r\n" % (job, pri)) == b"RELEASED\r\n"
    with ours("-b", tmp_path, SYNC) as server, server.connect() as client:
        for job, pri in ((changed, 50), (dug_out, 60)):
            stats = client.job_stats(job)
            assert (stats["state"], stats["pri"], stats["releases"]) == ("ready", str(pri), "1")


@pytest.mark.slow
def test_12_ids_rise_over_restarts_also_when_the_queue_is_empty(tmp_path: Path) -> None:
    """C beanstalkd begins at 1 again after the second restart."""
    last = 0
    for jobs in (3, 0, 0, 1, 0, 2):
        with ours("-b", tmp_path, SYNC) as server, server.connect() as client:
            for _ in range(jobs):
                job = client.put()
                assert job > last
                last = job
                assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"


@pytest.mark.costly
def test_14_a_command_costs_the_same_whatever_the_number_of_tubes() -> None:
    """C beanstalkd walks all tubes for every command, here with ten times the work."""
    tubes, cycles = 10_000, 500
    with ours() as server, server.connect(timeout_s=30) as client:
        few = cost_of_cycles(server, client, cycles)
        for start in range(0, tubes, 100):
            names = range(start, start + 100)
            client.send(b"".join(b"use t%d\r\nput 0 99 99 0\r\n\r\n" % name for name in names))
            client.replies(200)
        client.ask(b"use default\r\n")
        many = cost_of_cycles(server, client, cycles)
        assert many < 4 * few, f"{few:.3f} s of processor time became {many:.3f} s"


def cost_of_cycles(server: Server, client: Client, count: int) -> float:
    """Processor time of putting, reserving and deleting so many jobs, one after another."""
    before = server.cpu_s()
    for _ in range(count):
        job = client.put()
        assert client.reserve() == job
        client.ask(b"delete %d\r\n" % job)
    return server.cpu_s() - before
