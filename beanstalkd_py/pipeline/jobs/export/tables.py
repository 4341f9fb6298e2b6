"""The data sets of an export, `entries` and `messages`: columns, partitions, writing.

Rows are partitioned by date (UTC) and tube.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.binlogs.follower import BinlogFollower
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.binlogs.table import COLUMNS as ENTRY_COLUMNS
from beanstalkd_py.pipeline.sources.columns import Column as TableColumn
from beanstalkd_py.pipeline.sources.columns import Table
from beanstalkd_py.pipeline.sources.follower import Follower, Position
from beanstalkd_py.pipeline.sources.frames import LocalTask, of_tasks
from beanstalkd_py.pipeline.sources.plan import Plan
from beanstalkd_py.pipeline.stores.follower import StoreFollower
from beanstalkd_py.pipeline.stores.plan import StorePlan
from beanstalkd_py.pipeline.stores.tables import MESSAGES

PARTITIONS = ("date", "tube")
LONGEST_NAME = 250
"""Limit of a folder's name in bytes on most file systems, without what Hadoop adds."""
_ESCAPED = r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]"
"""Characters that Spark escapes as three in the name of a folder."""
DAY_US = 86_400 * 10**6


def _usual(columns: Sequence[TableColumn], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(column.name for column in columns if column.usual or column.name in more)


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set in the folder `name`.

    `finds_tubes`: rows may lack their tube, which other rows of the same job have.
    """

    name: str
    plan: type[Plan[Any]]
    follower: type[Follower[Any]]
    columns: tuple[str, ...]
    time: str
    finds_tubes: bool

    def follow(
        self, paths: Sequence[str], bodies: bool, options: dict[str, str], fail_on_loss: bool
    ) -> FollowedFiles:
        names = [*self.columns, *(["body"] if bodies else [])]
        plan = self.plan.of({**options, "paths": json.dumps(list(paths))}, names)
        return FollowedFiles(self.follower(plan, fail_on_loss), plan.table)

    def partitioned(self, rows: DataFrame) -> DataFrame:
        others = [name for name in rows.columns if name not in PARTITIONS]
        day = f.floor(f.unix_micros(self.time) / f.lit(float(DAY_US))).cast("int")
        date = f.date_from_unix_date(day).alias("date")
        return rows.select(*others, date, folder_tube(f.col("tube")).alias("tube"))


@dataclass(frozen=True, slots=True)
class FollowedFiles:
    files: Follower[Any]
    table: Table

    def rows(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        tasks = tuple(map(tuple, self.files.between(start, end)))
        return of_tasks(spark, LocalTask(self.files, tasks), self.table)


def folder_tube(tube: Column) -> Column:
    """Return the tube as the name of a folder.

    A name that is too long once escaped becomes its first 60 characters, a tilde, which no tube
    name contains, and the MD5 of the name.
    """
    escaped = f.length(tube) + 2 * f.regexp_count(tube, f.lit(_ESCAPED))
    short = f.concat(f.substring(tube, 1, 60), f.lit("~"), f.md5(tube.cast("binary")))
    return f.when(escaped + len("tube=") > LONGEST_NAME, short).otherwise(tube)


ENTRIES = DataSet(
    "entries",
    BinlogPlan,
    BinlogFollower,
    _usual(ENTRY_COLUMNS, ("created_at_ns",)),
    "event_time",
    finds_tubes=True,
)
MESSAGES_SET = DataSet(
    "messages",
    StorePlan,
    StoreFollower,
    _usual(MESSAGES, ("properties",)),
    "storeTimestamp",
    finds_tubes=False,
)
DATA_SETS = (ENTRIES, MESSAGES_SET)


def write_parquet(rows: DataFrame, path: str, *partitions: str) -> None:
    rows.write.option("compression", "zstd").partitionBy(*partitions).parquet(path)
