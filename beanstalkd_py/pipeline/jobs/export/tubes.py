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

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.jobs.export.files import Files
from beanstalkd_py.pipeline.jobs.export.log import ExportLog, Run
from beanstalkd_py.pipeline.jobs.export.writing import write

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

    def find(self, batch: DataFrame, light: DataFrame, size: int, runs: tuple[Run, ...]) -> Found:
        """The tubes of a batch; `light` are its rows without bodies, at hand, `size` of them.

        Short entries of jobs that nobody has seen the full entry of stay without a tube.
        """
        full = light.where("kind = 'full'").select(*KEY, "tube")
        short = light.where("kind = 'short'")
        known = full
        if runs:
            asked = short.select(*KEY).distinct().join(full, list(KEY), "left_anti")
            known = full.unionByName(self._of_runs(asked, runs))
        tubes = known.groupBy(*KEY).agg(f.max("tube").alias("tube"))
        found = short.drop("tube").join(tubes, list(KEY), "left")
        others = batch.where("kind is null or kind <> 'short'")
        rows = others.unionByName(found, allowMissingColumns=True)
        return Found(rows, self._with(light, size, runs))

    def _of_runs(self, asked: DataFrame, runs: Sequence[Run]) -> DataFrame:
        """Tubes of jobs that began in earlier batches."""
        # Jobs that are worked on were mostly put about the same time: so most of a run is skipped.
        low, high = asked.agg(f.min("created_at_ns"), f.max("created_at_ns")).collect()[0]
        between = f"created_at_ns between {low} and {high}" if low is not None else "false"
        then = self._read(runs).where(between).where("tube is not null").select(*KEY, "tube")
        return then.join(asked, list(KEY), "left_semi")

    def _read(self, runs: Sequence[Run]) -> DataFrame:
        paths = [self._files.path(self._log.folder_of(run.name)) for run in runs]
        return self._spark.read.schema(SCHEMA).parquet(*paths)

    def _with(self, light: DataFrame, size: int, runs: tuple[Run, ...]) -> tuple[Run, ...]:
        """The runs after a batch: a new one has what it changed, and the last that are as small."""
        ended = (f.col("state") == "deleted").alias("ended")
        changes = light.where("kind is not null").select(*KEY, "tube", ended)
        kept, old = list(runs), []
        while kept and kept[-1].rows <= 2 * size:
            old.append(kept.pop())
            size += old[-1].rows
        if old:
            changes = changes.unionByName(self._read(old))
        jobs = changes.groupBy(*KEY).agg(f.max("tube").alias("tube"), f.max("ended").alias("ended"))
        # That a job has ended has to be said as long as an older run may have it.
        keep = "ended or tube is not null" if kept else "not ended and tube is not null"
        return (*kept, *self._written(jobs.where(keep)))

    def _written(self, jobs: DataFrame) -> tuple[Run, ...]:
        name = self._log.new_run()
        seen = Observation()
        counted = jobs.sortWithinPartitions("created_at_ns")
        counted = counted.observe(seen, f.count(f.lit(1)).alias("rows"))
        write(counted, self._files.path(self._log.folder_of(name)))
        rows = int(seen.get["rows"])
        return (Run(name, rows),) if rows else ()
