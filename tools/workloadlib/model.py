"""A model of the server: jobs and tubes as acknowledged. Every change is logged."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from . import ContradictionError
from .connection import When
from .event_log import LogWriter

ENTRY_BYTES = 84
"""Size of an entry without tube and body."""
SHA_DIGITS = 16
NEVER = When(0, 0, "")


def sha_of(body: bytes) -> str:
    """Return the start of the SHA-256."""
    return hashlib.sha256(body).hexdigest()[:SHA_DIGITS]


@dataclass(slots=True, eq=False)
class Tube:
    """`unwatched`: the tube has jobs of a timed phase, and no consumer watches it."""

    name: str
    bury: float
    ready: int = 0
    reserved: int = 0
    buried: dict[int, Job] = field(default_factory=dict)
    delayed: dict[int, Job] = field(default_factory=dict)
    put: int = 0
    deleted: int = 0
    truncated: int = 0
    unwatched: bool = False

    @property
    def wire(self) -> bytes:
        return self.name.encode()

    @property
    def jobs(self) -> int:
        return self.ready + self.reserved + len(self.buried) + len(self.delayed)


@dataclass(slots=True, eq=False)
class Job:
    """`text` is the common part of its log lines; `when` is that of its last event.

    Delay and TTR are seconds.
    """

    tube: Tube
    kind: str
    pri: int
    delay: int
    ttr: int
    size: int
    sha: str
    id: int = 0
    state: str = "new"
    reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    text: str = ""
    when: When = NEVER

    @property
    def short_ttr(self) -> bool:
        """Return whether its TTR may run out while it is reserved."""
        return self.ttr < 60


class Model:
    """Each method is an event."""

    def __init__(self, tubes: list[Tube], log: LogWriter) -> None:
        self.tubes = tubes
        self.jobs: dict[int, Job] = {}
        self.by_tube: dict[str, Counter[str]] = {tube.name: Counter() for tube in tubes}
        self.entry_bytes = 0
        self._log = log

    @property
    def ready(self) -> int:
        """Ready jobs in watched tubes."""
        return sum(tube.ready for tube in self.tubes if not tube.unwatched)

    def put(self, job: Job, when: When) -> None:
        if self.jobs.setdefault(job.id, job) is not job:
            raise ContradictionError(f"the id {job.id} was given twice")
        tube = job.tube
        job.text = (
            f'"tube":"{tube.name}","ttr":{job.ttr},"body_bytes":{job.size},'
            f'"body_sha":"{job.sha}","type":"{job.kind}"'
        )
        tube.put += 1
        self.entry_bytes += ENTRY_BYTES + len(tube.name) + job.size + 2
        self._enter(job, "delayed" if job.delay else "ready")
        self._log_event("put", job, when)

    def reserve(self, job: Job, when: When) -> None:
        self._leave(job, "ready", "buried", "delayed")
        job.reserves += 1
        self._enter(job, "reserved")
        self._log_event("reserve", job, when)

    def touch(self, job: Job, when: When) -> None:
        if job.state != "reserved":
            raise ContradictionError(f"job {job.id} is {job.state} and was touched")
        self._log_event("touch", job, when)

    def release(self, job: Job, pri: int, delay: int, when: When) -> None:
        self._leave(job, "reserved")
        job.pri, job.delay = pri, delay
        job.releases += 1
        self.entry_bytes += ENTRY_BYTES
        self._enter(job, "delayed" if delay else "ready")
        self._log_event("release", job, when)

    def bury(self, job: Job, pri: int, when: When) -> None:
        self._leave(job, "reserved")
        job.pri = pri
        job.buries += 1
        self.entry_bytes += ENTRY_BYTES
        self._enter(job, "buried")
        self._log_event("bury", job, when)

    def kick(self, job: Job, when: When) -> None:
        self._leave(job, "buried", "delayed")
        job.kicks += 1
        self.entry_bytes += ENTRY_BYTES
        self._enter(job, "ready")
        self._log_event("kick", job, when)

    def timeout(self, job: Job, when: When) -> None:
        self._leave(job, "reserved")
        job.timeouts += 1
        self._enter(job, "ready")
        self._log_event("timeout", job, when)

    def give_back(self, job: Job, when: When) -> None:
        self._leave(job, "reserved")
        self._enter(job, "ready")
        self._log_event("return", job, when)

    def due(self, job: Job, when: When) -> None:
        self._leave(job, "delayed")
        self._enter(job, "ready")
        self._log_event("due", job, when)

    def delete(self, job: Job, when: When) -> None:
        self._leave(job, "ready", "reserved", "buried", "delayed")
        job.tube.deleted += 1
        self._end("delete", job, when)

    def truncate(self, job: Job, when: When) -> None:
        self._leave(job, "ready", "buried", "delayed")
        job.tube.truncated += 1
        self._end("truncate", job, when)

    def _end(self, event: str, job: Job, when: When) -> None:
        job.state = "deleted"
        self.entry_bytes += ENTRY_BYTES
        del self.jobs[job.id]
        self._log_event(event, job, when)

    def _enter(self, job: Job, state: str) -> None:
        job.state = state
        tube = job.tube
        if state == "ready":
            tube.ready += 1
        elif state == "reserved":
            tube.reserved += 1
        elif state == "buried":
            tube.buried[job.id] = job
        else:
            tube.delayed[job.id] = job

    def _leave(self, job: Job, *states: str) -> None:
        if job.state not in states:
            raise ContradictionError(f"job {job.id} is {job.state}, not {' or '.join(states)}")
        tube = job.tube
        if job.state == "ready":
            tube.ready -= 1
        elif job.state == "reserved":
            tube.reserved -= 1
        elif job.state == "buried":
            del tube.buried[job.id]
        else:
            del tube.delayed[job.id]

    def _log_event(self, event: str, job: Job, when: When) -> None:
        job.when = when
        self.by_tube[job.tube.name][event] += 1
        self._log.event(
            f'"at_ns":{when.at_ns},"sent_ns":{when.sent_ns},"event":"{event}","id":{job.id},'
            f'"pri":{job.pri},"delay":{job.delay},{job.text},"conn":"{when.conn}"}}\n'
        )
