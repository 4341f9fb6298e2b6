"""Kill the whole server repeatedly under load: no acknowledged change is lost."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from binlog.reader import read_folder
from binlog.workload import Actor, Known, replies_in
from servers import Server, keeping_history, ours
from wire import Client, NoReplyError, stats_of

from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.binlog.verify import verify

pytestmark = pytest.mark.slow

CLIENTS = 6
KILLS = 100
# Small files, so that the server creates, compacts and removes files all the time.
ARGUMENTS = ("-f", "0", "-s", "65536")


def run(actor: Actor, client: Client) -> None:
    """Run steps until the server is gone; the last step stays pending."""
    with contextlib.suppress(NoReplyError, OSError):
        while True:
            client.send(actor.next())
            assert actor.pending is not None
            replies = client.replies(len(actor.pending.words))
            actor.take(replies_in(b"".join(replies)))


def settle(actor: Actor, client: Client) -> None:
    """Find out whether the server executed the pending step, completely or not at all."""
    step, actor.pending = actor.pending, None
    if step is None or step.job is None:
        return  # `delete_unacknowledged_puts` handles it, and the new job of a move
    before = actor.known.pop(step.job)
    if client.ask(b"peek %d\r\n" % step.job) == b"NOT_FOUND\r\n":
        assert step.gone or step.moved
        actor.gone.add(step.job)
        if step.moved:
            actor.keys.pop(step.job, None)
        return
    now = seen(client, step.job, before)
    assert now in (before.stats(), step.after.stats())
    actor.known[step.job] = before if now == before.stats() else step.after


def seen(client: Client, number: int, job: Known) -> dict[str, str]:
    return kept(client.job_stats(number), job)


def kept(stats: dict[str, str], job: Known) -> dict[str, str]:
    """Return the part of stats-job that a restart must keep."""
    return {key: stats[key] for key in job.stats()}


def check(actor: Actor, client: Client, newly_gone: Iterable[int]) -> None:
    """Check that every acknowledged job is unchanged and that no deleted job is back."""
    bodies = peek(client, actor.known)
    stats = client.ask_each([b"stats-job %d\r\n" % number for number in actor.known])
    for (number, job), body, reply in zip(actor.known.items(), bodies, stats, strict=True):
        assert body == job.body, f"job {number}: {body!r}"
        assert kept(stats_of(reply), job) == job.stats(), f"job {number}"
    gone = list(newly_gone)
    for number, body in zip(gone, peek(client, gone), strict=True):
        assert body is None, f"{number} is back"


def peek(client: Client, numbers: Iterable[int]) -> list[bytes | None]:
    """Return the body of each job, or None without such a job."""
    return [body_of(reply) for reply in client.ask_each([b"peek %d\r\n" % n for n in numbers])]


def body_of(reply: bytes) -> bytes | None:
    if reply == b"NOT_FOUND\r\n":
        return None
    assert reply.startswith(b"FOUND "), f"no FOUND: {reply!r}"
    return reply.partition(b"\r\n")[2].removesuffix(b"\r\n")


def delete_unacknowledged_puts(
    client: Client, actors: list[Actor], bodies: set[bytes], since: int, last: int
) -> None:
    """Delete the jobs of unacknowledged puts, and check that each put made at most one job."""
    known = {number for actor in actors for number in actor.known}
    others = [number for number in range(since, last) if number not in known]
    for number, body in zip(others, peek(client, others), strict=True):
        if body is not None:
            assert body in bodies, f"no client put job {number}"
            bodies.remove(body)
            assert client.ask(b"delete %d\r\n" % number) == b"DELETED\r\n"


def total(client: Client) -> int:
    stats = client.stats()
    return sum(int(stats[f"current-jobs-{s}"]) for s in ("ready", "reserved", "delayed", "buried"))


def load_until_killed(
    server: Server, actors: list[Actor], seconds: float, end: Callable[[], object] | None = None
) -> None:
    """Run the actors, then call `end`, or kill the server if `end` is None."""
    clients = [server.connect() for _ in actors]
    threads = [
        threading.Thread(target=run, args=pair) for pair in zip(actors, clients, strict=True)
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    (end or server.kill)()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()


def check_after_kill(server: Server, actors: list[Actor], gone: set[int], since: int) -> int:
    """Check the jobs of a server that has recovered; return the next unused id.

    `gone` are the jobs that were known to be gone before the last load.
    """
    steps = [actor.pending for actor in actors if actor.pending]
    bodies = {step.after.body for step in steps if step.job is None or step.moved}
    with server.connect() as client:
        for actor in actors:
            settle(actor, client)
            check(actor, client, actor.gone - gone)
        last = client.put()
        delete_unacknowledged_puts(client, actors, bodies, since, last)
        ended = {number for actor in actors for number in actor.gone}
        lost = {step.after.body for step in steps if step.moved and step.job in ended}
        assert not lost & bodies
        assert client.ask(b"delete %d\r\n" % last) == b"DELETED\r\n"
        assert total(client) == sum(len(actor.known) for actor in actors)
    return last


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("start", "kills", "options"),
    [(ours, KILLS, ()), (ours, 30, ("--body-memory", "2K")), (keeping_history, 30, ())],
)
def test_killed_again_and_again_under_load(
    tmp_path: Path,
    start: Callable[..., AbstractContextManager[Server]],
    kills: int,
    options: tuple[str, ...],
) -> None:
    dice = random.Random(7)
    actors = [Actor(f"client {i}", put_share=0.3, moves=i % 2 == 0) for i in range(CLIENTS)]
    since, gone = 1, set[int]()
    for number in range(kills + 1):
        with start("-b", tmp_path, *ARGUMENTS, *options) as server:
            since = check_after_kill(server, actors, gone, since)
            gone = {job for actor in actors for job in actor.gone}
            if number < kills:
                load_until_killed(server, actors, dice.uniform(0.02, 0.4))
    assert sum(len(actor.gone) for actor in actors) > 10 * kills
    assert any(tmp_path.glob("binlog.*.done")) == (start is keeping_history)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "mode", [("-f", "0"), ("-f", "50"), ("-F",), ("--workers", "2"), ("--history",)], ids=" ".join
)
# A worker that stops first makes another one reply INTERNAL_ERROR, which ends a client thread.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_kills_and_stops_leave_no_file_reported_as_cut(
    tmp_path: Path, mode: tuple[str, ...]
) -> None:
    """Kill or stop the server at any moment, with files so small that they rotate all the time."""
    dice = random.Random(11)
    folder = tmp_path / "binlog"
    folder.mkdir()
    more = (str(tmp_path / "history"),) if mode == ("--history",) else ()
    for _ in range(30):
        actors = [Actor(f"client {i}", put_share=0.3) for i in range(CLIENTS)]
        with ours("-b", folder, "-s", "16384", *mode, *more) as server:
            end = dice.choice([server.kill, server.stop])
            load_until_killed(server, actors, dice.uniform(0.0, 0.3), end)
            assert "the file is cut" not in server.stderr()
        verdict = verify(inspect_folder(folder), lambda damage: None)
        assert not [each for each in verdict.damage if not each.torn]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_done_files_have_complete_job_histories_after_kills(tmp_path: Path) -> None:
    """Read all files in order: they have the put of every deleted job and every acknowledged state.

    A kill may lose only the deferred entries of its last moments.
    """
    actors = [Actor(f"client {i}", put_share=0.4) for i in range(CLIENTS)]
    for _ in range(6):
        with keeping_history("-b", tmp_path, *ARGUMENTS) as server:
            load_until_killed(server, actors, 0.5)
        with keeping_history("-b", tmp_path, *ARGUMENTS) as server, server.connect() as client:
            for actor in actors:
                settle(actor, client)
    whole = tmp_path / "whole"
    whole.mkdir()
    for path in tmp_path.glob("binlog.*"):
        shutil.copy(path, whole / path.name.removesuffix(".done"))
    histories: dict[int, list[str]] = {}
    for entry in read_folder(whole):
        if entry.is_length_entry:
            continue
        life = histories.setdefault(entry.id, [])
        if entry.records_reserve:
            life.append("reserved")
        life.append("put" if entry.full else entry.state)
    gone = {job for actor in actors for job in actor.gone}
    assert len(gone) > 500
    for job in gone:
        assert histories[job][0] == "put" and histories[job][-1] == "invalid"
    changed = [life for life in histories.values() if {"buried", "delayed"} & set(life[1:])]
    unreserved = [life for life in changed if "reserved" not in life]
    assert len(changed) > 100
    assert len(unreserved) <= len(changed) // 20, "reserves have no entries"


@pytest.mark.slow
def test_a_reserved_job_is_ready_after_a_kill(tmp_path: Path) -> None:
    for turn in range(5):
        with ours("-b", tmp_path, *ARGUMENTS) as server, server.connect() as client:
            if turn == 0:
                client.put(b"held")
            assert client.reserve() == 1
            server.kill()
