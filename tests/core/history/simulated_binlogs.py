"""Simulated servers that only write binlog files, and the expected histories of their jobs.

The entries follow the format's description only. A simulated server writes all entries that ours
writes with a history, or omits some of them, or writes them as C beanstalkd does. The expected
message of each job is a dict.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

from beanstalkd_py.core.job_history import JobHistories
from beanstalkd_py.history.message import decode_properties

SECOND = 10**9
START = 1_700_000_000 * SECOND
JOBREC = struct.Struct("<QIIqqiIqqIIIIIB3s")
HEADER = struct.pack("<i", 7)
INVALID, READY, RESERVED, BURIED, DELAYED = range(5)
BY_POLICY = ("expired", "dead-lettered", "discarded")
ENDS = ("deleted", "truncated", "moved", *BY_POLICY)
AGE_BITS = 29
"""Of the time since a reserve, in the last entry of a job that no client deleted."""
ITEM = struct.Struct("=IiiiqqqiIHHii16s16sI")
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")
TUBES = (b"default", b"mail", b"t" * 200)
MOST_BODY = 60


def _table() -> list[int]:
    rows = []
    for byte in range(256):
        register = byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
        rows.append(register)
    return rows


_TABLE = _table()
_TABLE_OF_TWO = [_TABLE[high ^ low & 255] ^ low >> 8 for high in range(256) for low in _TABLE]


def crc32c(data: bytes) -> int:
    """CRC-32C, two bytes at a time after the first one of an odd number."""
    register = 0xFFFFFFFF
    odd = len(data) & 1
    if odd:
        register = (register >> 8) ^ _TABLE[(register ^ data[0]) & 255]
    table = _TABLE_OF_TWO
    for two in struct.unpack_from(f"<{len(data) // 2}H", data, odd):
        register = (register >> 16) ^ table[(register ^ two) & 0xFFFF]
    return register ^ 0xFFFFFFFF


@dataclass
class Job:
    """The server's state of a job; `events` and `recorded_*` are what its entries show."""

    id: int
    tube: bytes
    body: bytes
    pri: int
    delay: int
    ttr: int
    created: int
    state: int = READY
    deadline: int = 0
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    folder: int = 0
    file: int = 0
    events: list[str] = field(default_factory=list)
    recorded_state: int = READY
    recorded_deadline: int = 0
    recorded_counters: dict[str, int] = field(default_factory=dict)
    pending_reserve: int | None = None
    came_back: str = ""
    """How, if its last entry records that, too."""


def entry_bytes(
    job: Job, state: int, at: int, file: int, *, full: bool, ours: bool, ended: int = 0
) -> bytes:
    """One entry; without `ours` as C beanstalkd writes it, without mark and checksum."""
    name = job.tube if full else b""
    mark = bytes([0xBD, file & 255, file >> 8 & 255]) if ours else bytes(3)

    def made(crc: int) -> bytes:
        record = JOBREC.pack(
            job.id,
            job.pri,
            crc,
            job.delay * SECOND,
            job.ttr * SECOND,
            len(job.body) + 2,
            ended,
            job.created,
            at,
            *(job.counters[name] for name in COUNTERS),
            state,
            mark,
        )
        body = job.body + b"\r\n" if full else b""
        return struct.pack("<i", len(name)) + name + record + body

    return made(crc32c(made(0)) if ours else 0)


def last_id_bytes(number: int, now: int, file: int) -> bytes:
    """Return the first entry of a file: the highest id so far."""

    def made(crc: int) -> bytes:
        mark = bytes([0xBD, file & 255, file >> 8 & 255])
        record = JOBREC.pack(number, 0, crc, 0, 0, 0, 0, now, now, 0, 0, 0, 0, 0, INVALID, mark)
        return bytes(4) + record

    return made(crc32c(made(0)))


@dataclass(frozen=True)
class JobMessage:
    """A message, field by field, and the position of the entry that made it."""

    place: tuple[int, int]
    topic: bytes
    properties: dict[str, str]
    body: bytes
    born: int
    reconsumed: int


def unpack(items: bytes) -> list[JobMessage]:
    """Return the messages of a batch of hs_item; checks the fields that are the same in all."""
    found = []
    at = 0
    while at < len(items):
        (size, queue, flag, system, born, stored, prepared, reconsumed, body, topic, length) = (
            ITEM.unpack_from(items, at)[:11]
        )
        ports_and_hosts = ITEM.unpack_from(items, at)[11:]
        assert (queue, flag, system, stored, prepared) == (0, 0, 0, 0, 0)
        host = bytes([127, 0, 0, 1]) + bytes(12)
        assert ports_and_hosts == (0, 0, host, host, 0)
        start = at + ITEM.size
        text = items[start + topic : start + topic + length]
        assert text.endswith(b"\x02")
        properties = decode_properties(text)
        _, file, offset = properties["UNIQ_KEY"].rsplit("-", 2)
        end = start + topic + length + body
        assert size % 8 == 0 and size - (end - at) < 8 and not any(items[end : at + size])
        found.append(
            JobMessage(
                (int(file), int(offset)),
                items[start : start + topic],
                properties,
                items[end - body : end],
                born,
                reconsumed,
            )
        )
        at += size
    return found


class Server:
    """Writes one folder. `entries`: all that ours writes for a history; `ours`: not C's."""

    def __init__(self, world: World, index: int, path: Path) -> None:
        self.world = world
        self.index = index
        self.path = path
        self.number = 0
        self.size = 0
        self.ours = True
        self.numbers: list[int] = []
        self.aside: set[int] = set()
        self.messages: list[JobMessage] = []
        self._name = ""

    def file(self, number: int) -> Path:
        return self.path / f"binlog.{number}"

    def roll(self, skip: int, ours: bool) -> None:
        """Start the next file, and remove old ones without live jobs."""
        self.number += 1 + skip
        self.ours = ours
        self.size = len(HEADER)
        self.numbers.append(self.number)
        self.file(self.number).write_bytes(HEADER)
        self._name = str(self.file(self.number))
        last = self.world.last_id
        if (
            ours
            and last
            and self.world.live.get(last, Job(0, b"", b"", 0, 0, 0, 0)).folder
            != (self.index if last in self.world.live else -1)
        ):
            self._write(last_id_bytes(last, self.world.now, self.number))
        self.collect()

    def collect(self) -> None:
        """Rename the files that are not needed any more, from the oldest on."""
        pinned = {job.file for job in self.world.live.values() if job.folder == self.index}
        while self.numbers[0] != self.number and self.numbers[0] not in pinned:
            old = self.numbers.pop(0)
            ending = ".bad" if old in self.aside else ".done"
            self.file(old).rename(self.path / f"binlog.{old}{ending}")

    def _write(self, data: bytes) -> int:
        at = self.size
        file = os.open(self._name, os.O_WRONLY | os.O_APPEND)
        try:
            assert os.write(file, data) == len(data)
        finally:
            os.close(file)
        self.size += len(data)
        return at

    def write(self, job: Job, state: int, at: int, full: bool = False, ended: int = 0) -> int:
        """An entry of this job."""
        if full:
            job.folder, job.file = self.index, self.number
        data = entry_bytes(job, state, at, self.number, full=full, ours=self.ours, ended=ended)
        return self._write(data)


class World:
    """Some servers, their jobs, and the messages of those that have ended."""

    def __init__(self, folder: Path, servers: int, history: bool, most_events: int = 256) -> None:
        self.now = START
        self.last_id = 0
        self.live: dict[int, Job] = {}
        self.history = history
        self.most_events = most_events
        self.servers = []
        for index in range(servers):
            path = folder / f"shard-{index:03}"
            path.mkdir()
            self.servers.append(Server(self, index, path))
            self.servers[-1].roll(0, True)

    # --- entries and events -------------------------------------------------------------------

    def _event(self, job: Job, kind: str, at: int | None, more: str = "") -> None:
        late = at is not None and job.recorded_state == DELAYED and at > job.recorded_deadline
        if late and kind != "kick":
            job.events.append(f"due@{job.recorded_deadline}")
        job.events.append(f"{kind}@{'?' if at is None else at}{more}")

    def _record(self, job: Job, kind: str, full: bool = False, ended: int = 0) -> int:
        """Write an entry of the job's state, and note its event."""
        server = self.servers[job.folder]
        has_deadline = job.state in (RESERVED, DELAYED)
        known = has_deadline or server.ours
        reserves = job.counters["reserves"] - job.recorded_counters["reserves"]
        was_reserved = job.recorded_state == RESERVED
        age = self._pending_reserve_flags(job)
        place = server.write(
            job, job.state, job.deadline if has_deadline else self.now, full, ended | age
        )
        if age and reserves:
            is_known = reserves == 1 and not was_reserved
        else:
            is_known = was_reserved and not reserves and job.came_back != "return"
            is_known = is_known and ended >> AGE_BITS & 3 > 1  # those two act on returns only
        if job.came_back and is_known:
            pri = f",pri={job.pri}" if job.came_back == "release" else ""
            self._event(job, job.came_back, self.now, pri)
        more = f",pri={job.pri}" if kind in ("release", "bury") else ""
        if kind == "release" and job.delay:
            more += f",delay={job.delay}"
        self._event(job, kind, self.now if known else None, more)
        self._note(job)
        return place

    def _pending_reserve_flags(self, job: Job) -> int:
        """Return the flags of an entry that also records an earlier reserve."""
        if job.state == RESERVED or job.pending_reserve is None:
            return 0
        held, reserved = self.now - job.pending_reserve, job.pending_reserve
        job.pending_reserve = None
        if job.counters["reserves"] > job.recorded_counters["reserves"]:
            self._event(job, "reserve", reserved)
            # A delay that was due before the recorded reserve is not due again.
            job.recorded_state = RESERVED
        return held + 1

    def _note(self, job: Job) -> None:
        job.recorded_state = job.state
        job.recorded_deadline = job.deadline
        job.recorded_counters = dict(job.counters)

    # --- what happens -------------------------------------------------------------------------

    def put(self, index: int, tube: bytes, body: bytes, pri: int, delay: int, ttr: int) -> Job:
        self.last_id += 1
        job = Job(self.last_id, tube, body, pri, delay, ttr, self.now, folder=index)
        if delay:
            job.state, job.deadline = DELAYED, self.now + delay * SECOND
        self.live[job.id] = job
        at = job.deadline if delay else self.now
        self.servers[index].write(job, job.state, at, full=True)
        more = f",delay={delay}" if delay else ""
        job.events.append(f"put@{self.now},pri={pri}{more}")
        self._note(job)
        return job

    def wake(self, job: Job) -> None:
        """The delay may be over; no entry states that."""
        if job.state == DELAYED and self.now > job.deadline:
            job.state = READY

    def reserve(self, job: Job) -> None:
        job.state, job.deadline = RESERVED, self.now + job.ttr * SECOND
        job.counters["reserves"] += 1
        if self.history and self.servers[job.folder].ours and job.id % 2:
            job.pending_reserve = self.now
        elif self.history:
            self._record(job, "reserve")

    def record_reserve(self, job: Job) -> None:
        """Write the deferred entry of a reserve that is still pending."""
        if job.pending_reserve is not None and job.state == RESERVED:
            job.pending_reserve = None
            if job.counters["reserves"] > job.recorded_counters["reserves"]:
                now, self.now = self.now, job.deadline - job.ttr * SECOND
                self._record(job, "reserve")
                self.now = now

    def touch(self, job: Job) -> None:
        self.record_reserve(job)
        job.deadline = self.now + job.ttr * SECOND
        if self.history:
            self._record(job, "touch")

    def ready(self, job: Job, kind: str) -> None:
        """`timeout`, `return`, `kick`, or `release` without delay."""
        counter = {"timeout": "timeouts", "kick": "kicks", "release": "releases"}.get(kind)
        if counter:
            job.counters[counter] += 1
        job.state = READY
        if self.history or kind in ("kick", "release"):
            self._record(job, kind)

    def release(self, job: Job, pri: int, delay: int) -> None:
        job.pri, job.delay = pri, delay
        if not delay:
            self.ready(job, "release")
            return
        job.counters["releases"] += 1
        job.state, job.deadline = DELAYED, self.now + delay * SECOND
        self._record(job, "release")

    def bury(self, job: Job, pri: int) -> None:
        job.pri, job.state = pri, BURIED
        job.counters["buries"] += 1
        self._record(job, "bury")

    def copy(self, job: Job, index: int | None = None) -> None:
        """Its full entry once more, in the current file."""
        if index is not None:
            job.folder = index
        grown = any(job.counters[name] > job.recorded_counters[name] for name in COUNTERS)
        server = self.servers[job.folder]
        has_deadline = job.state in (RESERVED, DELAYED)
        server.write(job, job.state, job.deadline if has_deadline else self.now, full=True)
        if grown:
            # Without a history, reserves, touches, timeouts and returns have no entries.
            if job.state == RESERVED:
                new = job.counters["reserves"] > job.recorded_counters["reserves"]
                kind = "reserve" if new else "touch"
            else:
                late = job.counters["timeouts"] > job.recorded_counters["timeouts"]
                kind = "timeout" if late else "return"
            at: int | None = self.now if server.ours else None
            if job.state == RESERVED:
                at = job.deadline - job.ttr * SECOND
            self._event(job, kind, at)
        elif job.recorded_state == DELAYED and job.state == READY:
            job.events.append(f"due@{job.recorded_deadline}")
        self._note(job)

    def delete(self, job: Job, ended: str = "deleted") -> None:
        server = self.servers[job.folder]
        if not server.ours:
            ended = "deleted"
        if ended in ("dead-lettered", "discarded") and job.state != RESERVED:
            ended = "expired"
        if ended == "truncated" and job.state == RESERVED:
            ended = "moved"
        number = BY_POLICY.index(ended) + 1 if ended in BY_POLICY else 0
        since = job.pending_reserve
        too_long = since is not None and self.now - since >= (1 << AGE_BITS) - 1
        if ended == "moved" or (number and too_long):
            self.record_reserve(job)
        file = server.number
        if number and job.state == RESERVED:
            self._come_back(job)
        job.state = INVALID
        flags = 1 << 31 | number << AGE_BITS if ended != "deleted" else 0
        if ended == "moved":
            flags |= 1
        place = self._record(job, "delete", ended=flags)
        del self.live[job.id]
        server.messages.append(self._message(job, server, (file, place), ended))

    def _come_back(self, job: Job) -> None:
        """Release it or time it out, or disconnect its client; the end of the job records that."""
        kind = ("release", "timeout", "return")[job.id % 3]
        if kind != "return":
            job.counters[f"{kind}s"] += 1
        job.came_back = kind

    def _message(self, job: Job, server: Server, place: tuple[int, int], ended: str) -> JobMessage:
        properties = {
            "TUBE": job.tube.decode(),
            "KEYS": str(job.id),
            "TAGS": ended,
            "UNIQ_KEY": f"{key_of(server.index)}-{place[0]}-{place[1]}",
            "pri": str(job.pri),
            "delay": str(job.delay),
            "ttr": str(job.ttr),
            **{name: str(job.counters[name]) for name in COUNTERS},
            "timeline": timeline(job.events, self.most_events),
        }
        body = job.body
        if len(body) > MOST_BODY:
            properties["body-bytes"] = str(len(body))
            body = b""
        return JobMessage(
            place,
            topic_of(job.tube),
            properties,
            body,
            job.created // 10**6,
            max(job.counters["reserves"] - 1, 0),
        )


def timeline(events: list[str], most: int) -> str:
    """Return the first half and the last half of too many events."""
    if len(events) > most:
        first, last = most // 2, most - most // 2
        events = [*events[:first], f"...{len(events) - most}", *events[-last:]]
    return ";".join(events)


def topic_of(tube: bytes) -> bytes:
    return b"topic_" + tube


def key_of(index: int) -> str:
    return f"world-{index:03}"


def step(world: World, dice: tuple[int, int, int, int]) -> None:
    """Do one possible step, chosen by these numbers."""
    what, which, a, b = dice
    world.now += (b % 7) * SECOND // 2
    for lasting in world.live.values():
        if lasting.pending_reserve is not None and world.now - lasting.pending_reserve > 2 * SECOND:
            world.record_reserve(lasting)
    server = world.servers[which % len(world.servers)]
    if what < 30 or not world.live:
        body = bytes([65 + a % 26]) * (b % 70)
        world.put(server.index, TUBES[a % 3], body, a, (0, 0, 0, 2)[b % 4], 3 + a % 9)
        return
    if what < 38:
        server.roll(skip=int(b % 5 == 0), ours=a % 4 > 0 or world.history)
        if b % 3 == 0:
            server.aside.add(server.number)
        return
    job = list(world.live.values())[which % len(world.live)]
    world.wake(job)
    if what < 46:
        world.copy(job)
    elif what < 60:
        world.delete(job, ENDS[a % len(ENDS)])
    elif job.state == READY:
        world.reserve(job)
    elif job.state == RESERVED:
        if what < 70:
            world.release(job, b, (0, 0, 1, 3)[a % 4])
        elif what < 78:
            world.bury(job, b)
        elif what < 86:
            world.touch(job)
        else:
            world.ready(job, "timeout" if what < 94 else "return")
    else:
        world.ready(job, "kick")


def follow(world: World, histories: JobHistories) -> None:
    """Make it follow all folders of the world."""
    for server in world.servers:
        assert histories.add_folder(server.path, key_of(server.index)) == server.index


def read_all(
    histories: JobHistories, folder: int, file: int, end: int, budget: int = 1 << 20
) -> list[JobMessage]:
    """Read everything."""
    messages = []
    while True:
        progress = histories.read(folder, file, end, budget)
        found = unpack(progress.items)
        assert len(found) == progress.count
        messages += found
        if not progress.more:
            return messages
