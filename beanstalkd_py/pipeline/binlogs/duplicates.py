"""Which full entries are copies: what compaction writes again is no put.

An entry alone does not always tell (`is_copy` of the sources is true where it does): the copy of a
job that nothing has happened to is its put entry once more. Over all files it is told, because a
job's first full entry is the one of its put.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

KEY = ("host", "shard", "id")


def mark_copies(entries: DataFrame) -> DataFrame:
    """Entries with `is_copy` right over all files of a host and shard, at the cost of a shuffle.

    Needs host, shard, file_number, offset, kind, id and is_copy. If the file with the put was
    removed before, the first copy of a job that nothing has happened to stands for it.
    """
    order = Window.partitionBy(*KEY, "kind").orderBy("file_number", "offset")
    first = f.row_number().over(order) == 1
    is_copy = (f.col("kind") == "full") & (f.col("is_copy") | ~first)
    return entries.withColumn("is_copy", is_copy)
