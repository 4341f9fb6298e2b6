"""SQL views of the inputs and of the results of jobs.

Only views that the query names are made, because some jobs compute a part of their result at once.
"""

from __future__ import annotations

import re
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.binlogs.table import COLUMNS
from beanstalkd_py.pipeline.damage_count import DamageCount, read_counted
from beanstalkd_py.pipeline.frames import read_binlog, read_store
from beanstalkd_py.pipeline.inputs import Inputs
from beanstalkd_py.pipeline.jobs.job_request import JobRequest
from beanstalkd_py.pipeline.jobs.registry import JOBS, Needs
from beanstalkd_py.pipeline.jobs.run import frame_of
from beanstalkd_py.pipeline.stores.tables import VIEWS

ENTRIES = "entries"
OF_STORES = {"messages": "messages", "queues": "queues", "index_entries": "index"}
"""Views of a store by SQL name."""
OF_JOBS = {job.view: job for job in JOBS.values() if job.needs is not Needs.INPUTS}
NAMES = (ENTRIES, *OF_STORES, *OF_JOBS)
COSTLY = ("body", "properties")
"""Columns that are read only if the query names them."""
_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*""")
"""Strings and comments of SQL."""


def make_views(
    spark: SparkSession,
    inputs: Inputs,
    text: str,
    mode: str = "PERMISSIVE",
    damage: DamageCount | None = None,
) -> None:
    """Make the views that a query names; without any, those that cost nothing.

    `entries` needs binlogs; `messages`, `queues` and `index_entries` need history stores. `damage`
    counts the faults. Raises PipelineUsageError.
    """
    words = {word.lower() for word in re.findall(r"\w+", _TEXT.sub(" ", text))}
    named = [name for name in NAMES if name in words]
    for name in named or _cheap_views(inputs):
        if name in OF_JOBS:
            rows = frame_of(spark, OF_JOBS[name], inputs, JobRequest(mode=mode), damage)
        else:
            rows = _of_files(spark, inputs, name, words, mode, damage)
        rows.createOrReplaceTempView(name)


def _cheap_views(inputs: Inputs) -> list[str]:
    names = [ENTRIES] if inputs.binlogs else []
    return names + (list(OF_STORES) if inputs.stores else []) + [JOBS["timelines"].view]


def _of_files(
    spark: SparkSession,
    inputs: Inputs,
    name: str,
    words: set[str],
    mode: str,
    damage: DamageCount | None,
) -> DataFrame:
    def without_costly(names: list[str]) -> list[str]:
        return [each for each in names if each not in COSTLY or each in words]

    if name == ENTRIES:
        _require(inputs.binlogs, name, "binlogs")
        columns = without_costly([column.name for column in COLUMNS])
        return read_counted(read_binlog, spark, inputs.binlogs, columns, mode, damage)
    _require(inputs.stores, name, "history stores")
    view = OF_STORES[name]
    columns = without_costly([column.name for column in VIEWS[view]])
    read = partial(read_store, view=view)
    return read_counted(read, spark, inputs.stores, columns, mode, damage)


def _require(paths: tuple[str, ...], name: str, what: str) -> None:
    if not paths:
        raise PipelineUsageError(f"the view {name} needs {what}; give one by --input PATH")
