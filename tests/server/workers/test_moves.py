"""move between tubes of two workers, while one of them hangs or dies."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from processes import children, eventually
from servers import Server, ours
from shards import TUBES, TWO, client_of, connect_at, kill_worker, tubes_of, worker_pids
from wire import Client, NoReplyError, in_tube

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
        waiter = client_of(server, 0)
        waiter.send(b"wait 100 %d\r\n" % jobs[STATES.index("buried")])
        assert waiter.silent()
        kill_worker(server, other)
        assert waiter.reply().startswith(b"BURIED ")
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


@pytest.mark.parametrize(("policy", "state"), [("", "ready"), ("max-reserves = 1", "buried")])
def test_a_client_that_has_gone_keeps_no_job(tmp_path: Path, policy: str, state: str) -> None:
    """The job comes back as after any other end of its connection, which is at a third worker."""
    source, target, _ = (next(tubes_of(worker, 3)) for worker in range(3))
    with ours("--workers", "3", *policies(tmp_path, policy, source)) as server:
        other = children(server.pid)[1]
        with in_tube(connect_at(server, 2, 3), source) as client:
            job = job_in(client, "reserved")
            os.kill(other, signal.SIGSTOP)
            client.send(b"move %d %b 0 0\r\n" % (job, target))
            assert client.silent()
            # A reset ends the connection at once; after its end a client may still read replies.
            client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        time.sleep(0.1)
        kill_worker(server, other)
        with in_tube(connect_at(server, 2, 3), source) as client:
            assert eventually(lambda: client.job_stats(job)["state"] == state)


def policies(folder: Path, policy: str, tube: bytes = TUBES[0]) -> list[str]:
    """Return the arguments for this policy of the tube."""
    config = folder / "config.toml"
    config.write_text(f"[tube.{tube.decode()}]\n{policy}\n" if policy else "")
    return [f"--config={config}"]


def test_a_move_returns_no_token_that_it_did_not_take(tmp_path: Path) -> None:
    """A tube with a rate goes on at its rate."""
    with ours(*TWO, *policies(tmp_path, 'rate = "2/s"')) as server, client_of(server, 0) as client:
        jobs = [client.put() for _ in range(4)]
        assert client.reserve() == jobs[0]
        begun = time.monotonic()
        with client_of(server, 0) as waiter:
            waiter.send(b"reserve\r\n")
            assert client.ask(b"move %d %b 0 0\r\n" % (jobs[0], TUBES[1])).startswith(b"MOVED")
            assert waiter.reply() == b"RESERVED %d 1\r\nx\r\n" % jobs[1]
            assert 0.3 < time.monotonic() - begun < 3
            assert client.ask(b"move %d %b 0 0\r\n" % (jobs[2], TUBES[1])).startswith(b"MOVED")
            waiter.send(b"reserve\r\n")
            assert waiter.reply() == b"RESERVED %d 1\r\nx\r\n" % jobs[3]
            assert time.monotonic() - begun > 0.8


@pytest.mark.parametrize("state", ["buried", "delayed"])
def test_compaction_during_a_move_that_fails(tmp_path: Path, state: str) -> None:
    """It writes a job that is held, whose state is on disk again afterwards."""
    with ours(*TWO, "-b", tmp_path, "-s", "65536") as server:
        other = worker_pids(server)[1]
        with client_of(server, 0) as client, client_of(server, 0) as filler:
            job = job_in(client, state)
            file = client.job_stats(job)["file"]
            os.kill(other, signal.SIGSTOP)
            client.send(b"move %d %b 0 0\r\n" % (job, TUBES[1]))
            end = time.monotonic() + 20
            while filler.job_stats(job)["file"] == file:
                assert time.monotonic() < end
                for number in [filler.put(b"x" * 2000) for _ in range(50)]:
                    assert filler.ask(b"delete %d\r\n" % number) == b"DELETED\r\n"
            kill_worker(server, other)
            assert client.reply() == b"INTERNAL_ERROR\r\n"
            assert client.job_stats(job)["state"] == state
            server.kill()
    with ours("-b", tmp_path) as server, server.connect() as client:
        assert client.job_stats(job)["state"] == state


@pytest.mark.parametrize("target", range(2))
def test_a_move_waits_for_a_sync_of_the_new_job(tmp_path: Path, target: int) -> None:
    """Otherwise a power cut could keep the end of the job without the new one."""
    with (
        ours(*TWO, "-b", tmp_path, "-f", "2000") as server,
        client_of(server, 0) as client,
        client_of(server, target) as other,
    ):
        job = client.put()
        for _ in range(2):  # the second one is not synced before the interval
            other.put()
            time.sleep(0.1)
        begun = time.monotonic()
        client.send(b"move %d %b 0 0\r\n" % (job, TUBES[target]))
        assert client.reply(10).startswith(b"MOVED")
        assert time.monotonic() - begun > 0.5


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
