"""Preview of a replay: jobs and bytes by priority and tag."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from beanstalkd_py.history.message import TAGS, Stored
from beanstalkd_py.history.queries.conditions import MessageFilter
from beanstalkd_py.history.queries.ranges import RangeItem
from beanstalkd_py.replay.jobs import JobOverrides, job_of, missing_body_size


@dataclass(slots=True)
class JobCount:
    jobs: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Preview:
    """Numbers of jobs. `kinds` is by (priority, tag); times of storing are in milliseconds."""

    jobs: int = 0
    bytes: int = 0
    left_out: int = 0
    lost: int = 0
    first_at: int | None = None
    last_at: int | None = None
    kinds: dict[tuple[int, str], JobCount] = field(default_factory=dict)

    def add(self, message: Stored, overrides: JobOverrides) -> None:
        if missing_body_size(message) is not None:
            self.left_out += 1
            return
        job = job_of(message, "", overrides)
        kind = self.kinds.setdefault((job.pri, message.properties.get(TAGS, "")), JobCount())
        for counter in (self, kind):
            counter.jobs += 1
            counter.bytes += len(job.body)
        if self.first_at is None:
            self.first_at = message.store_timestamp
        self.last_at = message.store_timestamp


def preview_replay(
    items: Iterable[RangeItem], matches: MessageFilter, overrides: JobOverrides, done: list[int]
) -> Preview:
    """Preview all items but those at the offsets `done`, which were put before."""
    preview, done_offsets = Preview(), set(done)
    for item in items:
        if item.message is None:
            preview.lost += 1
        elif item.offset not in done_offsets and matches(item.message):
            preview.add(item.message, overrides)
    return preview
