"""Whether a log and a history store agree: each job that has ended is there once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import WorkloadError
from .check import COUNTERS, MOST_TOLD
from .lives import Lives
from .world import sha_of

_EVENT = re.compile(r"(?:^|;)([a-z]+)@")


@dataclass
class Told:
    """What the store has.

    `without_due`: jobs that lack a due. No entry tells of it, so when compaction copies the job
    before its next event, the copy says ready, and the history cannot know since when.
    """

    messages: int = 0
    without_due: int = 0
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
        lacking = f", {self.without_due} of them without a due" if self.without_due else ""
        return f"log and history {said}: {self.messages} messages{lacking}"


def check_history(lives: Lives, folder: Path) -> Told:
    """Raises WorkloadError if the store cannot be read."""
    from beanstalkd_py import errors
    from beanstalkd_py.history.reader import StoreReader

    told = Told()
    seen: set[int] = set()
    try:
        with StoreReader.open(folder) as store:
            for message in store.scan():
                told.messages += 1
                _message(lives, message, seen, told)
    except (errors.BeanstalkdError, OSError) as error:
        raise WorkloadError(f"cannot read {folder}: {error}") from error
    for job in lives.packed:
        if lives.ended(job) and job not in seen:
            told.complain(f"history: job {job} has ended and is not there")
    return told


def _message(lives: Lives, message: Any, seen: set[int], told: Told) -> None:
    properties: dict[str, str] = message.properties
    job = int(properties["KEYS"])
    if job in seen:
        told.complain(f"history: job {job} is there twice")
        return
    seen.add(job)
    if job not in lives.packed or not lives.ended(job):
        told.complain(f"history: job {job} has not ended in the log")
        return
    life = lives.life(job)
    last = life.moments[-1]
    expected = {
        "TUBE": life.tube,
        "TAGS": "truncated" if last.kind == "truncate" else "deleted",
        "pri": str(last.pri),
        "delay": str(last.delay),
        "ttr": str(life.ttr),
        **dict(zip(COUNTERS, map(str, last.counters), strict=True)),
    }
    for name, value in expected.items():
        if properties.get(name) != value:
            found = properties.get(name, "missing")
            told.complain(f"history: job {job}: {name} is {found}, {value} in the log")
    # How it has ended is said by the tag: the last event is called delete either way.
    kinds = [*lives.kinds(job)[:-1], "delete"]
    events = _EVENT.findall(properties.get("timeline", ""))
    if _lacks_dues(events, kinds):
        told.without_due += 1
    elif events != kinds:
        told.complain(f"history: job {job} has {' '.join(events)}, the log {' '.join(kinds)}")
    if len(message.body) != life.size:
        told.complain(f"history: job {job} has a body of {len(message.body)} bytes")
    elif (sha := sha_of(message.body)) != life.sha:
        text = f"job {job} has another body: its sha is {sha}, {life.sha} in the log"
        told.complain(f"history: {text}")


def _lacks_dues(events: list[str], kinds: list[str]) -> bool:
    """Whether they are the same but for one due or several that are missing."""
    rest = iter(events)
    following = next(rest, None)
    lacking = False
    for kind in kinds:
        if kind == following:
            following = next(rest, None)
        elif kind == "due":
            lacking = True
        else:
            return False
    return lacking and following is None
