"""`read_store`: history stores as a DataFrame, the fastest way there is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beanstalkd_py.pipeline.sources import offsets
from beanstalkd_py.pipeline.sources.frames import (
    are_local,
    of_contents,
    of_local,
    qualified,
    refuse_offsets,
)
from beanstalkd_py.pipeline.sources.options import Options, option_text
from beanstalkd_py.pipeline.stores.files import GLOBS, of_path
from beanstalkd_py.pipeline.stores.follower import StoreFollowing
from beanstalkd_py.pipeline.stores.plan import OPTIONS, StorePlan


@dataclass(frozen=True)
class DecodeStores:
    """Rows of files of stores that come with their bytes."""

    plan: StorePlan

    def __call__(self, files: Iterable[tuple[str, Any]]) -> Iterator[pa.RecordBatch]:
        """What is no file of the view is left out."""
        reading = self.plan.reading()
        for path, content in files:
            file = of_path(self.plan.view, path, self.plan.hosts)
            if file is not None:
                yield from reading.rows(file, content)


def read_store(
    spark: SparkSession,
    path: str | Sequence[str],
    view: str = "messages",
    columns: Sequence[str] | None = None,
    mode: str = "PERMISSIVE",
    **options: object,
) -> DataFrame:
    """A table of history stores: their messages, the units of their queues, or their index.

    `path` is the folder of a store, a glob, or several of these, on any file system that Spark
    reaches. `columns` are those wanted: no others are read. Options are those of the source
    `rocketmq_store`. Raises PipelineUsageError.
    """
    paths = qualified(spark, path)
    given = {name: option_text(value) for name, value in options.items()}
    given |= {"mode": mode, "view": view, "paths": json.dumps(paths)}
    known = (*OPTIONS, *offsets.OPTIONS)
    plan = StorePlan.of(given, columns, known)
    bounded = offsets.within(plan, Options(given, known), StoreFollowing)
    if are_local(paths):
        return of_local(spark, bounded)
    refuse_offsets(plan, bounded)
    files = [f"{each.rstrip('/')}/{GLOBS[view]}" for each in paths]
    return of_contents(spark, plan, files, None, plan.min_partitions, DecodeStores(plan))
