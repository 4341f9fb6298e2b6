"""Records of a report, whose size is bounded by that of the page.

Durations are seconds, sizes bytes, times aware datetimes in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

STATES = ("ready", "ready_or_reserved", "reserved", "delayed", "buried", "unknown")
"""As in tube_metrics; jobs in the last one may have ended."""

ENDS = {
    "deletes": "deleted",
    "truncates": "truncated",
    "moves": "moved",
    "expires": "expired",
    "dead_letters": "dead-lettered",
    "discards": "discarded",
}
"""How jobs ended, by the columns that count them."""

Times = tuple[float | None, ...]
Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Windows:
    """Consecutive windows of time, with a value for each window in each column.

    States are jobs at the end of a window. `wait_*` is of jobs first reserved in it, `finish_*` of
    jobs that ended in it, None without any; `*_unknown` counts those whose time is not known.
    """

    begin: datetime
    window_s: float
    puts: Counts = ()
    deletes: Counts = ()
    truncates: Counts = ()
    moves: Counts = ()
    expires: Counts = ()
    dead_letters: Counts = ()
    discards: Counts = ()
    reserves: Counts = ()
    releases: Counts = ()
    timeouts: Counts = ()
    buries: Counts = ()
    kicks: Counts = ()
    put_bytes: Counts = ()
    wait_p50_s: Times = ()
    wait_p90_s: Times = ()
    wait_p99_s: Times = ()
    finish_p50_s: Times = ()
    finish_p90_s: Times = ()
    finish_p99_s: Times = ()
    wait_unknown: Counts = ()
    finish_unknown: Counts = ()
    ready: Counts = ()
    ready_or_reserved: Counts = ()
    reserved: Counts = ()
    delayed: Counts = ()
    buried: Counts = ()
    unknown: Counts = ()

    def __len__(self) -> int:
        return len(self.puts)

    @property
    def end(self) -> datetime:
        return self.begin + timedelta(seconds=self.window_s * len(self))

    @property
    def finished(self) -> Counts:
        """Jobs that ended, in whatever way."""
        columns = (getattr(self, name) for name in ENDS)
        return tuple(map(sum, zip(*columns, strict=True)))

    @property
    def depth(self) -> Counts:
        """Jobs that are known to be there."""
        columns = (getattr(self, name) for name in STATES if name != "unknown")
        return tuple(map(sum, zip(*columns, strict=True)))

    @property
    def most_depth(self) -> Counts:
        """Jobs that may be there."""
        return tuple(map(sum, zip(self.depth, self.unknown, strict=True)))

    @property
    def left(self) -> tuple[int, int]:
        """The least and the greatest possible number of jobs at the end."""
        return self.depth[-1], self.most_depth[-1]


@dataclass(frozen=True, slots=True)
class Percentiles:
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None


@dataclass(frozen=True, slots=True)
class Certainty:
    exact: int = 0
    derived: int = 0
    bounded: int = 0

    @property
    def total(self) -> int:
        return self.exact + self.derived + self.bounded


@dataclass(frozen=True, slots=True)
class Tube:
    """A tube of a host. `name` is None for jobs whose full entry was removed."""

    host: str
    name: str | None
    windows: Windows
    wait: Percentiles = Percentiles()
    finish: Percentiles = Percentiles()


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead jobs of one tube with the same signature, which is None without a body."""

    host: str
    tube: str | None
    signature: str | None
    jobs: int
    buried: int
    timed_out: int
    oldest_s: float | None
    last_event_at: datetime | None
    sample_id: int
    sample_body: str | None


@dataclass(frozen=True, slots=True)
class BinlogFile:
    host: str
    shard: str
    file: str
    size: int
    live_bytes: int
    live_jobs: int
    oldest_job_id: int | None
    oldest_job_tube: str | None
    oldest_job_put_at: datetime | None


@dataclass(frozen=True, slots=True)
class Shard:
    host: str
    shard: str
    files: int
    size: int
    live_bytes: int
    write_amplification: float | None


@dataclass(frozen=True, slots=True)
class Disk:
    """Disk use of binlogs. `files` are those with most dead bytes, by number."""

    shards: tuple[Shard, ...]
    files: tuple[BinlogFile, ...]
    more_files: int = 0
    more_shards: int = 0

    @property
    def size(self) -> int:
        return sum(shard.size for shard in self.shards)

    @property
    def live_bytes(self) -> int:
        return sum(shard.live_bytes for shard in self.shards)


@dataclass(frozen=True, slots=True)
class Violation:
    host: str
    shard: str
    file: str
    offset: int
    id: int | None
    what: str


@dataclass(frozen=True, slots=True)
class Violations:
    kinds: tuple[tuple[str, int], ...] = ()
    first: tuple[Violation, ...] = ()

    @property
    def total(self) -> int:
        return sum(count for _, count in self.kinds)


@dataclass(frozen=True, slots=True)
class Input:
    """An input path; `kind` is `binlog` or `history`."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class ReportData:
    """A report.

    `windows` is None without events. `disk` and `violations` are None without binlogs. `tubes` are
    those with most jobs, `more_tubes` is the number of others. `earlier` counts jobs put before the
    first window, `incomplete` jobs without a put, `faults` places that could not be read.
    """

    inputs: tuple[Input, ...]
    made_at: datetime
    windows: Windows | None = None
    servers: tuple[str, ...] = ()
    hosts: int = 0
    jobs: int = 0
    earlier: int = 0
    incomplete: int = 0
    certainty: Certainty = Certainty()
    wait: Percentiles = Percentiles()
    finish: Percentiles = Percentiles()
    tubes: tuple[Tube, ...] = ()
    more_tubes: int = 0
    more_puts: int = 0
    dead: tuple[DeadGroup, ...] = ()
    more_dead_groups: int = 0
    more_dead_jobs: int = 0
    disk: Disk | None = None
    violations: Violations | None = None
    faults: int = 0

    @property
    def many_hosts(self) -> bool:
        return self.hosts > 1
