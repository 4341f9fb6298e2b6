"""How an export writes Parquet: the same in all its steps, whatever the caller's session says.

Settings are made in sessions that are the export's own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    # What all readers know, and what has statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}


def settle(session: SparkSession) -> SparkSession:
    """Makes the settings in a session that nobody else uses."""
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    # Most batches are small, and each has several shuffles.
    tasks = 2 * session.sparkContext.defaultParallelism
    session.conf.set("spark.sql.shuffle.partitions", str(tasks))
    return session


def write(rows: DataFrame, path: str, *partitions: str) -> None:
    """A folder of files that is not there yet."""
    rows.write.option("compression", "zstd").partitionBy(*partitions).parquet(path)
