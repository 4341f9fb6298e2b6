"""move between tubes of two workers, while one of them hangs or dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from processes import eventually
from servers import Server, ours
from shards import TUBES, TWO, client_of, kill_worker, worker_pids
from wire import Client, NoReplyError

pytestmark = pytest.mark.costly

STATES = ("ready", "delayed", "buried", "reserved")
JOBS = 400
KILLS = 4


def job_in(client: Client, state: str) -> int:
    job = client.put(state.encode(), delay=1000 if state == "delayed" else 0)
    if state == "reserved":
        assert client.ask(b"reserve-job %d\r\n" % job).startswith(b"RESERVED")
    if state == "buried":
        client.bury(job)
    return job


def test_a_job_is_as_before_if_the_other_worker_dies(tmp_path: Path) -> None:
    with ours(*TWO, "-b", tmp_path) as server:
        other = worker_pids(server)[1]
        clients = [client_of(server, 0) for _ in STATES]
        jobs = [job_in(client, state) for client, state in zip(clients, STATES, strict=True)]
        before = [client.job_stats(job) for client, job in zip(clients, jobs, strict=True)]
        os.kill(other, signal.SIGSTOP)
        for client, job in zip(clients, jobs, strict=True):
            client.send(b"move %d %b 0 0\r\n" % (job, TUBES[1]))
        observer = client_of(server, 0)
        for job in jobs:
            assert eventually(lambda job=job: observer.job_stats(job)["state"] == "reserved")
            assert observer.ask(b"delete %d\r\n" % job) == b"NOT_FOUND\r\n"
        assert all(client.silent() for client in clients)
        kill_worker(server, other)
        assert [client.reply() for client in clients] == [b"INTERNAL_ERROR\r\n"] * len(clients)
        after = [observer.job_stats(job) for job in jobs]
        changing = {"age", "time-left", "file"}
        for old, new in zip(before, after, strict=True):
            assert {k: v for k, v in old.items() if k not in changing} == {
                k: v for k, v in new.items() if k not in changing
            }
        assert clients[3].ask(b"release %d 0 0\r\n" % jobs[3]) == b"RELEASED\r\n"
        assert server.stop() == 0


def test_a_move_to_a_worker_that_is_down_is_refused(tmp_path: Path) -> None:
    with ours(*TWO, "-b", tmp_path) as server, client_of(server, 0) as client:
        job = client.put()
        kill_worker(server, worker_pids(server)[1])
        # It restarts after a tenth of a second.
        reply = client.ask(b"move %d %b 0 0\r\n" % (job, TUBES[1]))
        assert reply.startswith((b"INTERNAL_ERROR", b"MOVED"))
        if reply.startswith(b"INTERNAL_ERROR"):
            assert client.reserve() == job


def test_a_client_that_has_gone_keeps_no_job(tmp_path: Path) -> None:
    with ours(*TWO, "-b", tmp_path) as server:
        other = worker_pids(server)[1]
        with client_of(server, 0) as client:
            job = job_in(client, "reserved")
            os.kill(other, signal.SIGSTOP)
            client.send(b"move %d %b 0 0\r\n" % (job, TUBES[1]))
            assert client.silent()
        kill_worker(server, other)
        with client_of(server, 0) as client:
            assert eventually(lambda: client.job_stats(job)["state"] == "ready")
            assert client.reserve() == job


def mover(server: Server, jobs: list[int], at: int) -> None:
    """Move the jobs to the other worker's tube and back until the connection or a job is lost."""
    try:
        with client_of(server, at) as client:
            for turn in range(1000):
                target = TUBES[1 - at] if turn % 2 == 0 else TUBES[at]
                client.send(b"".join(b"move %d %b 0 0\r\n" % (job, target) for job in jobs))
                replies = client.replies(len(jobs))
                jobs = [int(reply.split()[1]) for reply in replies if reply.startswith(b"MOVED")]
    except (OSError, NoReplyError):
        pass


def bodies(server: Server) -> list[bytes]:
    found = []
    with server.connect() as client:
        for tube in TUBES:
            client.ask(b"watch %b\r\n" % tube)
        client.send(b"reserve-with-timeout 1\r\n")
        while (reply := client.reply()).startswith(b"RESERVED"):
            found.append(reply.split(b"\r\n")[1])
            client.send(b"reserve-with-timeout 1\r\n")
    return found


@pytest.mark.parametrize("killed", ["worker 0", "worker 1", "all"])
def test_kills_lose_no_job(tmp_path: Path, killed: str) -> None:
    with ours(*TWO, "-b", tmp_path) as server:
        homes = [[], []]  # type: list[list[int]]
        for at, jobs in enumerate(homes):
            with client_of(server, at) as client:
                jobs += [client.put(b"%d" % (at * JOBS + n), ttr=1000) for n in range(JOBS)]
        threads = [
            threading.Thread(target=mover, args=(server, jobs[part::2], at))
            for at, jobs in enumerate(homes)
            for part in range(2)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        if killed == "all":
            server.kill()
        else:
            kill_worker(server, worker_pids(server)[int(killed[-1])])
            time.sleep(0.5)
            server.stop()
        for thread in threads:
            thread.join()
    with ours("-b", tmp_path) as server:
        found = bodies(server)
        assert set(found) == {b"%d" % number for number in range(2 * JOBS)}
        # Only the moves that were running may have left both.
        assert len(found) - len(set(found)) <= 2 * JOBS
