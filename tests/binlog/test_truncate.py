"""truncate on disk: after a kill, a restart, and in beanstalkd."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from listing import all_jobs
from servers import keeping_history, ours, reference
from wire import Client, wait_for

from beanstalkd_py.binlog.dump import dump
from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.core.binlog_reader import Selection

MANY = 20_000
ARGUMENTS = ("-f", "0", "-s", "65536")


def put_many(client: Client, count: int) -> list[int]:
    """Put ready, delayed and buried jobs; return the ids."""
    chance = random.Random(count)
    jobs: list[int] = []
    for _ in range(0, count, 500):
        lines = (
            b"put %d %d 100 1\r\nx\r\n" % (chance.randrange(3), chance.choice((0, 0, 5000)))
            for _ in range(500)
        )
        client.send(b"".join(lines))
        jobs += [int(reply.split()[1]) for reply in client.replies(500)]
    for job in chance.sample(jobs, 50):
        client.bury(job)
    return jobs


def found(client: Client, last: int) -> set[int]:
    """Return the ids of the jobs there are, on any server."""
    client.send(b"".join(b"stats-job %d\r\n" % job for job in range(1, last + 1)))
    replies = client.replies(last)
    return {job for job, reply in enumerate(replies, 1) if reply.startswith(b"OK")}


@pytest.mark.costly
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_kill_after_the_reply_loses_nothing(tmp_path: Path, workers: str) -> None:
    """The second start has one worker, whose folder beanstalkd opens."""
    arguments = ("-b", tmp_path, "--workers", workers, *ARGUMENTS)
    with ours(*arguments) as server, server.connect() as client, server.connect() as holder:
        client.ask(b"use mails\r\n")
        jobs = put_many(client, 2000)
        held = jobs[5::500]
        for job in held:
            assert holder.ask(b"reserve-job %d\r\n" % job).startswith(b"RESERVED")
        reply = holder.ask(b"truncate mails\r\n")
        assert reply == b"TRUNCATED %d\r\n" % (len(jobs) - len(held))
        left = {*held, client.put(), client.put(delay=100)}
        server.kill()
    with ours("-b", tmp_path, *ARGUMENTS) as server, server.connect() as client:
        assert {int(row["id"]) for row in all_jobs(client, b"mails")} == left
        assert found(client, max(left)) == left
        server.kill()
    with reference("-b", tmp_path) as server, server.connect() as client:
        assert found(client, max(left)) == left
        assert server.complaints() == ""


@pytest.mark.costly
@pytest.mark.parametrize("turn", range(3))
def test_a_kill_during_a_truncate_leaves_jobs_of_its_time_or_later(
    tmp_path: Path, turn: int
) -> None:
    arguments = ("-b", tmp_path, *ARGUMENTS)
    with ours(*arguments) as server, server.connect() as client, server.connect() as other:
        jobs = put_many(client, MANY)
        held = jobs[7]
        assert other.ask(b"reserve-job %d\r\n" % held).startswith(b"RESERVED")
        client.send(b"truncate default\r\n")
        wait_for(other, b"default", "current-jobs-ready", 0)
        later = [other.put() for _ in range(1 + turn)]
        done = client.ready_replies()
        server.kill()
    with ours("-b", tmp_path, *ARGUMENTS) as server, server.connect() as client:
        left = {int(row["id"]) for row in all_jobs(client, b"default")}
        assert {held, *later} <= left
        assert left <= {*jobs, *later}
        if done:
            assert left == {held, *later}
        server.kill()
    with reference("-b", tmp_path) as server, server.connect() as client:
        assert found(client, max(later)) == left


def test_the_entries_record_that_jobs_were_truncated(tmp_path: Path) -> None:
    with keeping_history("-b", tmp_path) as server, server.connect() as client:
        jobs = [client.put() for _ in range(4)]
        assert client.ask(b"delete %d\r\n" % jobs.pop(1)) == b"DELETED\r\n"
        assert client.ask(b"truncate default\r\n") == b"TRUNCATED 3\r\n"
        server.kill()
    parts: list[bytes] = []
    dump(inspect_folder(tmp_path), Selection(as_json=True), lambda text: parts.append(bytes(text)))
    rows = [json.loads(line) for line in b"".join(parts).splitlines()]
    ended = {row["id"]: row["ended"] for row in rows if row.get("ended")}
    assert ended == {2: "deleted", **dict.fromkeys(jobs, "truncated")}
