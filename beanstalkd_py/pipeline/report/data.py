"""What a report shows, as plain records: no larger than the page, whatever there was to read.

Knows neither Spark nor HTML. Durations are seconds, sizes bytes, times aware datetimes in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

STATES = ("ready", "reserved", "delayed", "buried")

Times = tuple[float | None, ...]
Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Windows:
    """What happened in windows of time that follow each other, a column for each thing counted.

    All columns have the same length. The states are jobs at the end of a window; `wait_*` is of
    jobs first reserved in it, `finish_*` of jobs that ended in it, None if there were none.
    """

    begin: datetime
    window_s: float
    puts: Counts = ()
    deletes: Counts = ()
    truncates: Counts = ()
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
    ready: Counts = ()
    reserved: Counts = ()
    delayed: Counts = ()
    buried: Counts = ()

    def __len__(self) -> int:
        return len(self.puts)

    @property
    def end(self) -> datetime:
        """Where the last window ends."""
        return self.begin + timedelta(seconds=self.window_s * len(self))

    @property
    def finished(self) -> Counts:
        """Jobs that ended: deleted or truncated."""
        return tuple(map(sum, zip(self.deletes, self.truncates, strict=True)))

    @property
    def depth(self) -> Counts:
        """Jobs that were there."""
        columns = (self.ready, self.reserved, self.delayed, self.buried)
        return tuple(map(sum, zip(*columns, strict=True)))


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of a duration over the whole span; None if nothing had one."""

    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None


@dataclass(frozen=True, slots=True)
class Certainty:
    """How many events have times of each kind."""

    exact: int = 0
    derived: int = 0
    bounded: int = 0

    @property
    def total(self) -> int:
        """All events."""
        return self.exact + self.derived + self.bounded


@dataclass(frozen=True, slots=True)
class Tube:
    """One tube of one host. `name` is None for jobs whose full entry is gone."""

    host: str
    name: str | None
    windows: Windows
    wait: Percentiles = Percentiles()
    finish: Percentiles = Percentiles()


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Jobs that are buried or time out again and again, of one tube and alike in their bodies.

    `signature` and `sample_body` are None if no body was read.
    """

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
    """One file of a binlog, and the oldest live job that keeps it."""

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
    """All binlog files of one worker."""

    host: str
    shard: str
    files: int
    size: int
    live_bytes: int
    write_amplification: float | None


@dataclass(frozen=True, slots=True)
class Disk:
    """What binlogs hold. Files are those with most dead bytes, in the order of their numbers."""

    shards: tuple[Shard, ...]
    files: tuple[BinlogFile, ...]
    more_files: int = 0
    more_shards: int = 0

    @property
    def size(self) -> int:
        """Bytes of all shards shown."""
        return sum(shard.size for shard in self.shards)

    @property
    def live_bytes(self) -> int:
        """Bytes that live jobs need, of all shards shown."""
        return sum(shard.live_bytes for shard in self.shards)


@dataclass(frozen=True, slots=True)
class Violation:
    """A place in a binlog that contradicts what a server can have written."""

    host: str
    shard: str
    file: str
    offset: int
    id: int | None
    what: str


@dataclass(frozen=True, slots=True)
class Violations:
    """How many there are, of each kind the number, and the first of them."""

    kinds: tuple[tuple[str, int], ...] = ()
    first: tuple[Violation, ...] = ()

    @property
    def total(self) -> int:
        """All of them."""
        return sum(count for _, count in self.kinds)


@dataclass(frozen=True, slots=True)
class Input:
    """A path that was read, and what is there: `binlog` or `history`."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class ReportData:
    """All of a report.

    `windows` is None if nothing happened. `disk` and `violations` are None if no binlog was read:
    a history has neither. `tubes` are those with most jobs, `more_tubes` counts the rest. `earlier`
    counts jobs put before the first window, `incomplete` those of which no put was read, `unread`
    places that could not be read and are left out.
    """

    inputs: tuple[Input, ...]
    made_at: datetime
    windows: Windows | None = None
    servers: tuple[str, ...] = ()
    hosts: int = 0
    lives: int = 0
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
    unread: int = 0

    @property
    def many_hosts(self) -> bool:
        """Whether a tube has to be told by its host, too."""
        return self.hosts > 1


def spans_decades(values: Times, factor: float = 30.0) -> bool:
    """Whether the largest of what is known is more than `factor` times the smallest above 0."""
    known = sorted(value for value in values if value is not None and value > 0)
    return bool(known) and known[-1] > factor * known[0]
