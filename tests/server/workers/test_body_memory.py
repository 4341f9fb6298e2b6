"""`--body-memory` from outside: with several workers, after restarts and reshardings."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from processes import eventually
from server.metrics.scrape import watched
from servers import ours
from shards import TUBES, TWO, WORKERS, client_of, kill_worker, worker_pids
from wire import Client

JOBS = 600
LIMIT = 40_000
NAMES = [b"tube-%d" % number for number in range(6)]
OPTIONS = (f"--body-memory={LIMIT}", "-s", "65536")


def body_of(job: int) -> bytes:
    return random.Random(job).randbytes(400)


def put_all(client: Client) -> dict[bytes, list[int]]:
    """Put all jobs, and return those of each tube."""
    jobs: dict[bytes, list[int]] = {tube: [] for tube in NAMES}
    for job in range(1, JOBS + 1):
        tube = NAMES[job % len(NAMES)]
        client.ask(b"use %b\r\n" % tube)
        assert client.put(body_of(job)) == job
        jobs[tube].append(job)
    return jobs


def take(client: Client, tube: bytes, jobs: list[int]) -> None:
    client.ask(b"watch %b\r\n" % tube)
    for job in jobs:
        assert client.ask(b"reserve\r\n") == b"RESERVED %d 400\r\n%b\r\n" % (job, body_of(job))
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    client.ask(b"ignore %b\r\n" % tube)


def is_found(client: Client, job: int) -> bool:
    return client.ask(b"peek %d\r\n" % job).startswith(b"FOUND ")


@pytest.mark.slow
def test_two_workers_restarts_and_resharding(tmp_path: Path) -> None:
    with watched("-b", tmp_path, *OPTIONS, *TWO) as server, server.server.connect() as client:
        jobs = put_all(client)
        metrics = server.scrape()
        assert metrics.sum("beanstalkd_body_memory_limit_bytes") == LIMIT
        for worker in "01":
            memory = metrics.sum("beanstalkd_body_memory_bytes", worker=worker)
            assert LIMIT / 4 < memory <= LIMIT / 2
        take(client, NAMES[0], jobs.pop(NAMES[0]))
        metrics = server.scrape()
        read = metrics.sum("beanstalkd_bodies_read_total")
        assert read > 50 and metrics.sum("beanstalkd_bodies_awaited_total") < read
        kill_worker(server.server, worker_pids(server.server)[0])
        with server.server.connect() as other:
            take(other, NAMES[1], jobs.pop(NAMES[1]))
            # Commands for a worker that restarts get INTERNAL_ERROR.
            left = [job for job in range(1, JOBS + 1) if job % len(NAMES) > 1]
            assert eventually(lambda: all(is_found(other, job) for job in left[: len(NAMES)]))
            for job in left:
                assert other.ask(b"peek %d\r\n" % job).endswith(body_of(job) + b"\r\n")
        assert server.scrape().sum("beanstalkd_body_memory_bytes") <= LIMIT
        assert server.scrape().sum("beanstalkd_bodies_unreadable_total") == 0
    for tube, workers in zip(list(jobs), ("3", "1", "2"), strict=False):
        options = ("-b", tmp_path, *OPTIONS, "--workers", workers)
        with watched(*options) as server, server.server.connect() as client:
            assert LIMIT / 4 < server.scrape().sum("beanstalkd_body_memory_bytes") <= LIMIT
            take(client, tube, jobs.pop(tube))
    with watched("-b", tmp_path, "--workers", "2") as server, server.server.connect() as client:
        for tube, left in jobs.items():
            take(client, tube, left)


@pytest.mark.costly
def test_a_damaged_job_at_home_does_not_hide_one_of_another_worker(tmp_path: Path) -> None:
    with ours("-b", tmp_path, "--body-memory=2", *TWO) as server:
        for home in range(WORKERS):
            with client_of(server, home) as client, client_of(server, 1 - home) as other:
                first, damaged = client.put(b"first"), client.put(b"damaged")
                good = other.put(b"good")
                flip_body(tmp_path / f"shard-00{home}", b"damaged")
                client.ask(b"watch %b\r\n" % TUBES[1 - home])
                assert [client.reserve(), client.reserve()] == [first, good]
                assert client.job_stats(damaged)["state"] == "buried"
                for job in (first, good):
                    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"


def flip_body(folder: Path, body: bytes) -> None:
    (path,) = (path for path in folder.glob("binlog.*") if body in path.read_bytes())
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(body))
        file.write(b"D")
