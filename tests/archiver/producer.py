"""Clients that put and delete very many jobs, and record which deletes are acknowledged.

Each batch is one write, because a million separate commands would take too long.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

BATCH = 250
TIMEOUT_S = 30.0

_RESERVED = re.compile(rb"RESERVED (\d+) \d+\r\n")


class LostError(Exception):
    """The connection ended, or the reply came for a worker that was killed."""


@dataclass
class Producer:
    """One client with its own tube.

    `deleted` are acknowledged deletes; `doubtful` are deletes without a reply.
    """

    tube: bytes
    connect: Callable[[], socket.socket]
    deleted: list[int] = field(default_factory=list)
    pending: set[int] = field(default_factory=set)
    batches: int = 0

    def run(self, jobs: int, go_on: Callable[[], bool]) -> None:
        """Run until `jobs` are deleted; reconnect whenever the connection is lost."""
        while len(self.deleted) < jobs and go_on():
            try:
                with self.connect() as server:
                    server.settimeout(TIMEOUT_S)
                    talk = Talk(server)
                    talk.ask(
                        b"use %b\r\nwatch %b\r\nignore default\r\n" % (self.tube, self.tube), 3
                    )
                    while len(self.deleted) < jobs and go_on():
                        self._batch(talk)
            except (OSError, LostError):
                continue

    def _batch(self, talk: Talk) -> None:
        self.batches += 1
        bodies = [b"%b %d %d" % (self.tube, self.batches, i) for i in range(BATCH)]
        puts = b"".join(
            b"put %d 0 60 %d\r\n%b\r\n" % (i % 7, len(b), b) for i, b in enumerate(bodies)
        )
        jobs = [int(line.split()[1]) for line in talk.ask(puts, BATCH)]
        if self.batches % 2:
            jobs = talk.reserve(BATCH)  # may include the jobs of a batch that was lost
        self.pending.update(jobs)
        talk.send(b"".join(b"delete %d\r\n" % job for job in jobs))
        for job in jobs:
            reply = talk.line()
            if reply == b"DELETED":
                self.pending.discard(job)
                self.deleted.append(job)
            else:
                # Our lost connection either deleted the job, or keeps it reserved for a moment.
                assert reply == b"NOT_FOUND"


class Talk:
    """A connection whose replies are single lines, except RESERVED, whose body is a second line."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._file = server.makefile("rb", 1 << 16)

    def send(self, data: bytes) -> None:
        self._server.sendall(data)

    def line(self) -> bytes:
        line = self._file.readline()
        if not line.endswith(b"\r\n") or line.startswith(b"INTERNAL_ERROR"):
            raise LostError
        return line[:-2]

    def ask(self, data: bytes, replies: int) -> list[bytes]:
        self.send(data)
        return [self.line() for _ in range(replies)]

    def reserve(self, count: int) -> list[int]:
        """Reserve at most `count` ready jobs, and return their ids."""
        self.send(b"reserve-with-timeout 0\r\n" * count)
        jobs = []
        for _ in range(count):
            line = self.line()
            if line.startswith(b"RESERVED"):
                jobs.append(int(line.split()[1]))
                self.line()
        return jobs
