"""A full disk: only puts are refused, and they work again once there is space."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog.workload import Actor, replies_in
from core.rig import put_line
from processes import eventually
from servers import ours
from small_disk import small_disk
from wire import Client

MEBIBYTE = 1 << 20
FILE = 256 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as place:
        yield place


def fill_up(client: Client, size: int) -> list[int]:
    jobs = []
    while (reply := client.ask(put_line(b"x" * size, ttr=1000))) != b"OUT_OF_MEMORY\r\n":
        assert reply.startswith(b"INSERTED ")
        jobs.append(int(reply.split()[1]))
    return jobs


def put_in_time(client: Client, size: int) -> int:
    """Retry a put until it succeeds."""
    end = time.monotonic() + 10
    while (reply := client.ask(put_line(b"y" * size))) == b"OUT_OF_MEMORY\r\n":
        assert time.monotonic() < end, "puts are still refused"
        time.sleep(0.05)
    return int(reply.split()[1])


def test_only_puts_are_refused(disk: Path) -> None:
    with ours("-b", disk, "-s", str(FILE)) as server, server.connect() as client:
        jobs = fill_up(client, 10_000)
        assert len(jobs) * 10_000 > MEBIBYTE
        assert eventually(lambda: "puts are refused" in server.stderr())  # logged by a thread
        assert client.ask(b"peek %d\r\n" % jobs[0]).startswith(b"FOUND ")
        held = client.reserve()
        assert client.ask(b"release %d 0 0\r\n" % held) == b"RELEASED\r\n"
        assert client.reserve() == held
        reply = client.ask(b"bury %d 0\r\n" % held)
        assert reply in (b"BURIED\r\n", b"INTERNAL_ERROR\r\n")
        state = "buried" if reply == b"BURIED\r\n" else "reserved"
        assert client.job_stats(held)["state"] == state
        for job in jobs:
            assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        put_in_time(client, 10_000)


@pytest.mark.parametrize("size", [1_000, 30_000])
@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.slow
def test_a_start_succeeds_without_free_space(disk: Path, end: str, size: int) -> None:
    """The server serves the existing jobs; clients can finish them, which frees space."""
    with ours("-b", disk, "-s", str(FILE)) as server, server.connect() as client:
        jobs = fill_up(client, size)
        if end == "killed":
            server.kill()
    for _ in range(2):
        with ours("-b", disk, "-s", str(FILE)) as server, server.connect() as client:
            assert client.stats()["current-jobs-ready"] == str(len(jobs))
    with ours("-b", disk, "-s", str(FILE)) as server, server.connect() as client:
        for job in jobs:
            assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        put_in_time(client, size)


@pytest.mark.costly
def test_puts_work_again_after_others_free_space(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(2 * MEBIBYTE))
    with ours("-b", disk, "-s", str(FILE)) as server, server.connect() as client:
        before = fill_up(client, 10_000)
        ballast.unlink()
        put_in_time(client, 10_000)
        after = fill_up(client, 10_000)
        assert len(after) * 10_000 > MEBIBYTE
        assert "puts are accepted" in server.stderr()
        server.kill()
    with ours("-b", disk, "-s", str(FILE)) as server, server.connect() as client:
        for job in before + after:
            assert client.ask(b"peek %d\r\n" % job).startswith(b"FOUND ")


@pytest.mark.slow
def test_a_busy_server_on_a_full_disk_loses_nothing(disk: Path) -> None:
    actor = Actor("full disk", put_share=0.5, largest=20_000, plain_releases=False)
    (disk / "ballast").write_bytes(bytes(2 * MEBIBYTE))
    with ours("-b", disk, "-s", str(FILE)) as server, server.connect() as client:
        for _ in range(1500):
            client.send(actor.next())
            assert actor.pending is not None
            replies = client.replies(len(actor.pending.words))
            actor.take(replies_in(b"".join(replies)))
        server.kill()
    assert actor.refused > 10
    (disk / "ballast").unlink()
    with ours("-b", disk, "-s", str(FILE)) as server, server.connect() as client:
        for number, job in actor.known.items():
            assert client.ask(b"peek %d\r\n" % number).endswith(b"\r\n%b\r\n" % job.body)
            if not job.held:
                stats = client.job_stats(number)
                assert {key: stats[key] for key in job.stats()} == job.stats()
        for number in actor.gone:
            assert client.ask(b"peek %d\r\n" % number) == b"NOT_FOUND\r\n"
