"""truncate of more jobs than one step deletes, with other commands between the steps."""

from __future__ import annotations

import random
import socket
from collections import Counter
from pathlib import Path

import pytest
from core.long_commands.rounds import Rounds, received
from listing import Row, page_of

STEP = 1000
STATES = ("ready", "delayed", "buried", "reserved")


def put_all(rounds: Rounds, client: socket.socket, puts: list[tuple[int, int]]) -> list[int]:
    """Put a job for each (priority, delay); return the ids."""
    ids: list[int] = []
    for start in range(0, len(puts), 500):
        some = puts[start : start + 500]
        lines = b"".join(b"put %d %d 1000 1\r\nx\r\n" % put for put in some)
        replies = rounds.ask(client, lines, len(some))
        ids += [int(line.split()[1]) for line in replies.splitlines()]
    return ids


def listed(rounds: Rounds, client: socket.socket, tube: bytes = b"default") -> list[Row]:
    """Return the rows of all pages."""
    rows: list[Row] = []
    after = 0
    while True:
        reply = rounds.ask(client, b"list-jobs %b any %d 1000\r\n" % (tube, after), 2)
        page, after = page_of(reply)
        rows += page
        if after == 0:
            return rows


def counts(rounds: Rounds, client: socket.socket) -> dict[str, int]:
    """Return the tube's statistics, which must agree with the list and with the counters."""
    text = rounds.ask(client, b"stats-tube default\r\n", 2).decode()
    stats = dict(line.split(": ") for line in text.split("\n") if ": " in line)
    rows = listed(rounds, client)
    found = Counter(row["state"] for row in rows)
    urgent = sum(row["state"] == "ready" and int(row["pri"]) < 1024 for row in rows)
    counters = rounds.shared.worker[0]
    assert int(stats["current-jobs-urgent"]) == counters.urgent == urgent
    for state in STATES:
        assert int(stats[f"current-jobs-{state}"]) == getattr(counters, state) == found[state]
    return found


class Meddler:
    """A client that changes jobs at random during a truncate."""

    def __init__(self, rounds: Rounds, held: list[int], doomed: set[int], seed: int) -> None:
        self.rounds = rounds
        self.client = rounds.client()
        self.random = random.Random(seed)
        self.doomed = doomed  # the truncate will delete them
        self.held = held
        self.kept: set[int] = set()
        for job in held:
            self.ask(b"reserve-job %d" % job, 2)

    def ask(self, line: bytes, lines: int = 1) -> list[bytes]:
        return self.rounds.ask(self.client, line + b"\r\n", lines).split()

    def step(self) -> None:
        self.random.choice(
            (self.put, self.put, self.let_go, self.kick, self.take, self.delete, self.reserve)
        )()

    def put(self) -> None:
        pri, delay = self.random.randrange(2000), self.random.choice((0, 0, 500, 5000))
        self.kept.add(int(self.ask(b"put %d %d 1000 1\r\ny" % (pri, delay))[1]))

    def let_go(self) -> None:
        if not self.held:
            return
        job = self.held.pop(self.random.randrange(len(self.held)))
        self.kept.add(job)
        pri = self.random.randrange(2000)
        line = self.random.choice((b"release %d %d 0", b"release %d %d 5000", b"bury %d %d"))
        assert self.ask(line % (job, pri))[0] in (b"RELEASED", b"BURIED")

    def one_of_them(self) -> int:
        return self.random.choice([*self.doomed, *self.kept])

    def save(self, job: int) -> None:
        self.doomed.discard(job)
        self.kept.add(job)

    def kick(self) -> None:
        job = self.one_of_them()
        if self.ask(b"kick-job %d" % job)[0] == b"KICKED":
            self.save(job)

    def take(self) -> None:
        job = self.one_of_them()
        self.client.sendall(b"reserve-job %d\r\n" % job)
        self.taken()

    def reserve(self) -> None:
        """Only jobs that came after the truncate are ready."""
        ready = set(self.kept)
        self.client.sendall(b"reserve-with-timeout 0\r\n")
        job = self.taken()
        assert job is None or job in ready

    def taken(self) -> int | None:
        """Read the reply to a reserve."""
        self.rounds.run()
        reply = received(self.client).split()
        if reply[0] != b"RESERVED":
            assert reply[0] in (b"NOT_FOUND", b"TIMED_OUT")
            return None
        job = int(reply[1])
        if job in self.doomed:
            self.save(job)
        else:
            assert job in self.kept
        self.kept.discard(job)
        self.held.append(job)
        return job

    def delete(self) -> None:
        job = self.one_of_them()
        if self.ask(b"delete %d" % job)[0] == b"DELETED":
            self.doomed.discard(job)
            self.kept.discard(job)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("with_binlog", [False, True])
def test_it_deletes_what_nobody_held_and_nothing_that_came_later(
    tmp_path: Path, with_binlog: bool, seed: int
) -> None:
    chance = random.Random(seed)
    folder = tmp_path if with_binlog else None
    with Rounds(folder) as rounds:
        client = rounds.client()
        puts = [(chance.randrange(2000), 0) for _ in range(9000)]
        puts += [(5, chance.choice((0, 0, 4000 + chance.randrange(1000)))) for _ in range(9000)]
        chance.shuffle(puts) if seed % 2 else puts.sort(reverse=seed % 4 == 0)
        ids = put_all(rounds, client, puts)
        for job in chance.sample(ids, 1500):
            rounds.ask(client, b"reserve-job %d\r\nbury %d 3\r\n" % (job, job), 3)
        held = chance.sample(ids, 200)
        meddler = Meddler(rounds, held, set(ids) - set(held), seed)
        client.sendall(b"truncate default\r\n")
        rounds.run()
        reply = b""
        while not reply:
            meddler.step()
            reply = received(client)
        assert reply == b"TRUNCATED %d\r\n" % len(meddler.doomed)
        assert_left(rounds, meddler)
        assert rounds.ask(client, b"truncate default\r\n") == b"TRUNCATED %d\r\n" % len(
            meddler.kept
        )
        assert counts(rounds, client) == {"reserved": len(meddler.held)} or not meddler.held
        left = sorted(meddler.held)
    if with_binlog:
        with Rounds(tmp_path) as rounds:
            assert [int(row["id"]) for row in listed(rounds, rounds.client())] == left


def assert_left(rounds: Rounds, meddler: Meddler) -> None:
    """Compare the jobs with what the meddler knows, and the order of reserves."""
    client = rounds.client()
    rows = listed(rounds, client)
    assert {int(row["id"]) for row in rows} == meddler.kept | set(meddler.held)
    found = counts(rounds, client)
    assert found["reserved"] == len(meddler.held)
    ready = [(int(row["pri"]), int(row["id"])) for row in rows if row["state"] == "ready"]
    for _, job in sorted(ready):
        reply = rounds.ask(client, b"reserve\r\n", 2)
        assert reply.startswith(b"RESERVED %d " % job)
    for _, job in ready:
        rounds.ask(client, b"release %d 0 0\r\n" % job)


def test_a_round_deletes_one_step(tmp_path: Path) -> None:
    with Rounds(tmp_path) as rounds:
        client, other = rounds.client(), rounds.client()
        put_all(rounds, client, [(0, 0)] * (3 * STEP + 1))
        client.sendall(b"truncate default\r\n")
        for left in (2 * STEP + 1, STEP + 1, 1, 0):
            assert received(client) == b""
            other.sendall(b"peek-ready\r\n")
            rounds.run()
            assert received(other) == (
                b"FOUND 1 1\r\nx\r\n" if left > 2 * STEP else b"NOT_FOUND\r\n"
            )
            assert rounds.shared.worker[0].ready == left
        assert received(client) == b"TRUNCATED %d\r\n" % (3 * STEP + 1)


def test_keys_of_doomed_jobs_are_free(tmp_path: Path) -> None:
    """A put with the key of a job that will be deleted must not be answered with that job."""
    with Rounds(tmp_path) as rounds:
        client, other = rounds.client(), rounds.client()
        with_key = b"with unique=k%d\r\nput 0 0 9 1\r\nx\r\n"
        keep = b"with unique=kept window=60\r\nput 0 0 9 1\r\nx\r\n"
        put_all(rounds, client, [(0, 0)] * STEP)
        rounds.ask(client, b"".join(with_key % number for number in range(STEP)), 2 * STEP)
        kept = rounds.ask(client, keep, 2).splitlines()[-1]
        client.sendall(b"truncate default\r\n")
        rounds.run()
        other.sendall(with_key % 0 + with_key % (STEP - 1) + keep)
        rounds.run()
        replies = received(other).splitlines()
        assert replies[1::2] == [*(b"INSERTED %d" % (2 * STEP + n) for n in (2, 3)), kept]
        assert rounds.ask(client, b"") == b"TRUNCATED %d\r\n" % (2 * STEP + 1)
        assert [row["id"] for row in listed(rounds, client)] == [str(2 * STEP + n) for n in (2, 3)]


def test_several_take_turns_and_those_of_one_tube_follow_each_other() -> None:
    with Rounds() as rounds:
        first, second, third = (rounds.client() for _ in range(3))
        put_all(rounds, first, [(0, 0)] * (5 * STEP))
        rounds.ask(third, b"use small\r\nput 0 0 9 1\r\nx\r\n", 2)
        first.sendall(b"truncate default\r\n")
        rounds.run()
        late = put_all(rounds, third, [(0, 0)])
        assert late
        rounds.ask(second, b"put 0 0 9 1\r\nx\r\n")
        second.sendall(b"truncate default\r\n")
        assert rounds.ask(third, b"truncate small\r\n") == b"TRUNCATED 2\r\n"
        assert received(first) == received(second) == b""
        assert rounds.ask(first, b"") == b"TRUNCATED %d\r\n" % (5 * STEP)
        assert rounds.ask(second, b"") == b"TRUNCATED 1\r\n"


def test_a_client_that_leaves_does_not_stop_it() -> None:
    with Rounds() as rounds:
        client = rounds.client()
        rounds.ask(client, b"use big\r\n")
        put_all(rounds, client, [(0, 0)] * (5 * STEP))
        client.sendall(b"truncate big\r\n")
        rounds.run()
        client.close()
        for _ in range(6):
            rounds.run()
        counters = rounds.shared.worker[0]
        assert (counters.connections, counters.ready, counters.tubes) == (0, 0, 1)


def test_a_job_that_left_and_returned_stays() -> None:
    """Also if it is in the heap of ready jobs before and after, with the same priority."""
    with Rounds() as rounds:
        client, other = rounds.client(), rounds.client()
        ids = put_all(rounds, client, [(9, 0), *[(5, 0)] * (9 * STEP)])
        returning = ids[8 * STEP]
        client.sendall(b"truncate default\r\n")
        rounds.run()
        kept = put_all(rounds, other, [(9, 0)])
        rounds.ask(other, b"reserve-job %d\r\n" % returning, 2)
        assert rounds.ask(other, b"release %d 5 0\r\n" % returning) == b"RELEASED\r\n"
        assert rounds.ask(client, b"") == b"TRUNCATED %d\r\n" % (len(ids) - 1)
        assert [int(row["id"]) for row in listed(rounds, client)] == [returning, *kept]
        assert counts(rounds, client) == {"ready": 2}


def test_a_core_may_end_during_a_truncate(tmp_path: Path) -> None:
    with Rounds(tmp_path) as rounds:
        client = rounds.client()
        put_all(rounds, client, [(0, 0), (0, 1000)] * (2 * STEP))
        client.sendall(b"truncate default\r\n")
        rounds.run()
        assert received(client) == b""
    with Rounds(tmp_path) as rounds:
        client = rounds.client()
        assert len(listed(rounds, client)) == 3 * STEP
        assert rounds.ask(client, b"truncate default\r\n") == b"TRUNCATED %d\r\n" % (3 * STEP)
