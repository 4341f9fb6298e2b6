"""Tubes of short entries, which do not say them: from the job's full entry, whenever that was.

Open jobs are kept between batches and runs: a row for each job that has begun and not ended, with
its tube. They lie in runs, sorted by size: each batch writes what it has changed, together with
runs that are not much larger, so that a row is written again a logarithmic number of times however
many jobs are open. A record (export_log.py) says which runs there are, so a batch that is done
again sees what it saw the first time.

A job is (host, id, created_at_ns): ids may begin again, and a job may change its shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.jobs.export_files import Files
from beanstalkd_py.pipeline.jobs.export_log import ExportLog, Run

KEY = ("host", "id", "created_at_ns")
SCHEMA = "host string, id long, created_at_ns long, tube string, ended boolean"


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a batch with their tubes, and the runs of open jobs after it."""

    rows: DataFrame
    runs: tuple[Run, ...]


class OpenJobs:
    """The open jobs of one data set."""

    def __init__(self, spark: SparkSession, files: Files, log: ExportLog) -> None:
        self._spark = spark
        self._files = files
        self._log = log

    def find(self, batch: DataFrame, light: DataFrame, runs: tuple[Run, ...]) -> Found:
        """The tubes of a batch; `light` are its rows without bodies, at hand.

        Short entries of jobs that nobody has seen the full entry of stay without a tube.
        """
        full = light.where("kind = 'full'").select(*KEY, "tube")
        short = light.where("kind = 'short'")
        asked = short.select(*KEY).distinct().join(full, list(KEY), "left_anti")
        tubes = (
            full.union(self._of_runs(asked, runs)).groupBy(*KEY).agg(f.max("tube").alias("tube"))
        )
        found = short.drop("tube").join(tubes, list(KEY), "left")
        others = batch.where("kind is null or kind <> 'short'")
        rows = others.unionByName(found, allowMissingColumns=True)
        return Found(rows, self._with(light, runs))

    def _of_runs(self, asked: DataFrame, runs: Sequence[Run]) -> DataFrame:
        """Tubes of jobs that began in earlier batches."""
        # Jobs that are worked on were mostly put about the same time: so most of a run is skipped.
        low, high = asked.agg(f.min("created_at_ns"), f.max("created_at_ns")).collect()[0]
        if low is None or not runs:
            return self._spark.createDataFrame([], SCHEMA).select(*KEY, "tube")
        known = self._read(runs).where(
            f"tube is not null and created_at_ns between {low} and {high}"
        )
        return known.select(*KEY, "tube").join(asked, list(KEY), "left_semi")

    def _read(self, runs: Sequence[Run]) -> DataFrame:
        paths = [self._files.path(self._log.folder_of(run.name)) for run in runs]
        return self._spark.read.schema(SCHEMA).parquet(*paths)

    def _with(self, light: DataFrame, runs: tuple[Run, ...]) -> tuple[Run, ...]:
        """The runs after a batch: a new one has what it changed, and the last that are as small."""
        changed = _merged(
            light.where("kind is not null").select(
                *KEY, "tube", (f.col("state") == "deleted").alias("ended")
            )
        )
        changed = changed.where("ended or tube is not null").persist(StorageLevel.MEMORY_AND_DISK)
        try:
            rows, kept, old = changed.count(), list(runs), []
            if rows == 0:
                return runs
            while kept and kept[-1].rows <= 2 * rows:
                old.append(kept.pop())
                rows += old[-1].rows
            merged = _merged(changed.union(self._read(old))) if old else changed
            if not kept:  # nothing older can have a job that has ended
                merged = merged.where("not ended and tube is not null")
            return (*kept, *self._written(merged))
        finally:
            changed.unpersist()

    def _written(self, jobs: DataFrame) -> tuple[Run, ...]:
        name = self._log.new_run()
        folder = self._files.path(self._log.folder_of(name))
        ordered = jobs.repartitionByRange("created_at_ns").sortWithinPartitions("created_at_ns")
        ordered.write.option("compression", "zstd").parquet(folder)
        rows = self._spark.read.schema(SCHEMA).parquet(folder).count()
        return (Run(name, rows),) if rows else ()


def _merged(changes: DataFrame) -> DataFrame:
    """A row for each job."""
    return changes.groupBy(*KEY).agg(f.max("tube").alias("tube"), f.max("ended").alias("ended"))
