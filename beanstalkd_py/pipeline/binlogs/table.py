"""The table of binlog files: one row for each entry of a job.

The entry of the highest id at the beginning of a file is not a row.

Times are microseconds, or nanoseconds in columns named `_ns`. `delay` and `ttr` are seconds, as in
the protocol; sizes and offsets are bytes. `old_deadline_at_ns` is the end of the last TTR or delay,
which C beanstalkd leaves in entries without a deadline.
"""

from __future__ import annotations

from beanstalkd_py.pipeline._columns import lib
from beanstalkd_py.pipeline.sources.columns import (
    BINARY,
    FLAG,
    INT,
    LONG,
    STRING,
    TIME,
    Column,
    Kind,
    constant,
    fixed,
    text,
    word,
)
from beanstalkd_py.pipeline.sources.read_modes import CORRUPT

COLUMNS = (
    constant("host", STRING),
    constant("shard", STRING),
    constant("file", STRING),
    constant("file_number", LONG),
    fixed("offset", lib.BC_OFFSET, LONG),
    word("kind", lib.BC_KIND),
    fixed("id", lib.BC_ID, LONG),
    text("tube", lib.BC_TUBE, nullable=True),
    fixed("priority", lib.BC_PRIORITY, LONG),
    fixed("delay", lib.BC_DELAY, LONG),
    fixed("ttr", lib.BC_TTR, LONG),
    fixed("body_size", lib.BC_BODY_SIZE, INT),
    fixed("created_at", lib.BC_CREATED_AT, TIME),
    fixed("event_time", lib.BC_EVENT_TIME, TIME),
    word("event_time_kind", lib.BC_EVENT_KIND),
    fixed("deadline_at", lib.BC_DEADLINE_AT, TIME, nullable=True),
    fixed("reserved_at", lib.BC_RESERVED_AT, TIME, nullable=True),
    word("state", lib.BC_STATE),
    word("ended", lib.BC_ENDED, nullable=True),
    fixed("reserves", lib.BC_RESERVES, LONG),
    fixed("timeouts", lib.BC_TIMEOUTS, LONG),
    fixed("releases", lib.BC_RELEASES, LONG),
    fixed("buries", lib.BC_BURIES, LONG),
    fixed("kicks", lib.BC_KICKS, LONG),
    word("checksum", lib.BC_CHECKSUM),
    fixed("is_copy", lib.BC_IS_COPY, FLAG),
    Column("path", STRING, Kind.CONSTANT, is_default=False),
    fixed("size", lib.BC_SIZE, LONG, is_default=False),
    fixed("event_time_until", lib.BC_EVENT_UNTIL, TIME, nullable=True, is_default=False),
    fixed("created_at_ns", lib.BC_CREATED_NS, LONG, is_default=False),
    fixed("event_time_ns", lib.BC_EVENT_NS, LONG, is_default=False),
    fixed("deadline_at_ns", lib.BC_DEADLINE_NS, LONG, nullable=True, is_default=False),
    fixed("reserved_at_ns", lib.BC_RESERVED_NS, LONG, nullable=True, is_default=False),
    fixed("old_deadline_at_ns", lib.BC_OLD_DEADLINE_NS, LONG, nullable=True, is_default=False),
    text("body", lib.BC_BODY, BINARY, nullable=True, is_default=False),
    Column(CORRUPT, STRING, Kind.FAULT),
)
