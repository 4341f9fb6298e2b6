"""Statistics of a server, its tubes and its jobs, as records."""

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
"""The states in which any client can delete a job."""

Statistics = dict[str, str]
"""Keys and values in the server's order, without the quotes that 1.13 puts around strings."""


def parse(text: bytes) -> Statistics:
    values = {}
    for line in text.decode("utf-8", "replace").splitlines():
        key, colon, value = line.partition(": ")
        if colon:
            quoted = len(value) > 1 and value[0] == value[-1] == '"'
            values[key] = value[1:-1] if quoted else value
    return values


@dataclass(frozen=True, slots=True)
class TubeStats:
    """A tube's numbers of jobs and clients, and the remaining seconds of its pause."""

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
        values = parse(reply.expect(b"OK").body)
        jobs = {state: int(values[f"current-jobs-{state}"]) for state in (*STATES, "urgent")}
        return cls(
            tube=values["name"],
            using=int(values["current-using"]),
            watching=int(values["current-watching"]),
            waiting=int(values["current-waiting"]),
            total=int(values["total-jobs"]),
            paused_s=int(values["pause-time-left"]),
            **jobs,
        )

    @property
    def alive(self) -> int:
        return self.ready + self.reserved + self.delayed + self.buried

    def count(self, states: Iterable[str]) -> int:
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
        values = parse(reply.expect(b"OK").body)
        # Interning keeps one copy of a tube's name for a million jobs.
        return cls(
            id=int(values["id"]),
            tube=sys.intern(values["tube"]),
            state=sys.intern(values["state"]),
            pri=int(values["pri"]),
            delay_s=int(values["delay"]),
            ttr_s=int(values["ttr"]),
            time_left_s=int(values["time-left"]),
            age_s=int(values["age"]),
        )

    @property
    def remaining_delay_s(self) -> int:
        """The rest of the delay of a delayed job, rounded down by the server; otherwise 0."""
        return self.time_left_s if self.state == DELAYED else 0


def features_of(connection: Connection) -> frozenset[str]:
    """Return the extensions of a server; none for C beanstalkd."""
    reply = connection.execute(b"features")
    if reply.word != b"OK":
        return frozenset()
    return frozenset(line.removeprefix("- ") for line in reply.body.decode().splitlines()[1:])


def server_stats(connection: Connection) -> Statistics:
    return parse(connection.execute(b"stats").expect(b"OK").body)


def max_job_size(connection: Connection) -> int:
    return int(server_stats(connection)["max-job-size"])


def stats_tube_command(tube: str) -> bytes:
    return b"stats-tube " + tube.encode()


def tube_stats(connection: Connection, tube: str) -> TubeStats:
    """Return a tube's statistics. Raises RefusedError if the tube does not exist."""
    return existing_tube(connection.execute(stats_tube_command(tube)), tube)


def existing_tube(reply: Reply, tube: str) -> TubeStats:
    """Return the statistics of a reply. Raises RefusedError if the tube does not exist."""
    if reply is NOT_FOUND:
        raise no_tube(tube)
    return TubeStats.read(reply)


def no_tube(tube: str) -> errors.RefusedError:
    text = f'no such tube: {tube}; "beanstalkd-py tubes" lists all tubes (NOT_FOUND)'
    return errors.RefusedError("NOT_FOUND", text)


def job_stats(connection: Connection, ids: Sequence[int]) -> list[JobStats | None]:
    """Return the statistics for each id, None for a job that does not exist."""
    replies = connection.execute_all([b"stats-job %d" % job for job in ids])
    return [None if reply is NOT_FOUND else JobStats.read(reply) for reply in replies]


class StatsReader:
    """Reads all statistics of a server repeatedly, with one pipeline each time.

    Uses the tube names of the previous reply; only new tubes need a second pipeline.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: list[str] = []

    def tubes(self) -> list[TubeStats]:
        return sorted(map(TubeStats.read, self.replies()[1]), key=lambda row: row.tube)

    def replies(self) -> tuple[Statistics, list[Reply]]:
        """Return the server's statistics and the unparsed replies of all tubes, unsorted."""
        known = self._known
        commands = [b"stats", b"list-tubes", *map(stats_tube_command, known)]
        server, listed, *replies = self._connection.execute_all(commands)
        names = _names(listed)
        new = sorted(set(names) - set(known))
        replies += self._connection.execute_all(list(map(stats_tube_command, new)))
        self._known = sorted(names)
        # A tube may disappear after the server has listed it.
        return parse(server.expect(b"OK").body), [one for one in replies if one is not NOT_FOUND]


def tube_names(connection: Connection) -> list[str]:
    return sorted(_names(connection.execute(b"list-tubes")))


def _names(reply: Reply) -> list[str]:
    lines = reply.expect(b"OK").body.decode().splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith("- ")]
