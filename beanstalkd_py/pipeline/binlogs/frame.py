"""`read_binlog`: binlogs as a DataFrame, the fastest way there is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beanstalkd_py.pipeline.binlogs.files import is_in_place, of_path
from beanstalkd_py.pipeline.binlogs.follower import BinlogFollowing
from beanstalkd_py.pipeline.binlogs.plan import OPTIONS, BinlogPlan
from beanstalkd_py.pipeline.sources import offsets
from beanstalkd_py.pipeline.sources.frames import (
    are_local,
    of_contents,
    of_local,
    qualified,
    refuse_offsets,
)
from beanstalkd_py.pipeline.sources.options import Options, option_text


@dataclass(frozen=True)
class DecodeBinlogs:
    """Rows of binlog files that come with their bytes."""

    plan: BinlogPlan

    def __call__(self, files: Iterable[tuple[str, Any]]) -> Iterator[pa.RecordBatch]:
        """What is no binlog file, or not where a server would read it, is left out."""
        reading = self.plan.reading()
        for path, content in files:
            if not is_in_place(path, self.plan.lookup):
                continue
            file = of_path(path, self.plan.lookup.hosts)
            if file is not None:
                yield from reading.rows(file, content)


def read_binlog(
    spark: SparkSession,
    path: str | Sequence[str],
    columns: Sequence[str] | None = None,
    mode: str = "PERMISSIVE",
    **options: object,
) -> DataFrame:
    """The entries of binlogs, a row each.

    `path` is a folder of one or several workers, a file, a glob, or several of these, on any file
    system that Spark reaches. `columns` are those wanted, all but the body if none are named: no
    others are read. Options are those of the source `beanstalkd_binlog`. Raises PipelineUsageError.
    """
    paths = qualified(spark, path)
    given = {name: option_text(value) for name, value in options.items()}
    given |= {"mode": mode, "paths": json.dumps(paths)}
    known = (*OPTIONS, *offsets.OPTIONS)
    plan = BinlogPlan.of(given, columns, known)
    bounded = offsets.within(plan, Options(given, known), BinlogFollowing)
    if are_local(paths):
        return of_local(spark, bounded)
    refuse_offsets(plan, bounded)
    names = plan.lookup.name_glob or "binlog.*"
    return of_contents(spark, plan, paths, names, plan.min_partitions, DecodeBinlogs(plan))
