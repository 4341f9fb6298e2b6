"""Spark Connect: sessions on a server, without a JVM, `sparkContext` or Hadoop in this process.

The server is the driver then: it finds the files, and this machine need not have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def parallelism(spark: SparkSession) -> int:
    """Return Spark's number of tasks for data without partitions."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    from pyspark.sql import functions as f

    numbers = spark.range(1 << 16).select(f.spark_partition_id().alias("n"))
    return max(1, numbers.distinct().count())
