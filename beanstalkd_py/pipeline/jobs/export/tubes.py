"""Tubes of short entries, which lack them, from the full entries of their jobs.

Open jobs, those without an end, are stored with their tubes in runs, sorted by size. Each batch
writes a run with its changes, merged with runs that are not much larger, so that a row is rewritten
a logarithmic number of times. Records of the log list the runs, so a repeated batch reads the same
ones.

The key of a job is (host, id, created_at_ns): ids may be reused, and a job may change its shard.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.jobs.export.files import Files
from beanstalkd_py.pipeline.jobs.export.log import ExportLog, Run
from beanstalkd_py.pipeline.jobs.export.tables import write_parquet

KEY = ("host", "id", "created_at_ns")
SCHEMA = "host string, id long, created_at_ns long, tube string, ended boolean"


class OpenJobs:
    def __init__(self, spark: SparkSession, files: Files, log: ExportLog) -> None:
        self._spark = spark
        self._files = files
        self._log = log

    def find(
        self, batch: DataFrame, light: DataFrame, size: int, runs: tuple[Run, ...]
    ) -> tuple[DataFrame, tuple[Run, ...]]:
        """Return a batch with its tubes, and the runs after it.

        `light` are its `size` rows without bodies, cached.

        Short entries of jobs whose full entry was never read stay without a tube.
        """
        full = light.where("kind = 'full'").select(*KEY, "tube")
        short = light.where("kind = 'short'")
        known = full
        if runs:
            wanted = short.select(*KEY).distinct().join(full, list(KEY), "left_anti")
            known = full.unionByName(self._of_runs(wanted, runs))
        tubes = known.groupBy(*KEY).agg(f.max("tube").alias("tube"))
        found = short.drop("tube").join(tubes, list(KEY), "left")
        others = batch.where("kind is null or kind <> 'short'")
        rows = others.unionByName(found, allowMissingColumns=True)
        return rows, self._with(light, size, runs)

    def _of_runs(self, wanted: DataFrame, runs: Sequence[Run]) -> DataFrame:
        # Most of a run is skipped, because active jobs were mostly put at about the same time.
        low, high = wanted.agg(f.min("created_at_ns"), f.max("created_at_ns")).collect()[0]
        between = f"created_at_ns between {low} and {high}" if low is not None else "false"
        then = self._read(runs).where(between).where("tube is not null").select(*KEY, "tube")
        return then.join(wanted, list(KEY), "left_semi")

    def _read(self, runs: Sequence[Run]) -> DataFrame:
        paths = [self._files.path(self._log.folder_of(run.name)) for run in runs]
        return self._spark.read.schema(SCHEMA).parquet(*paths)

    def _with(self, light: DataFrame, size: int, runs: tuple[Run, ...]) -> tuple[Run, ...]:
        """Return the runs after a batch, which merges its changes with the small last runs."""
        ended = (f.col("state") == "deleted").alias("ended")
        changes = light.where("kind is not null").select(*KEY, "tube", ended)
        kept, old = list(runs), []
        while kept and kept[-1].rows <= 2 * size:
            old.append(kept.pop())
            size += old[-1].rows
        if old:
            changes = changes.unionByName(self._read(old))
        jobs = changes.groupBy(*KEY).agg(f.max("tube").alias("tube"), f.max("ended").alias("ended"))
        # An older run may still have a job that has ended.
        keep = "ended or tube is not null" if kept else "not ended and tube is not null"
        return (*kept, *self._written(jobs.where(keep)))

    def _written(self, jobs: DataFrame) -> tuple[Run, ...]:
        name = self._log.new_run()
        seen = Observation()
        counted = jobs.sortWithinPartitions("created_at_ns")
        counted = counted.observe(seen, f.count(f.lit(1)).alias("rows"))
        write_parquet(counted, self._files.path(self._log.folder_of(name)))
        rows = int(seen.get["rows"])
        return (Run(name, rows),) if rows else ()
