"""Inputs as views for SQL: the files themselves, and the results of jobs.

A view is made when a text names it, because some jobs compute a part of their result at once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.binlogs.frame import read_binlog
from beanstalkd_py.pipeline.binlogs.table import COLUMNS
from beanstalkd_py.pipeline.jobs.job_request import Wish
from beanstalkd_py.pipeline.jobs.registry import JOBS, Needs
from beanstalkd_py.pipeline.jobs.run import frame_of
from beanstalkd_py.pipeline.stores.frame import read_store
from beanstalkd_py.pipeline.stores.tables import VIEWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from beanstalkd_py.pipeline.damage_count import Damage
    from beanstalkd_py.pipeline.inputs import Inputs

ENTRIES = "entries"
OF_STORES = {"messages": "messages", "queues": "queues", "index_entries": "index"}
"""Names of views: those that a store has."""
OF_JOBS = {job.view: job for job in JOBS.values() if job.needs is not Needs.INPUTS}
NAMES = (ENTRIES, *OF_STORES, *OF_JOBS)
COSTLY = ("body", "properties")
"""Columns that are only read if a text names them."""


_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*""")
"""What of an SQL text names nothing."""


def make_views(
    spark: SparkSession,
    inputs: Inputs,
    text: str,
    mode: str = "PERMISSIVE",
    damage: Damage | None = None,
) -> None:
    """Makes the views that an SQL text names, all if it names none. PipelineUsageError.

    `entries` is of binlogs; `messages`, `queues` and `index_entries` are of history stores. They
    have all columns but `body` and `properties`, which are there if the text names them. `damage`
    counts what jobs leave out.
    """
    words = {word.lower() for word in re.findall(r"\w+", _TEXT.sub(" ", text))}
    named = [name for name in NAMES if name in words]
    for name in named or _there(inputs):
        if name in OF_JOBS:
            rows = frame_of(spark, OF_JOBS[name], inputs, Wish(mode=mode), damage)
        else:
            rows = _of_files(spark, inputs, name, words, mode)
        rows.createOrReplaceTempView(name)


def _there(inputs: Inputs) -> list[str]:
    """Those that cost nothing."""
    names = [ENTRIES] if inputs.binlogs else []
    return names + (list(OF_STORES) if inputs.stores else []) + [JOBS["timelines"].view]


def _of_files(
    spark: SparkSession, inputs: Inputs, name: str, words: set[str], mode: str
) -> DataFrame:
    def without_costly(names: list[str]) -> list[str]:
        return [each for each in names if each not in COSTLY or each in words]

    if name == ENTRIES:
        _need(inputs.binlogs, name, "binlogs")
        columns = without_costly([column.name for column in COLUMNS])
        return read_binlog(spark, inputs.binlogs, columns=columns, mode=mode)
    _need(inputs.stores, name, "history stores")
    view = OF_STORES[name]
    columns = without_costly([column.name for column in VIEWS[view]])
    return read_store(spark, inputs.stores, view, columns, mode)


def _need(paths: tuple[str, ...], name: str, what: str) -> None:
    if not paths:
        raise PipelineUsageError(f"{name} is of {what}, and no input is one; give --input PATH")
