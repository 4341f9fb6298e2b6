"""The two data sets of an export: `entries` of binlogs, `messages` of history stores.

What each has for columns, and how rows are divided among folders: by date (UTC) and tube.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.binlog_table import COLUMNS as ENTRY_COLUMNS
from beanstalkd_py.pipeline.columns import Column as TableColumn
from beanstalkd_py.pipeline.store_tables import MESSAGES

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
    """`name` is the data set's folder, `source` Spark's name for where rows come from."""

    name: str
    source: str
    columns: tuple[str, ...]
    time: str
    finds_tubes: bool
    """Whether rows may lack their tube, which others of the same job have."""

    def stream(
        self, spark: SparkSession, paths: Sequence[str], bodies: bool, options: dict[str, str]
    ) -> DataFrame:
        """What is new, as rows of the source."""
        names = [*self.columns, *(["body"] if bodies else [])]
        reader = spark.readStream.format(self.source).options(**options)
        return reader.options(paths=json.dumps(list(paths)), columns=",".join(names)).load()

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """Rows with the columns of their folders, which are last."""
        others = [name for name in rows.columns if name not in PARTITIONS]
        day = f.floor(f.unix_micros(self.time) / f.lit(float(DAY_US))).cast("int")
        date = f.date_from_unix_date(day).alias("date")
        return rows.select(*others, date, folder_tube(f.col("tube")).alias("tube"))


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
    "beanstalkd_binlog",
    _usual(ENTRY_COLUMNS, ("created_at_ns",)),
    "event_time",
    finds_tubes=True,
)
MESSAGES_TABLE = Table(
    "messages",
    "rocketmq_store",
    _usual(MESSAGES, ("properties",)),
    "storeTimestamp",
    finds_tubes=False,
)
TABLES = (ENTRIES, MESSAGES_TABLE)
