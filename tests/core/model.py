"""The queue as a page of plain Python: what every command does, with linear searches in lists.

Slow on purpose, so that it can be compared with docs/protocol.md line by line. Nothing here is
shared with the core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from core.rig import NEVER, SECOND


@dataclass(eq=False)
class Job:
    id: int
    tube: Tube
    pri: int
    delay: int
    ttr: int
    created: int
    state: str = ""
    at: int = 0  # deadline, or for buried jobs the order of burying
    claim: int = 0  # the order of reserving
    holder: Session | None = None
    key: str = ""  # unique in its tube
    window: int = 0  # seconds after its end for which it keeps the key
    unwritten: bool = False  # reserved by id since its last entry, which may say buried or delayed
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ["reserves", "timeouts", "releases", "buries", "kicks"], 0
        )
    )

    @property
    def order(self) -> tuple[int, int]:
        return (self.pri, self.id)


@dataclass(eq=False)
class Tube:
    name: str
    number: int
    pause: int = 0
    unpause_at: int = 0
    total: int = 0
    deletes: int = 0
    pauses: int = 0


@dataclass(eq=False)
class Session:
    number: int
    use: Tube
    watched: list[Tube]
    waiting_since: int = 0  # the order of waiting; 0: it does not wait
    awaited: int = 0  # the job that it waits for; 0: none
    until: int = NEVER
    key: str = ""  # of its next put
    window: int = 0
    batch: int = 0  # the most jobs of the reserve that waits; 0: one, in another form
    out: bytes = b""

    @property
    def waits(self) -> bool:
        return self.waiting_since > 0 or self.awaited > 0

    def stop_waiting(self) -> None:
        self.waiting_since = self.awaited = 0


class Model:
    """Replies gather in each session's `out`."""

    def __init__(self, mono: int) -> None:
        self.now = mono
        self.jobs: dict[int, Job] = {}
        self.ended: dict[
            tuple[str, str], tuple[int, int]
        ] = {}  # keys of ended jobs, and until when
        self.tubes: dict[str, Tube] = {}
        self.sessions: list[Session] = []
        self.last_id = self.last_session = self.last_tube = self.turn = self.claims = 0
        self.total = self.timeouts = 0
        # May this job follow the first one in a batch?
        self.may_join: Callable[[Session, Job, Job], bool] = lambda session, first, job: True
        self._tube("default")

    # --- tubes and sessions ---

    def _tube(self, name: str) -> Tube:
        if name not in self.tubes:
            self.last_tube += 1
            self.tubes[name] = Tube(name, self.last_tube)
        return self.tubes[name]

    def _let_go(self) -> None:
        wanted = {"default"} | {job.tube.name for job in self.jobs.values()}
        for session in self.sessions:
            wanted |= {session.use.name} | {tube.name for tube in session.watched}
        for name in [name for name in self.tubes if name not in wanted]:
            del self.tubes[name]

    def open(self) -> Session:
        self.last_session += 1
        default = self._tube("default")
        self.sessions.append(Session(self.last_session, default, [default]))
        return self.sessions[-1]

    def close(self, session: Session) -> None:
        session.stop_waiting()
        for job in sorted(self.held_by(session), key=lambda job: job.claim):
            self._make_ready(job)
        self.sessions.remove(session)
        self._let_go()

    def held_by(self, session: Session) -> list[Job]:
        return [job for job in self.jobs.values() if job.holder is session]

    def in_state(self, tube: Tube, state: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.tube is tube and job.state == state]

    def use(self, session: Session, name: str) -> None:
        session.use = self._tube(name)
        session.out += b"USING %b\r\n" % name.encode()
        self._let_go()

    def watch(self, session: Session, name: str) -> None:
        tube = self._tube(name)
        if tube not in session.watched:
            session.watched.append(tube)
        session.out += b"WATCHING %d\r\n" % len(session.watched)

    def ignore(self, session: Session, name: str) -> None:
        names = [tube.name for tube in session.watched]
        if names == [name]:
            session.out += b"NOT_IGNORED\r\n"
            return
        if name in names:
            # The last one replaces it in the list.
            last = session.watched.pop()
            if last.name != name:
                session.watched[names.index(name)] = last
        session.out += b"WATCHING %d\r\n" % len(session.watched)
        self._let_go()

    def pause(self, session: Session, name: str, seconds: int) -> None:
        tube = self.tubes.get(name)
        if tube is None:
            session.out += b"NOT_FOUND\r\n"
            return
        tube.pause = seconds * SECOND
        tube.unpause_at = self.now + tube.pause
        tube.pauses += 1
        session.out += b"PAUSED\r\n"
        self._serve(tube)

    # --- into a state ---

    def _make_ready(self, job: Job) -> None:
        job.state, job.holder = "ready", None
        self._serve(job.tube)

    def _make_delayed(self, job: Job) -> None:
        job.state, job.holder, job.at = "delayed", None, self.now + job.delay * SECOND

    def _serve(self, tube: Tube) -> None:
        while not tube.pause:
            waiting = [s for s in self.sessions if s.waiting_since and tube in s.watched]
            ready = self.in_state(tube, "ready")
            if not waiting or not ready:
                return
            first = min(waiting, key=lambda session: session.waiting_since)
            first.waiting_since = 0
            self._give(first, min(ready, key=lambda job: job.order))

    def _give(self, session: Session, job: Job) -> None:
        self._hold(session, job)
        if not session.batch:
            session.out += b"RESERVED %d 1\r\nx\r\n" % job.id
            return
        jobs = [job]
        while len(jobs) < session.batch:
            found = [other for other in self.free(session) if self.may_join(session, job, other)]
            if not found:
                break
            jobs.append(min(found, key=lambda job: job.order))
            self._hold(session, jobs[-1])
        lines = (b"JOB %d %b 1\r\nx\r\n" % (one.id, one.tube.name.encode()) for one in jobs)
        session.out += b"BATCH %d\r\n" % len(jobs) + b"".join(lines)

    def free(self, session: Session) -> list[Job]:
        """Return the jobs that the session could reserve."""
        free = [tube for tube in session.watched if not tube.pause]
        return [job for tube in free for job in self.in_state(tube, "ready")]

    def _hold(self, session: Session, job: Job) -> None:
        job.state, job.holder, job.at = "reserved", session, self.now + job.ttr * SECOND
        self.claims += 1
        job.claim = self.claims
        job.counts["reserves"] += 1

    # --- commands on jobs ---

    def with_key(self, session: Session, key: str) -> None:
        self.with_window(session, key, 0)

    def with_window(self, session: Session, key: str, window: int) -> None:
        session.key, session.window = key, window
        session.out += b"WITH\r\n"

    def owner(self, tube: Tube, key: str) -> int:
        """Return the id of the job that has the key, or had it and is within its window; or 0."""
        for job in self.jobs.values():
            if (job.tube.name, job.key) == (tube.name, key):
                return job.id
        number, until = self.ended.get((tube.name, key), (0, 0))
        return number if until > self.now else 0

    def _end(self, job: Job) -> None:
        del self.jobs[job.id]
        if job.key and job.window:
            until = -(-self.now // SECOND) * SECOND + job.window * SECOND
            self.ended[job.tube.name, job.key] = (job.id, until)

    def put(self, session: Session, pri: int, delay: int, ttr: int) -> None:
        self.last_id += 1
        key, session.key = session.key, ""
        owner = self.owner(session.use, key) if key else 0
        if owner:
            session.out += b"INSERTED %d\r\n" % owner
            return
        job = Job(self.last_id, session.use, pri, delay, ttr or 1, self.now)
        job.key, job.window = key, session.window if key else 0
        self.jobs[job.id] = job
        self.total += 1
        job.tube.total += 1
        session.out += b"INSERTED %d\r\n" % job.id
        if delay:
            self._make_delayed(job)
        else:
            self._make_ready(job)

    def reserve(self, session: Session, seconds: int | None, batch: int = 0) -> None:
        session.batch = batch
        watched = [job for tube in session.watched for job in self.in_state(tube, "ready")]
        free = [job for job in watched if not job.tube.pause]
        if self._soon_at(session) <= self.now and not (watched and free):
            session.out += b"DEADLINE_SOON\r\n"
        elif free:
            self._give(session, min(free, key=lambda job: job.order))
        elif seconds == 0:
            session.out += b"TIMED_OUT\r\n"
        else:
            self.turn += 1
            session.waiting_since = self.turn
            session.until = NEVER if seconds is None else self.now + seconds * SECOND

    def await_job(self, session: Session, number: int, seconds: int) -> None:
        job = self.jobs.get(number)
        if job is None:
            session.out += b"NOT_FOUND\r\n"
        elif job.state == "buried":
            session.out += b"BURIED %d\r\n" % number
        elif self._soon_at(session) <= self.now:
            session.out += b"DEADLINE_SOON\r\n"
        elif seconds == 0:
            session.out += b"TIMED_OUT\r\n"
        else:
            session.awaited = number
            session.until = self.now + seconds * SECOND

    def reserve_batch(self, session: Session, most: int, seconds: int) -> None:
        self.reserve(session, seconds, most)

    def abort(self, session: Session) -> None:
        if session.waits:
            session.stop_waiting()
            session.out += b"TIMED_OUT\r\n"
        session.out += b"ABORTED\r\n"

    def _answer_waiters(self, job: Job, word: bytes) -> None:
        for session in self.sessions:
            if session.awaited == job.id:
                session.stop_waiting()
                session.out += b"%b %d\r\n" % (word, job.id)

    def reserve_job(self, session: Session, number: int) -> None:
        job = self.jobs.get(number)
        if job is None or job.state == "reserved":
            session.out += b"NOT_FOUND\r\n"
        else:
            job.unwritten = True
            session.batch = 0
            self._give(session, job)

    def _held(self, session: Session, number: int) -> Job | None:
        job = self.jobs.get(number)
        if job is not None and job.holder is session:
            return job
        session.out += b"NOT_FOUND\r\n"
        return None

    def delete(self, session: Session, number: int) -> None:
        job = self.jobs.get(number)
        if job is None or job.holder not in (None, session):
            session.out += b"NOT_FOUND\r\n"
            return
        self._end(job)
        job.tube.deletes += 1
        session.out += b"DELETED\r\n"
        self._answer_waiters(job, b"DELETED")
        self._let_go()

    def release(self, session: Session, number: int, pri: int, delay: int) -> None:
        if job := self._held(session, number):
            job.pri, job.delay, job.unwritten = pri, delay, False
            job.counts["releases"] += 1
            session.out += b"RELEASED\r\n"
            if delay:
                self._make_delayed(job)
            else:
                self._make_ready(job)

    def bury(self, session: Session, number: int, pri: int) -> None:
        if job := self._held(session, number):
            self.turn += 1
            job.state, job.holder, job.pri, job.at = "buried", None, pri, self.turn
            job.counts["buries"] += 1
            job.unwritten = False
            session.out += b"BURIED\r\n"
            self._answer_waiters(job, b"BURIED")

    def touch(self, session: Session, number: int) -> None:
        if job := self._held(session, number):
            job.at = self.now + job.ttr * SECOND
            session.out += b"TOUCHED\r\n"

    def _kick(self, job: Job) -> None:
        job.counts["kicks"] += 1
        job.unwritten = False
        self._make_ready(job)

    def kick(self, session: Session, bound: int) -> None:
        found = self.in_state(session.use, "buried") or self.in_state(session.use, "delayed")
        chosen = sorted(found, key=lambda job: (job.at, job.id))[:bound]
        session.out += b"KICKED %d\r\n" % len(chosen)
        for job in chosen:
            self._kick(job)

    def kick_job(self, session: Session, number: int) -> None:
        job = self.jobs.get(number)
        if job is None or job.state not in ("buried", "delayed"):
            session.out += b"NOT_FOUND\r\n"
            return
        session.out += b"KICKED\r\n"
        self._kick(job)

    def truncate(self, session: Session, name: str) -> None:
        free = [j for j in self.jobs.values() if j.tube.name == name and j.state != "reserved"]
        for job in free:
            self._end(job)
            self._answer_waiters(job, b"DELETED")
        session.out += b"TRUNCATED %d\r\n" % len(free)
        self._let_go()

    def move(self, session: Session, number: int, name: str, pri: int, delay: int) -> None:
        job = self.jobs.get(number)
        if job is None or job.holder not in (None, session):
            session.out += b"NOT_FOUND\r\n"
            return
        self.last_id += 1
        moved = Job(self.last_id, self._tube(name), pri, delay, job.ttr, job.created)
        moved.counts = dict(job.counts)
        self.jobs[moved.id] = moved
        self.total += 1
        moved.tube.total += 1
        if delay:
            self._make_delayed(moved)
        else:
            self._make_ready(moved)
        del self.jobs[number]
        session.out += b"MOVED %d\r\n" % moved.id
        self._answer_waiters(job, b"DELETED")
        self._let_go()

    def list_jobs(self, session: Session, name: str, state: str, after: int, limit: int) -> None:
        found = [job for number, job in sorted(self.jobs.items()) if number > after]
        found = [job for job in found if job.tube.name == name and state in ("any", job.state)]
        rows = "".join(f"\n- {{{self._row(job)}}}" for job in found[:limit]) or " []"
        following = found[limit - 1].id if len(found) > limit else 0
        text = f"---\njobs:{rows}\nnext: {following}\n"
        session.out += f"OK {len(text)}\r\n{text}\r\n".encode()

    def _row(self, job: Job) -> str:
        timed = job.state in ("reserved", "delayed")
        left = (job.at - self.now) // SECOND if timed else 0
        first = f"id: {job.id}, state: {job.state}, pri: {job.pri}"
        times = f"age: {(self.now - job.created) // SECOND}, delay: {job.delay}, ttr: {job.ttr}"
        counts = ", ".join(f"{key}: {count}" for key, count in job.counts.items())
        return f"{first}, {times}, time-left: {left}, {counts}, bytes: 1"

    # --- time ---

    def _soon_at(self, session: Session) -> int:
        return min((job.at for job in self.held_by(session)), default=NEVER) - SECOND

    def run_until(self, mono: int) -> None:
        """Everything that happens by itself up to that moment, one after another."""
        while True:
            due = [*self._tube_events(), *self._session_events()]
            at, _, _, happen = min(due, key=lambda event: event[:3], default=(NEVER, 0, 0, None))
            if at > mono or happen is None:
                break
            self.now = at
            happen()
        self.now = mono

    def _tube_events(self) -> list[tuple[int, int, int, Callable[[], None]]]:
        events: list[tuple[int, int, int, Callable[[], None]]] = []
        for tube in self.tubes.values():
            delayed = self.in_state(tube, "delayed")
            if delayed:
                job = min(delayed, key=lambda job: (job.at, job.id))
                events.append((job.at, 0, tube.number, partial(self._make_ready, job)))
            if tube.pause:
                end = (tube.unpause_at, 1, tube.number, partial(self._unpause, tube))
                events.append(end)
        return events

    def _session_events(self) -> list[tuple[int, int, int, Callable[[], None]]]:
        events: list[tuple[int, int, int, Callable[[], None]]] = []
        for session in self.sessions:
            times = [job.at for job in self.held_by(session)]
            if session.waits:
                times += [self._soon_at(session), session.until]
            at = min(times, default=NEVER)
            events.append((at, 2, session.number, partial(self._session_due, session)))
        return events

    def _unpause(self, tube: Tube) -> None:
        tube.pause = 0
        self._serve(tube)

    def _session_due(self, session: Session) -> None:
        if session.waits and self._soon_at(session) <= self.now:
            session.stop_waiting()
            session.out += b"DEADLINE_SOON\r\n"
        for job in sorted(self.held_by(session), key=lambda job: (job.at, job.id)):
            if job.at <= self.now:
                job.counts["timeouts"] += 1
                self.timeouts += 1
                self._make_ready(job)
        if session.waits and session.until <= self.now:
            session.stop_waiting()
            session.out += b"TIMED_OUT\r\n"
