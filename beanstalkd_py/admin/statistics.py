"""What a server says about itself, its tubes and its jobs, as records."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from beanstalkd_py import errors
from beanstalkd_py.admin.connection import NOT_FOUND, Connection, Reply

READY = "ready"
RESERVED = "reserved"
DELAYED = "delayed"
BURIED = "buried"
STATES = (READY, RESERVED, DELAYED, BURIED)
FREE_STATES = (READY, DELAYED, BURIED)
"""The states in which a job may be deleted by anyone."""

Statistics = dict[str, str]
"""The server's keys and values, in its order, without the quotes that 1.13 puts around texts."""


def parse(text: bytes) -> Statistics:
    """Reads the body of any statistics reply."""
    found = {}
    for line in text.decode("utf-8", "replace").splitlines():
        key, colon, value = line.partition(": ")
        if colon:
            quoted = len(value) > 1 and value[0] == value[-1] == '"'
            found[key] = value[1:-1] if quoted else value
    return found


@dataclass(frozen=True, slots=True)
class TubeStats:
    """A tube: numbers of its jobs and clients, and the seconds for which it is still paused."""

    tube: str
    ready: int
    reserved: int
    delayed: int
    buried: int
    urgent: int
    using: int
    watching: int
    waiting: int
    total: int
    paused_s: int

    @classmethod
    def read(cls, reply: Reply) -> TubeStats:
        """From the reply to stats-tube."""
        found = parse(reply.expect(b"OK").body)
        jobs = {state: int(found[f"current-jobs-{state}"]) for state in (*STATES, "urgent")}
        return cls(
            tube=found["name"],
            using=int(found["current-using"]),
            watching=int(found["current-watching"]),
            waiting=int(found["current-waiting"]),
            total=int(found["total-jobs"]),
            paused_s=int(found["pause-time-left"]),
            **jobs,
        )

    @property
    def alive(self) -> int:
        """The number of jobs in any state."""
        return self.ready + self.reserved + self.delayed + self.buried

    def count(self, states: Iterable[str]) -> int:
        """The number of jobs in these states."""
        return sum(int(getattr(self, state)) for state in states)


@dataclass(frozen=True, slots=True)
class JobStats:
    """A job without its body; times in seconds."""

    id: int
    tube: str
    state: str
    pri: int
    delay_s: int
    ttr_s: int
    time_left_s: int
    age_s: int

    @classmethod
    def read(cls, reply: Reply) -> JobStats:
        """From the reply to stats-job."""
        found = parse(reply.expect(b"OK").body)
        # Interned: a tube of a million jobs has its name in memory once.
        return cls(
            id=int(found["id"]),
            tube=sys.intern(found["tube"]),
            state=sys.intern(found["state"]),
            pri=int(found["pri"]),
            delay_s=int(found["delay"]),
            ttr_s=int(found["ttr"]),
            time_left_s=int(found["time-left"]),
            age_s=int(found["age"]),
        )

    @property
    def remaining_delay_s(self) -> int:
        """How long it is still delayed, rounded down as the server does; 0 in other states."""
        return self.time_left_s if self.state == DELAYED else 0


def tube_stats(connection: Connection, tube: str) -> TubeStats:
    """Raises RefusedError if there is no such tube."""
    reply = connection.ask_one(b"stats-tube " + tube.encode())
    if reply is NOT_FOUND:
        raise no_tube(tube)
    return TubeStats.read(reply)


def no_tube(tube: str) -> errors.RefusedError:
    """The error for a tube that does not exist."""
    return errors.RefusedError(
        "NOT_FOUND", f"there is no tube {tube}; 'beanstalkd-py tubes' lists all (NOT_FOUND)"
    )


def job_stats(connection: Connection, ids: Sequence[int]) -> list[JobStats | None]:
    """One for each id, None where there is no such job."""
    replies = connection.ask([b"stats-job %d" % job for job in ids])
    return [None if reply is NOT_FOUND else JobStats.read(reply) for reply in replies]


@dataclass(frozen=True, slots=True)
class Look:
    """All of a server at about one moment."""

    server: Statistics
    tubes: list[TubeStats]


class Looker:
    """Looks at a server again and again, with one pipeline each time.

    The names of tubes are those of the look before; only new ones take a second pipeline.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: list[str] = []

    def look(self) -> Look:
        """What is there now, tubes by name."""
        server, replies = self.replies()
        return Look(server, sorted(map(TubeStats.read, replies), key=lambda row: row.tube))

    def replies(self) -> tuple[Statistics, list[Reply]]:
        """The same as the server says it; tubes in no order."""
        known = self._known
        head, listed, *replies = self._connection.ask([b"stats", b"list-tubes", *_each(known)])
        names = _names(listed)
        new = sorted(set(names) - set(known))
        replies += self._connection.ask(_each(new))
        self._known = sorted(names)
        # A tube can go between the list and its own reply.
        return parse(head.expect(b"OK").body), [one for one in replies if one is not NOT_FOUND]


def tube_names(connection: Connection) -> list[str]:
    """All tubes, by name."""
    return sorted(_names(connection.ask_one(b"list-tubes")))


def _names(reply: Reply) -> list[str]:
    lines = reply.expect(b"OK").body.decode().splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith("- ")]


def _each(names: Iterable[str]) -> list[bytes]:
    return [b"stats-tube " + name.encode() for name in names]
