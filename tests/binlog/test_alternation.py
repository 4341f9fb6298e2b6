"""Serve one folder with C beanstalkd and beanstalkd_py alternately: no job is lost or changed.

The only accepted difference comes from starts of C beanstalkd: it adds 1 to `buries` of a buried
job and changes the order of buried jobs (fault 11).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from binlog.reader import files
from binlog.workload import Actor, replies_in
from servers import Server, ours, reference
from wire import Client

# Small enough for many files, large enough for the largest job.
FILE = 20_000
KEYS = ("state", "pri", "delay", "ttr", "reserves", "timeouts", "releases", "buries", "kicks")

Start = Callable[..., AbstractContextManager[Server]]
Jobs = dict[int, tuple[bytes, dict[str, str]]]


def work(client: Client, actor: Actor, steps: int) -> None:
    for _ in range(steps):
        client.send(actor.next())
        assert actor.pending is not None
        replies = client.replies(len(actor.pending.words))
        actor.take(replies_in(b"".join(replies)))


def look(client: Client, last: int) -> Jobs:
    """Return every job with the fields that a restart must keep."""
    jobs: Jobs = {}
    for number in range(1, last + 1):
        reply = client.ask(b"peek %d\r\n" % number)
        if reply != b"NOT_FOUND\r\n":
            stats = client.job_stats(number)
            shown = {key: stats[key] for key in KEYS}
            shown["tube"] = stats["tube"].strip('"')  # beanstalkd 1.12 does not quote it
            jobs[number] = (reply, shown)
    return jobs


def buried_order(client: Client, tube: bytes) -> list[int]:
    """Kick the buried jobs of a tube one by one, and return their order."""
    client.ask(b"use %b\r\n" % tube)
    order = []
    while (reply := client.ask(b"peek-buried\r\n")) != b"NOT_FOUND\r\n":
        order.append(int(reply.split()[1]))
        assert client.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
    return order


def check_same(found: Jobs, due: Jobs, by_c: bool) -> None:
    """C beanstalkd writes its addition to `buries` only with the job's next change."""
    assert found.keys() == due.keys()
    for number, (body, stats) in found.items():
        due_body, due_stats = due[number]
        added = int(due_stats["buries"]) - int(stats["buries"])
        assert added == 0 or (by_c and added == 1 and stats["state"] == "buried")
        assert (body, {**stats, "buries": due_stats["buries"]}) == (due_body, due_stats)


def expected_after(start: Start, jobs: Jobs) -> Jobs:
    """Return the jobs after a start: C beanstalkd buries the buried jobs once more."""
    if start is ours:
        return jobs
    return {
        number: (
            body,
            {**stats, "buries": str(int(stats["buries"]) + (stats["state"] == "buried"))},
        )
        for number, (body, stats) in jobs.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_three_times_in_alternation(tmp_path: Path, end: str) -> None:
    actor = Actor(f"alternation {end}", put_share=0.35)
    arguments = ("-b", tmp_path, "-f", "0", "-s", str(FILE))
    jobs: Jobs = {}
    written_by_c = False
    for start in (reference, ours) * 3:
        with start(*arguments) as server, server.connect() as client:
            last = max([*actor.known, *actor.gone], default=0)
            check_same(look(client, last + 1), expected_after(start, jobs), written_by_c)
            actor.plain_releases = start is ours
            work(client, actor, 300)
            jobs = look(client, max([*actor.known, *actor.gone]))
            assert jobs.keys() == actor.known.keys()
            for number, (reply, _) in jobs.items():
                assert reply.endswith(b"\r\n%b\r\n" % actor.known[number].body)
            if end == "killed":
                server.kill()
        written_by_c = start is reference
    assert len(files(tmp_path)) > 2


@pytest.mark.costly
def test_beanstalkd_py_keeps_the_order_of_buried_jobs(tmp_path: Path) -> None:
    """Also of those that C beanstalkd buried: their order is that of its entries."""
    order = []
    with reference("-b", tmp_path, "-f", "0") as server, server.connect() as client:
        for _ in range(12):
            client.put()
        for job in (7, 3, 9, 1):
            client.bury(job)
            order.append(job)
    for turn in range(3):
        with ours("-b", tmp_path) as server, server.connect() as client:
            for job in (10 + turn, 4 + turn):
                client.bury(job)
                order.append(job)
            buries = [client.job_stats(job)["buries"] for job in order]
            assert buries == ["1"] * len(order)
    with ours("-b", tmp_path) as server, server.connect() as client:
        assert buried_order(client, b"default") == order


@pytest.mark.costly
def test_ids_continue_in_both_directions(tmp_path: Path) -> None:
    """Each server continues after the highest id of the other."""
    last = 0
    for start in (reference, ours) * 3:
        with start("-b", tmp_path, "-f", "0") as server, server.connect() as client:
            job = client.put()
            assert job == last + 1
            last = job


def test_c_beanstalkd_reads_our_folder_without_warnings(tmp_path: Path) -> None:
    actor = Actor("quiet")
    arguments = ("-b", tmp_path, "-s", str(FILE))
    with ours(*arguments) as server, server.connect() as client:
        work(client, actor, 400)
        server.kill()
    with reference(*arguments) as server, server.connect() as client:
        assert look(client, max([*actor.known, *actor.gone])).keys() == actor.known.keys()
        assert server.complaints() == ""


@pytest.mark.slow
def test_entries_compacted_by_c_beanstalkd_are_valid(tmp_path: Path) -> None:
    """It copies our checksums and marks when it rewrites a job; recovery must not reject those."""
    bodies = {}
    with ours("-b", tmp_path, "-s", str(FILE)) as server, server.connect() as client:
        for number in range(20):
            body = b"body of %d" % number
            bodies[client.put(body)] = body
        for job in list(bodies)[::3]:
            client.bury(job, pri=5)
    with (
        reference("-b", tmp_path, "-s", str(FILE), "-f", "0") as server,
        server.connect() as client,
    ):
        for _ in range(1500):
            assert client.ask(b"delete %d\r\n" % client.put(b"c" * 300)) == b"DELETED\r\n"
        assert int(client.stats()["binlog-records-migrated"]) > 0
    with ours("-b", tmp_path, "-s", str(FILE)) as server, server.connect() as client:
        for job, body in bodies.items():
            assert client.ask(b"peek %d\r\n" % job).endswith(b"\r\n%b\r\n" % body)
        assert "unreadable" not in server.stderr()
