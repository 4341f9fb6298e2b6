"""How binlogs are doing: what each file costs, and what keeps it.

A server gives files up from the oldest on, when no live job has its full entry there. Compaction
writes such entries again, at the end, when what is dead is twice what is alive.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.jobs.file_measures import COLUMNS, measures_of
from beanstalkd_py.pipeline.jobs.predicted_size import predicted_size

__all__ = ["COLUMNS", "binlog_health", "predicted_size"]


def binlog_health(entries: DataFrame) -> DataFrame:
    """A row for each host, shard and file with entries, in this order.

    `live_bytes` and `live_jobs` are those of `binlog usage` (there: `jobs`); `entries`
    and `bytes` are of jobs: without what keeps the highest id, and what a file has reserved.

    Columns: host, shard, file string; file_number long; entries long; bytes long; put_bytes long:
    the first full entries of jobs; copy_bytes long: full entries that compaction has written again;
    short_bytes long; live_jobs long: jobs that are there and have their last full entry in this
    file; live_bytes long: such entries, and last short ones of live jobs; dead_bytes long: the
    rest; oldest_job_id long, oldest_job_tube string, oldest_job_put_at timestamp: of the live jobs
    here the one that was put first; pinned_by long: live jobs here and in older files of the shard,
    which all have to end or be moved before this file can go; write_amplification double: the bytes
    of all entries of the shard up to the end of this file, divided by put_bytes up to there (null
    without any), so that the last file tells that of the shard; first_event_at, last_event_at
    timestamp (of C beanstalkd as far as it is known); damage long: places that could not be read,
    of PERMISSIVE.
    """
    so_far = Window.partitionBy("host", "shard").orderBy("file_number")

    def until_here(name: str) -> Column:
        return f.sum(name).over(so_far)

    written, put = until_here("bytes"), until_here("put_bytes")
    oldest = f.col("oldest")
    return (
        measures_of(entries)
        .select(
            *("host", "shard", "file", "file_number", "entries", "bytes", "put_bytes"),
            (f.col("full_bytes") - f.col("put_bytes")).alias("copy_bytes"),
            *("short_bytes", "live_jobs", "live_bytes"),
            (f.col("bytes") - f.col("live_bytes")).alias("dead_bytes"),
            oldest["id"].alias("oldest_job_id"),
            oldest["tube"].alias("oldest_job_tube"),
            f.timestamp_micros(f.expr("oldest.created_at_ns div 1000")).alias("oldest_job_put_at"),
            until_here("live_jobs").alias("pinned_by"),
            f.when(put > 0, written / put).alias("write_amplification"),
            *("first_event_at", "last_event_at", "damage"),
        )
        .orderBy("host", "shard", "file_number")
    )
