"""Clients that log each command with its outcome, and a check of all their logs.

A job is identified by its body, which is put once. The outcome of a command is unknown if its
connection ended before the reply.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from wire import Client, NoReplyError

REPLY_S = 40.0
"""Longer than a failover: a connection that is forwarded may wait for it."""
PAUSE_S = 0.05
PACE_S = float(os.environ.get("REPLICATION_PACE_S", "0"))
"""The pause after each step of a client. Without one, clients take a core of the servers."""

GROWTH = 10_000
"""After so many jobs a client puts no more than it deletes."""

TUBES = (b"one", b"two", b"three", b"four")
"""With two workers each has some of them."""

_numbers = itertools.count(1)


@dataclass
class Holding:
    """One reserve of a job: when its reply came, and when the client sent the command after it.

    `end` is None if the client never got a reply to that command.
    """

    begin: float
    end: float | None = None


@dataclass
class JobLog:
    """What clients know of one job. Times are monotonic seconds.

    `deleted` is when the reply to a delete came. `reserves` are when those commands were sent.
    """

    is_put: bool = False
    is_refused: bool = False
    deleted: float | None = None
    may_be_deleted: bool = False
    reserves: list[float] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)


@dataclass
class LoggingClient:
    """Puts and works through jobs until `stopped`, by the addresses in turn."""

    name: str
    addresses: Sequence[tuple[str, int]]
    stopped: threading.Event
    jobs: dict[bytes, JobLog] = field(default_factory=dict)
    """By body. Each client has its own, for jobs of all clients."""
    replies: int = 0
    doing: str = ""
    """The last command and when it was sent, for a failure of the test."""
    failure: AssertionError | None = None
    continued: int = 0
    """How many jobs it has deleted that it had reserved on an earlier connection."""
    held: tuple[bytes, JobLog, Holding] | None = None
    """The id of a job whose connection ended before it was deleted, released or buried."""

    def run(self) -> None:
        try:
            self._run()
        except AssertionError as error:
            self.failure = error
            self.stopped.set()

    def _run(self) -> None:
        dice = random.Random(self.name)
        for host, port in itertools.cycle(self.addresses):
            with contextlib.suppress(OSError, NoReplyError):
                client = Client(port, REPLY_S, host)
                with contextlib.closing(client):
                    watch_all(client)
                    self._end_held(client)
                    while not self.stopped.is_set():
                        self._step(client, dice)
                        time.sleep(PACE_S)
            if self.stopped.is_set():
                return
            time.sleep(PAUSE_S)

    def _step(self, client: Client, dice: random.Random) -> None:
        # At first the queue grows, and then it does not: copies of it would take longer and longer.
        if dice.random() < (0.55 if len(self.jobs) < GROWTH else 0.4):
            self._put(client, dice)
            return
        sent = time.monotonic()
        reply = self._ask(client, b"reserve-with-timeout 0\r\n")
        if not reply.startswith(b"RESERVED"):
            return
        job, body = reply.split(b"\r\n")[0].split()[1], reply.split(b"\r\n", 1)[1][:-2]
        log = self._log(body)
        log.reserves.append(sent)
        holding = Holding(time.monotonic())
        log.holdings.append(holding)
        self.held = job, log, holding
        choice = dice.random()
        end = time.monotonic()
        if choice < 0.7:
            log.may_be_deleted = True
            reply = self._ask(client, b"delete %b\r\n" % job)
            if reply == b"DELETED\r\n":
                log.deleted = time.monotonic()
        elif choice < 0.85:
            reply = self._ask(client, b"release %b 5 0\r\n" % job)
        else:
            reply = self._ask(client, b"bury %b 5\r\n" % job)
        if reply in (b"DELETED\r\n", b"RELEASED\r\n", b"BURIED\r\n"):
            holding.end = end
        self.held = None

    def _end_held(self, client: Client) -> None:
        """Delete the job that this client holds, if a planned failover has kept its reservation."""
        if self.held is None:
            return
        job, log, holding = self.held
        if self._ask(client, b"touch %b\r\n" % job) == b"TOUCHED\r\n":
            log.may_be_deleted = True
            holding.end = time.monotonic()
            if self._ask(client, b"delete %b\r\n" % job) == b"DELETED\r\n":
                log.deleted = time.monotonic()
                self.continued += 1
        self.held = None

    def _put(self, client: Client, dice: random.Random) -> None:
        if dice.random() < 0.1:
            self._ask(client, b"kick 10\r\n")
        assert self._ask(client, b"use %b\r\n" % dice.choice(TUBES)).startswith(b"USING")
        body = b"%b %d " % (self.name.encode(), next(_numbers)) + b"x" * dice.choice([0, 10, 3000])
        log = self._log(body)
        put = b"put %d 0 10000 %d\r\n%b\r\n" % (dice.randrange(9), len(body), body)
        # A worker that stops answers INTERNAL_ERROR to commands for another one that has stopped.
        reply = self._ask(client, put)
        log.is_put = reply.startswith(b"INSERTED")
        log.is_refused = reply == b"OUT_OF_MEMORY\r\n"

    def _ask(self, client: Client, command: bytes) -> bytes:
        self.doing = f"{client.port}: {command[:40]!r} at {time.monotonic():.1f}"
        reply = client.ask(command)
        self.replies += 1
        return reply

    def _log(self, body: bytes) -> JobLog:
        return self.jobs.setdefault(body, JobLog())


def watch_all(client: Client) -> None:
    for tube in TUBES:
        assert client.ask(b"watch %b\r\n" % tube).startswith(b"WATCHING")


def merged(clients: Sequence[LoggingClient]) -> dict[bytes, JobLog]:
    jobs: dict[bytes, JobLog] = {}
    for client in clients:
        for body, log in client.jobs.items():
            job = jobs.setdefault(body, JobLog())
            job.is_put |= log.is_put
            job.is_refused |= log.is_refused
            job.may_be_deleted |= log.may_be_deleted
            job.deleted = log.deleted if job.deleted is None else job.deleted
            job.reserves += log.reserves
            job.holdings += log.holdings
    return jobs


def drain(port: int, host: str = "127.0.0.1", attempts: int = 1) -> Counter[bytes]:
    """Delete all jobs, and return their bodies.

    Several `attempts` are for a server that may close a connection (--replicate-timeout).
    """
    bodies: dict[int, bytes] = {}
    for attempt in range(1, attempts + 1):
        client = Client(port, REPLY_S, host)
        try:
            with contextlib.closing(client):
                _drain(client, bodies)
            break
        except NoReplyError:
            if attempt == attempts:
                raise
            time.sleep(0.5)
    return Counter(bodies.values())


def _drain(client: Client, bodies: dict[int, bytes]) -> None:
    watch_all(client)
    for tube in TUBES:
        client.ask(b"use %b\r\n" % tube)
        _change(client, b"kick 1000000\r\n", b"KICKED ")
    for job in kept(client):
        bodies[job] = client.ask(b"peek %d\r\n" % job).split(b"\r\n", 1)[1][:-2]
        _change(client, b"delete %d\r\n" % job, b"DELETED")
    while (reply := client.ask(b"reserve-with-timeout 0\r\n")).startswith(b"RESERVED"):
        job = int(reply.split()[1])
        bodies[job] = reply.split(b"\r\n", 1)[1][:-2]
        _change(client, b"delete %d\r\n" % job, b"DELETED")


def _change(client: Client, command: bytes, reply: bytes) -> None:
    found = client.ask(command)
    if found == b"OUT_OF_MEMORY\r\n":
        raise NoReplyError(f"the log is overdue, which refuses {command!r}")
    assert found.startswith(reply), f"{command!r} was answered {found!r}"


def kept(client: Client) -> list[int]:
    """Return the jobs that are reserved, which no client is any more."""
    return [
        int(number)
        for tube in TUBES
        for number in re.findall(
            rb"id: (\d+)", client.ask(b"list-jobs %b reserved 0 1000\r\n" % tube)
        )
    ]


def check(clients: Sequence[LoggingClient], left: Counter[bytes]) -> None:
    """Check the logs against the jobs that are left in the server."""
    jobs = merged(clients)
    lost = [body for body, job in jobs.items() if is_lost(job) and body not in left]
    revived = [
        body
        for body, job in jobs.items()
        if job.deleted is not None
        and (body in left or any(sent > job.deleted for sent in job.reserves))
    ]
    refused = {body for body, job in jobs.items() if job.is_refused}
    reserved = {body for body, job in jobs.items() if job.reserves}
    invented = (set(left) - set(jobs)) | (refused & (set(left) | reserved))
    doubled = [body for body, count in left.items() if count > 1]
    shared = [body for body, job in jobs.items() if overlap(job.holdings)]
    assert not (lost or revived or invented or doubled or shared), (
        f"lost {lost[:5]}, revived {revived[:5]}, invented {sorted(invented)[:5]},"
        f" doubled {doubled[:5]}, held by two {shared[:5]}"
    )


def is_lost(job: JobLog) -> bool:
    return job.is_put and job.deleted is None and not job.may_be_deleted


def overlap(holdings: Sequence[Holding]) -> bool:
    """Return whether one client got the job while another held it and could still end it."""
    return any(
        one is not other and one.end is not None and one.begin < other.begin < one.end
        for one in holdings
        for other in holdings
    )
