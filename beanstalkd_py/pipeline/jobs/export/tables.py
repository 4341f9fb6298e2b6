"""The two data sets of an export: `entries` of binlogs, `messages` of history stores.

What each has for columns, and how rows are divided among folders: by date (UTC) and tube.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from beanstalkd_py.pipeline.binlogs.follower import BinlogFollowing
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.binlogs.table import COLUMNS as ENTRY_COLUMNS
from beanstalkd_py.pipeline.sources.columns import Column as TableColumn
from beanstalkd_py.pipeline.sources.frames import LocalTask
from beanstalkd_py.pipeline.sources.spark_types import struct_of
from beanstalkd_py.pipeline.stores.follower import StoreFollowing
from beanstalkd_py.pipeline.stores.plan import StorePlan
from beanstalkd_py.pipeline.stores.tables import MESSAGES

PARTITIONS = ("date", "tube")
LONGEST_NAME = 250
"""Bytes that the name of a folder may have on usual file systems, less what Hadoop adds."""
_ESCAPED = r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]"
"""What Spark writes as three characters in the name of a folder."""
DAY_US = 86_400 * 10**6


def _usual(columns: Sequence[TableColumn], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(column.name for column in columns if column.usual or column.name in more)


@dataclass(frozen=True, slots=True)
class Table:
    """`name` is the data set's folder; `plan` reads what rows come from, `following` follows it."""

    name: str
    plan: Any
    following: Any
    columns: tuple[str, ...]
    time: str
    finds_tubes: bool
    """Whether rows may lack their tube, which others of the same job have."""

    def follow(
        self, paths: Sequence[str], bodies: bool, options: dict[str, str], fail_on_loss: bool
    ) -> Followed:
        """What there is below some paths. Raises PipelineUsageError."""
        names = [*self.columns, *(["body"] if bodies else [])]
        plan = self.plan.of({**options, "paths": json.dumps(list(paths))}, names)
        return Followed(self.following(plan, fail_on_loss), struct_of(plan.table))

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """Rows with the columns of their folders, which are last."""
        others = [name for name in rows.columns if name not in PARTITIONS]
        day = f.floor(f.unix_micros(self.time) / f.lit(float(DAY_US))).cast("int")
        date = f.date_from_unix_date(day).alias("date")
        return rows.select(*others, date, folder_tube(f.col("tube")).alias("tube"))


@dataclass(frozen=True, slots=True)
class Followed:
    """Files that grow: `files` has positions in them, and what lies between two of those."""

    files: Any
    schema: StructType

    def rows(self, spark: SparkSession, start: dict[str, Any], end: dict[str, Any]) -> DataFrame:
        """What lies between. Raises DataLossError."""
        tasks = tuple(tuple(files) for files in self.files.between(start, end))
        numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))
        return numbers.mapInArrow(LocalTask(self.files, tasks), self.schema)


def folder_tube(tube: Column) -> Column:
    """The tube as a folder is named after it.

    A name of many characters that are escaped may be too long for a folder. Such a tube is its
    first 60 characters, a tilde (which no tube has) and the MD5 of its name.
    """
    escaped = f.length(tube) + 2 * f.regexp_count(tube, f.lit(_ESCAPED))
    short = f.concat(f.substring(tube, 1, 60), f.lit("~"), f.md5(tube.cast("binary")))
    return f.when(escaped + len("tube=") > LONGEST_NAME, short).otherwise(tube)


ENTRIES = Table(
    "entries",
    BinlogPlan,
    BinlogFollowing,
    _usual(ENTRY_COLUMNS, ("created_at_ns",)),
    "event_time",
    finds_tubes=True,
)
MESSAGES_TABLE = Table(
    "messages",
    StorePlan,
    StoreFollowing,
    _usual(MESSAGES, ("properties",)),
    "storeTimestamp",
    finds_tubes=False,
)
TABLES = (ENTRIES, MESSAGES_TABLE)
