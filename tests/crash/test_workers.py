"""Kill workers and the parent repeatedly under load: no acknowledged change is lost.

A step without a reply, or with the reply INTERNAL_ERROR, was executed once or not at all. The test
queries its outcome on another connection, while more workers are killed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from binlog.workload import Actor, Step
from crash.test_kill import check, delete_unacknowledged_puts, run, seen, settle, total
from processes import alive, children, eventually
from servers import Server, ours
from shards import connect_at, tubes_of
from wire import Client, NoReplyError

WORKERS = 3
CLIENTS = 6
SERVERS = 5
KILLS_OF_EACH = 10  # each kill lengthens the restart backoff, which a new server resets
PARENT_KILLS = 10
ARGUMENTS = ("--workers", str(WORKERS), "-f", "0", "-s", "65536")
LIMIT_S = 30.0
# A command of a closed connection may still be on its way to another worker.
ON_ITS_WAY_S = 0.3

LOAD_TUBES = tuple(next(tubes_of(shard, WORKERS)) for shard in range(WORKERS))


def wait_tube(shard: int, number: int) -> bytes:
    """Return a tube that the load does not use."""
    return next(itertools.islice(tubes_of(shard, WORKERS), number + 1, None))


class ThreadGroup:
    """Threads that run until `stop`; an exception in one of them fails the test."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    @property
    def working(self) -> bool:
        return not self._stop.is_set() and not self._errors

    def start(self, task: Callable[[ThreadGroup], None]) -> None:
        thread = threading.Thread(target=self._run, args=(task,))
        self._threads.append(thread)
        thread.start()

    def _run(self, task: Callable[[ThreadGroup], None]) -> None:
        try:
            task(self)
        except BaseException as error:
            self._errors.append(error)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]


@contextlib.contextmanager
def thread_group() -> Iterator[ThreadGroup]:
    made = ThreadGroup()
    try:
        yield made
    finally:
        made.stop()


def connect_retrying(server: Server, worker: int) -> Client:
    """Connect to the worker, retrying while it is dead."""
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            return connect_at(server, worker, WORKERS)
        except (NoReplyError, OSError):
            assert time.monotonic() < end, f"worker {worker} accepts no connections"


class Producer:
    """Runs steps on jobs of its own, through a connection to one worker."""

    def __init__(self, number: int) -> None:
        self.actor = Actor(f"client {number}", put_share=0.35, tubes=LOAD_TUBES)
        self.home = number % WORKERS
        self.pending_bodies: set[bytes] = set()
        self.unacknowledged_steps = 0

    def work(self, server: Server, group: ThreadGroup) -> None:
        client = connect_retrying(server, self.home)
        while group.working:
            if not self._step(client):
                client.close()
                self.unacknowledged_steps += 1
                time.sleep(ON_ITS_WAY_S)
                self._settle(server)
                client = connect_retrying(server, self.home)
        client.close()

    def _step(self, client: Client) -> bool:
        """Run one step and return whether it was acknowledged; otherwise it stays pending."""
        data = self.actor.next()
        step = self.actor.pending
        assert step is not None
        try:
            client.send(data)
            replies = client.replies(len(step.words))
        except (NoReplyError, OSError):
            return False
        words = [reply.split()[0] for reply in replies]
        if words != step.words:
            wrong = {word for word, right in zip(words, step.words, strict=True) if word != right}
            assert wrong <= {b"INTERNAL_ERROR", b"NOT_FOUND"}, replies
            return False
        self.actor.take(replies)
        return True

    def _settle(self, server: Server) -> None:
        step, self.actor.pending = self.actor.pending, None
        assert step is not None
        if step.job is None:
            self.pending_bodies.add(step.after.body)
            return
        end = time.monotonic() + LIMIT_S
        while not self._query_outcome(server, step, step.job):
            assert time.monotonic() < end, f"no reply about job {step.job}"
            time.sleep(0.02)

    def _query_outcome(self, server: Server, step: Step, job: int) -> bool:
        known = self.actor.known
        try:
            with connect_retrying(server, (self.home + 1) % WORKERS) as client:
                reply = client.ask(b"stats-job %d\r\n" % job)
                if reply == b"NOT_FOUND\r\n":
                    assert step.gone, f"job {job} is lost"
                    del known[job]
                    self.actor.gone.add(job)
                    return True
                if reply == b"INTERNAL_ERROR\r\n":
                    return False
                now = seen(client, job, known[job])
        except (NoReplyError, OSError):
            return False
        except AssertionError as error:
            if "no statistics" in str(error):
                return False  # the worker died between the two replies
            raise
        if now["state"] == "reserved":
            return False  # by the closed connection
        before = known[job]
        before.held = False
        assert now in (before.stats(), step.after.stats())
        if now != before.stats():
            known[job] = step.after
        return True


class Queue:
    """Jobs for waiting clients: the acknowledged ones and the deleted ones."""

    def __init__(self) -> None:
        self.put: set[int] = set()
        self.done: set[int] = set()
        self.perhaps_done: set[int] = set()
        self.pending_bodies: set[bytes] = set()
        self._numbers = itertools.count()
        self._dice = random.Random(3)

    def feed(self, server: Server, tubes: list[bytes], group: ThreadGroup) -> None:
        client = connect_retrying(server, 0)
        while group.working:
            body = b"for a waiting client, %d" % next(self._numbers)
            line = b"use %b\r\nput 0 0 100000 %d\r\n%b\r\n"
            try:
                client.send(line % (self._dice.choice(tubes), len(body), body))
                reply = client.replies(2)[1]
            except (NoReplyError, OSError):
                reply = b""
                client.close()
                client = connect_retrying(server, 0)
            if reply.startswith(b"INSERTED "):
                self.put.add(int(reply.split()[1]))
            else:
                assert reply in (b"", b"INTERNAL_ERROR\r\n")
                self.pending_bodies.add(body)
            time.sleep(0.01)
        client.close()

    def wait(self, server: Server, home: int, tubes: list[bytes], group: ThreadGroup) -> None:
        """Reserve without a timeout: the only reply is a job, even if workers are killed."""
        client = self._waiting(server, home, tubes)
        while group.working:
            try:
                reply = client.reply(0.1)
                assert reply.startswith(b"RESERVED "), reply
                job = int(reply.split()[1])
                assert job not in self.done, f"job {job} was deleted and is back"
                self.perhaps_done.add(job)
                if client.ask(b"delete %d\r\n" % job, LIMIT_S) == b"DELETED\r\n":
                    self.done.add(job)
                client.send(b"reserve\r\n")
            except (NoReplyError, OSError):
                if client.has_ended():
                    client.close()
                    client = self._waiting(server, home, tubes)
        client.close()

    def left(self, server: Server) -> set[int]:
        """Return the jobs that were put and not deleted by a client."""
        some = self.put - self.done
        with connect_retrying(server, 0) as client:
            for job in some & self.perhaps_done:
                if client.ask(b"peek %d\r\n" % job) == b"NOT_FOUND\r\n":
                    some.remove(job)  # only the reply to its delete was lost
        return some

    def _waiting(self, server: Server, home: int, tubes: list[bytes]) -> Client:
        end = time.monotonic() + LIMIT_S
        while True:
            client = connect_retrying(server, home)
            try:
                for tube in tubes:
                    assert client.ask(b"watch %b\r\n" % tube).startswith(b"WATCHING")
                assert client.ask(b"ignore default\r\n") == b"WATCHING %d\r\n" % len(tubes)
                client.send(b"reserve\r\n")
                return client
            except (NoReplyError, OSError):
                client.close()
                assert time.monotonic() < end


def kill_workers(server: Server, dice: random.Random, kills: int) -> None:
    """Kill random workers, also those that are reading their binlogs."""
    for _ in range(kills):
        time.sleep(dice.uniform(0.05, 0.8))
        assert eventually(lambda: children(server.pid) != [])
        victim = dice.choice(children(server.pid))
        os.kill(victim, signal.SIGKILL)
        assert eventually(lambda pid=victim: pid not in children(server.pid))


def all_run(server: Server) -> bool:
    return len(children(server.pid)) == WORKERS


def check_all(server: Server, actors: list[Actor], pending: set[bytes], since: int) -> int:
    """Check that the acknowledged jobs are there and no others; return the next unused id."""
    with server.connect(timeout_s=LIMIT_S) as client:
        for actor in actors:
            check(actor, client, actor.gone)
        last = client.put()
        delete_unacknowledged_puts(client, actors, pending, since, last)
        assert client.ask(b"delete %d\r\n" % last) == b"DELETED\r\n"
        assert eventually(
            lambda: total(client) == sum(len(actor.known) for actor in actors), LIMIT_S
        )
    return last


def watched_tubes(home: int) -> tuple[list[bytes], list[bytes]]:
    """Return the tubes of two waiting clients of a worker: one per shard, and one elsewhere."""
    of_all = [wait_tube((home + place) % WORKERS, home) for place in range(WORKERS)]
    return of_all, [wait_tube((home + 1) % WORKERS, WORKERS + home)]


def kill_under_load(server: Server, queue: Queue, producers: list[Producer]) -> None:
    places = [(home, tubes) for home in range(WORKERS) for tubes in watched_tubes(home)]
    with thread_group() as waiting:
        for home, tubes in places:
            waiting.start(partial(queue.wait, server, home, tubes))
        with thread_group() as load:
            load.start(partial(queue.feed, server, [tube for _, some in places for tube in some]))
            for producer in producers:
                load.start(partial(producer.work, server))
            kill_workers(server, random.Random(server.port), KILLS_OF_EACH)
            assert eventually(lambda: all_run(server), LIMIT_S)
        # The waiting clients survived all kills and get the remaining jobs.
        assert eventually(lambda: not queue.left(server), LIMIT_S), queue.left(server)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_killed_fifty_times_under_load(tmp_path: Path) -> None:
    producers = [Producer(number) for number in range(CLIENTS)]
    actors = [producer.actor for producer in producers]
    since, done = 1, 0
    pending: set[bytes] = set()
    for number in range(SERVERS + 1):
        queue = Queue()
        with ours("-b", tmp_path, *ARGUMENTS) as server:
            since = check_all(server, actors, pending, since)
            if number == SERVERS:
                break
            kill_under_load(server, queue, producers)
            assert "Traceback" not in server.stderr()
            assert server.stderr().count("was killed by signal 9") == KILLS_OF_EACH
            assert server.stop() == 0
        done += len(queue.done)
        pending = queue.pending_bodies.union(*(p.pending_bodies for p in producers))
    assert sum(len(actor.gone) for actor in actors) > 500
    assert done > 200
    assert (
        sum(producer.unacknowledged_steps for producer in producers) > SERVERS * KILLS_OF_EACH / 5
    )


def run_until_killed(actor: Actor, client: Client, _group: ThreadGroup) -> None:
    run(actor, client)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_parent_is_killed_under_load(tmp_path: Path) -> None:
    """The workers end at once by themselves, and the next server finds every job."""
    dice = random.Random(12)
    actors = [Actor(f"client {i}", put_share=0.35, tubes=LOAD_TUBES) for i in range(CLIENTS)]
    since = 1
    for number in range(PARENT_KILLS + 1):
        with ours("-b", tmp_path, *ARGUMENTS) as server:
            steps = [actor.pending for actor in actors if actor.pending is not None]
            for actor in actors:
                with server.connect() as client:
                    settle(actor, client)
            pending = {step.after.body for step in steps if step.job is None}
            since = check_all(server, actors, pending, since)
            if number == PARENT_KILLS:
                break
            clients = [connect_at(server, i % WORKERS, WORKERS) for i in range(CLIENTS)]
            with thread_group() as load:
                for actor, client in zip(actors, clients, strict=True):
                    load.start(partial(run_until_killed, actor, client))
                time.sleep(dice.uniform(0.05, 0.4))
                pids = children(server.pid)
                assert len(pids) == WORKERS
                server.signal(signal.SIGKILL)
                assert eventually(lambda pids=pids: not any(map(alive, pids)))
            for client in clients:
                client.close()
    assert sum(len(actor.gone) for actor in actors) > 100
