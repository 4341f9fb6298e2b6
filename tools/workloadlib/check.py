"""Whether a log and a binlog folder agree: each entry has its event, and the other way round.

Each full entry has the body that was put, too, and times are those of the log. The folder is read
by the package's own reader.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from . import WorkloadError
from .entry_bodies import EntryBodies
from .lives import Life, Lives, Moment
from .world import sha_of

MOST_TOLD = 20
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")
WRITTEN = frozenset({"put", "bury", "kick", "delete", "truncate"})
"""Events that have an entry, whatever the server; and releases with a delay, those of ours all."""
SLACK_NS = 10**9
"""A server reads its clock once for all it does in a round, and a round may wait for a disk."""

Entry = dict[str, Any]


@dataclass
class Verdict:
    """`lost` are jobs of which entries went with files that the server has removed."""

    entries: int = 0
    copies: int = 0
    notes: int = 0
    jobs: int = 0
    lost: int = 0
    disagreements: int = 0
    wrong: list[str] = field(default_factory=list)

    def complain(self, text: str) -> None:
        """The first ones are kept."""
        self.disagreements += 1
        if len(self.wrong) < MOST_TOLD:
            self.wrong.append(text)

    def summary(self) -> str:
        """One line."""
        said = "agree" if not self.disagreements else f"disagree {self.disagreements} times"
        gone = f", {self.lost} jobs with entries in files that were removed" if self.lost else ""
        return (
            f"log and binlog {said}: {self.jobs} jobs, {self.entries} entries, of these"
            f" {self.copies} copies and {self.notes} notes{gone}"
        )


@dataclass(slots=True)
class Followed:
    """A job between its first entry and its end. `at` is the moment of its last entry, or -1."""

    life: Life
    at: int = -1
    full: bool = False


class _Check:
    def __init__(self, lives: Lives, complete: bool, bodies: EntryBodies) -> None:
        self.lives = lives
        self.bodies = bodies
        self.complete = complete
        self.verdict = Verdict(jobs=len(lives.packed))
        self.ours = lives.parameters.get("server") != "c"
        self.open: dict[int, Followed] = {}
        self.done: set[int] = set()
        for text in lives.wrong:
            self.verdict.complain(text)

    def written(self, moment: Moment) -> bool:
        """Whether the server has to write an entry of it."""
        return moment.kind in WRITTEN or (
            moment.kind == "release" and (self.ours or moment.delay > 0)
        )

    def entry(self, entry: Entry) -> None:
        """The next one of the folder."""
        verdict = self.verdict
        if entry["kind"] not in ("full", "short"):
            verdict.complain(f"{_place(entry)}: {entry['what']}")
            return
        job = entry["id"]
        if entry["state"] == "deleted" and not entry["body_bytes"] and not entry["ttr_s"]:
            return  # tells the highest id, and nothing of a job
        verdict.entries += 1
        if job in self.done:
            verdict.complain(f"{_place(entry)}: job {job} has an entry behind its end")
            return
        followed = self.open.get(job)
        if followed is None:
            if job not in self.lives.packed:
                verdict.complain(f"{_place(entry)}: job {job} is not in the log")
                return
            followed = self.open[job] = Followed(self.lives.life(job))
        self._match(entry, job, followed)

    def _match(self, entry: Entry, job: int, followed: Followed) -> None:
        full = entry["kind"] == "full"
        place = _place(entry)
        life = followed.life
        said = (entry["tube"] if full else life.tube, entry["ttr_s"], entry["body_bytes"])
        if said != (life.tube, life.ttr, life.size):
            self.verdict.complain(f"{place}: job {job} has another tube, TTR or size: {said}")
        if not _is_then(entry["created_at"], life.moments[0]):
            self.verdict.complain(f"{place}: job {job} was not put at {entry['created_at']}")
        if full:
            self._body(entry, job, life)
        at = self._moment(entry, followed, full)
        if at is None:
            self.verdict.complain(f"{place}: job {job}: the log has no such moment: {_said(entry)}")
            return
        skipped = followed.life.moments[followed.at + 1 : at]
        if self.complete or followed.at >= 0:
            for moment in skipped:
                if self.written(moment):
                    self.verdict.complain(f"{place}: job {job} has no entry of its {moment.kind}")
        if full and (followed.full or at > 0):
            self.verdict.copies += 1
        elif not self.written(followed.life.moments[at]):
            self.verdict.notes += 1
        followed.at = at
        followed.full = followed.full or full
        if entry["state"] == "deleted":
            del self.open[job]
            self.done.add(job)

    def _body(self, entry: Entry, job: int, life: Life) -> None:
        # Entries of C beanstalkd have no checksum, so that nothing else finds a bit that is wrong.
        if (sha := sha_of(self.bodies.read(entry))) != life.sha:
            text = f"job {job} has another body: its sha is {sha}, {life.sha} in the log"
            self.verdict.complain(f"{_place(entry)}: {text}")

    def _moment(self, entry: Entry, followed: Followed, full: bool) -> int | None:
        """The first it can be. A copy tells again what an entry before it has told.

        An entry's own time, where it has one, is that of its moment. A job that was reserved is
        copied as a ready one, whose time is another.
        """
        moments = followed.life.moments
        time = entry["event_at"] if not full or entry["state"] == "delayed" else None
        first = max(0, followed.at) if full else followed.at + 1
        counters = tuple(entry[name] for name in COUNTERS)
        for at in range(first, len(moments)):
            moment = moments[at]
            told = (entry["pri"], entry["delay_s"], counters)
            alike = told == (moment.pri, moment.delay, moment.counters)
            if alike and _same(entry, moment, full) and (not time or _is_then(time, moment)):
                return at
        return None

    def end(self) -> Verdict:
        """What should have been there and was not."""
        for job, followed in self.open.items():
            rest = followed.life.moments[followed.at + 1 :]
            for moment in rest:
                if self.written(moment):
                    self.verdict.complain(f"job {job} has no entry of its {moment.kind}")
            if not followed.full:
                self.verdict.complain(f"job {job} is there and has no full entry")
        for job in self.lives.packed:
            if job in self.done or job in self.open:
                continue
            if self.complete or not self.lives.ended(job):
                self.verdict.complain(f"job {job} has no entry")
            else:
                self.verdict.lost += 1
        return self.verdict


def _same(entry: Entry, moment: Moment, full: bool) -> bool:
    state = entry["state"]
    if state == "deleted":
        ended = "truncated" if moment.kind == "truncate" else "deleted"
        return moment.state == state and bool(entry["ended"] == ended)
    # A start takes reserved jobs for ready ones, and so does who copies them.
    alike = full and {state, moment.state} == {"ready", "reserved"}
    return alike or bool(state == moment.state)


def _said(entry: Entry) -> str:
    counters = " ".join(f"{name} {entry[name]}" for name in COUNTERS)
    at = f" at {entry['event_at']}" if entry["event_at"] else ""
    return f"{entry['state']}{at}, pri {entry['pri']}, delay {entry['delay_s']}, {counters}"


def _is_then(text: str, moment: Moment) -> bool:
    """Whether a time of a dump is that of a moment: 2023-11-14T22:13:20.123456789Z."""
    seconds, _, rest = text.removesuffix("Z").partition(".")
    at_ns = int(datetime.fromisoformat(f"{seconds}+00:00").timestamp()) * 10**9 + int(rest)
    return moment.sent_ns - SLACK_NS <= at_ns <= moment.at_ns + SLACK_NS


def _place(entry: Entry) -> str:
    return f"{entry['file']}:{entry['offset']}"


def check(lives: Lives, folder: Path) -> Verdict:
    """Raises WorkloadError if the folder cannot be read."""
    from beanstalkd_py import errors
    from beanstalkd_py.binlog.folders import look_at

    try:
        found = look_at(folder)
        # Files go from the oldest on.
        complete = all(min(shard.numbers(), default=0) == 1 for shard in found.shards)
        with contextlib.closing(EntryBodies(folder)) as bodies:
            checking = _Check(lives, complete, bodies)
            _read(found, checking.entry)
        return checking.end()
    except (errors.BeanstalkdError, OSError) as error:
        raise WorkloadError(f"cannot read {folder}: {error}") from error


def _read(folder: Any, take: Callable[[Entry], None]) -> None:
    """All entries there are, and what is damaged, as `binlog dump --json` has them."""
    from beanstalkd_py.binlog.dump import dump
    from beanstalkd_py.core.binlog_reader import Selection

    def sink(text: Any) -> None:
        for line in bytes(text).splitlines():
            take(json.loads(line))

    dump(folder, Selection(as_json=True), sink)
