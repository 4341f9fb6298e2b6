"""`cluster restore`: the folder of an earlier time, compared with what clients knew then."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from replication.servers.client_log import drain
from replication.servers.nats_cluster import (
    NatsCluster,
    ReplicatedServer,
    answers,
    replicated_servers,
    single_nats,
)
from servers import ours
from wire import Client

from beanstalkd_py.replication.log import EPOCH, Log, LogOptions
from beanstalkd_py.replication.target import parse_target
from beanstalkd_py.server.replicator.process import REPORT_S

LIVE = 30
"""Jobs in several files of 4096 bytes, so that older files stay for a while."""
COPIES = ("--replicate-copies", "1")
EARLIEST = re.compile(r"the earliest possible time is (\S+)Z\n")


@pytest.fixture(scope="module")
def nats(memory: Path) -> Iterator[NatsCluster]:
    with single_nats(memory) as cluster:
        yield cluster


def now() -> datetime:
    """Return a time after everything so far, and before everything later."""
    moment = datetime.now(UTC)
    time.sleep(0.001)
    return moment


def restore(target: str, folder: Path, at: str) -> tuple[int, str]:
    """Return the exit status and the messages of the command."""
    command = [sys.executable, "-m", "beanstalkd_py", "cluster", "restore", target]
    done = subprocess.run(
        [*command, "-b", str(folder), "--at", at],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert not done.stdout
    return done.returncode, done.stderr


def jobs_of(folder: Path) -> set[bytes]:
    """Return the bodies of the jobs of a plain server on the folder."""
    with ours("-b", str(folder)) as server:
        return set(drain(server.port))


class Jobs:
    """Puts and deletes jobs in the tubes of `drain`, and knows which are left."""

    def __init__(self) -> None:
        self.left: dict[bytes, int] = {}
        self._dice = random.Random("restore")
        self._count = 0

    def put(self, client: Client, size: int = 0) -> None:
        self._count += 1
        tube = self._dice.choice([b"one", b"two", b"three", b"four"])
        body = b"%d " % self._count + b"x" * size
        client.ask(b"use %b\r\n" % tube)
        self.left[body] = client.put(body)

    def delete(self, client: Client) -> None:
        body = self._dice.choice(sorted(self.left))
        assert client.ask(b"delete %d\r\n" % self.left.pop(body)) == b"DELETED\r\n"


def first_folder(memory: Path, name: str) -> Path:
    """Create the folder of the first of `replicated_servers`."""
    folder = memory / f"{name}-0"
    folder.mkdir()
    return folder


async def first_stored(target: str) -> datetime:
    log = await Log.connect(parse_target(target), LogOptions())
    try:
        ends = await log.ends(0)
        assert ends.last > ends.first
        return EPOCH + timedelta(microseconds=await log.stored_ns(0, ends.first) // 1000)
    finally:
        await log.close()


def restarted(server: ReplicatedServer) -> None:
    server.stop()
    server.start()
    answers(server.port, b"stats\r\n")


@pytest.mark.costly
@pytest.mark.parametrize("workers", [1, 2])
def test_the_jobs_of_a_time_are_restored(
    nats: NatsCluster, memory: Path, tmp_path: Path, workers: int
) -> None:
    """Deleted ones are back, later ones are missing; also after a change of the primary."""
    name = f"times-{workers}"
    moments = []
    options = (*COPIES, "--workers", str(workers))
    with replicated_servers(nats, name, memory, 1, *options) as (server,):
        jobs = Jobs()
        for _ in range(2):
            with server.running.connect() as client:
                for _ in range(3):
                    for _ in range(4):
                        jobs.put(client)
                    jobs.delete(client)
                    moments.append((now(), set(jobs.left)))
            restarted(server)
        for number, (at, expected) in enumerate(moments):
            folder = tmp_path / str(number)
            assert restore(f"{nats.url}/{name}", folder, at.isoformat())[0] == 0
            assert jobs_of(folder) == expected
            assert not (folder / "replica.json").exists()
    assert len({frozenset(expected) for _, expected in moments}) == len(moments)


@pytest.mark.costly
def test_a_time_whose_files_are_purged_is_refused(
    nats: NatsCluster, memory: Path, tmp_path: Path
) -> None:
    """The error has the earliest possible time, from which on all times are possible."""
    moments = []
    target = f"{nats.url}/purged"
    with replicated_servers(nats, "purged", memory, 1, *COPIES, "-s", "4096") as (server,):
        jobs = Jobs()
        with server.running.connect() as client:
            for _ in range(150):
                jobs.put(client, 200)
                if len(jobs.left) > LIVE:
                    jobs.delete(client)
                moments.append((now(), set(jobs.left)))
            time.sleep(REPORT_S + 1)  # the primary purges at these intervals
        server.stop()  # it would purge more meanwhile
        code, error = restore(target, tmp_path / "first", moments[0][0].isoformat())
        found = EARLIEST.search(error)
        assert (code, error.count("\n")) == (2, 1) and found, error
        assert not list(tmp_path.iterdir())
        earliest = datetime.fromisoformat(found[1] + "+00:00")
        possible = [moment for moment in moments if moment[0] >= earliest]
        assert 0 < len(possible) < len(moments)
        before = earliest - timedelta(microseconds=1)
        assert restore(target, tmp_path / "before", before.isoformat()) == (
            2,
            error.replace(f"{moments[0][0]:%FT%T.%f}Z", f"{before:%FT%T.%f}Z"),
        )
        assert restore(target, tmp_path / "earliest", earliest.isoformat())[0] == 0
        for at, expected in (*possible[:2], possible[-1]):
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            assert restore(target, folder, at.isoformat())[0] == 0
            assert jobs_of(folder) == expected


def test_what_cannot_be_restored(nats: NatsCluster, memory: Path, tmp_path: Path) -> None:
    """Each case ends with one line, and leaves the folder as it was."""
    target = f"{nats.url}/refused"
    with ours("-b", str(first_folder(memory, "refused"))) as plain, plain.connect() as client:
        for _ in range(10):
            client.put(b"x" * 60_000)
    used = tmp_path / "used"
    used.mkdir()
    (used / "binlog.1").touch()
    with replicated_servers(nats, "refused", memory, 1, *COPIES):
        # When the first message was stored, the stream lacked jobs.
        incomplete = asyncio.run(first_stored(target)).isoformat()
        later = (now() + timedelta(hours=1)).isoformat()
        cases = [
            (target, tmp_path / "new", incomplete, "the earliest possible time is"),
            (target, tmp_path / "new", later, "is in the future"),
            (target, used, "0s", "is not empty"),
            (target, tmp_path / "missing/new", "0s", "is no directory"),
            (f"{nats.url}/other", tmp_path / "new", "0s", "no server has begun this queue"),
        ]
        for url, folder, at, text in cases:
            code, error = restore(url, folder, at)
            assert (code, error.count("\n")) == (2, 1) and text in error, error
    assert [path.name for path in tmp_path.iterdir()] == ["used"]
    assert [path.name for path in used.iterdir()] == ["binlog.1"]


def test_a_queue_without_jobs(nats: NatsCluster, memory: Path, tmp_path: Path) -> None:
    with replicated_servers(nats, "empty", memory, 1, *COPIES):
        assert restore(f"{nats.url}/empty", tmp_path / "new", "0s")[0] == 0
        assert jobs_of(tmp_path / "new") == set()
