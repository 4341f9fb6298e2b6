"""What a replay would put: jobs and bytes by priority and tag. It must not know servers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from beanstalkd_py.history.message import TAGS, Stored
from beanstalkd_py.history.queries.conditions import MessageFilter
from beanstalkd_py.history.queries.ranges import RangeItem
from beanstalkd_py.replay.jobs import Terms, bytes_left_out, job_of


@dataclass(slots=True)
class Kind:
    """Jobs of one priority that ended in one way."""

    jobs: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Preview:
    """Numbers of jobs. `kinds` is by priority and tag; times are of storing, in milliseconds."""

    jobs: int = 0
    bytes: int = 0
    left_out: int = 0
    lost: int = 0
    first_at: int | None = None
    last_at: int | None = None
    kinds: dict[tuple[int, str], Kind] = field(default_factory=dict)

    def add(self, message: Stored, terms: Terms) -> None:
        """One more that is wanted."""
        if bytes_left_out(message) is not None:
            self.left_out += 1
            return
        job = job_of(message, "", terms)
        kind = self.kinds.setdefault((job.pri, message.properties.get(TAGS, "")), Kind())
        for counted in (self, kind):
            counted.jobs += 1
            counted.bytes += len(job.body)
        if self.first_at is None:
            self.first_at = message.store_timestamp
        self.last_at = message.store_timestamp


def preview(
    part: Iterable[RangeItem], wanted: MessageFilter, terms: Terms, done: list[int]
) -> Preview:
    """Looks at all of it; `done` are offsets of messages that were put already."""
    found_now, put_already = Preview(), set(done)
    for found in part:
        if found.message is None:
            found_now.lost += 1
        elif found.offset not in put_already and wanted(found.message):
            found_now.add(found.message, terms)
    return found_now
