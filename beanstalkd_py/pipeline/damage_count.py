"""Counts the faults that a result leaves out, while Spark reads the rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from beanstalkd_py.binlog.damage_messages import TORN
from beanstalkd_py.pipeline.sources.connect import is_connect
from beanstalkd_py.pipeline.sources.decoder import REMOVED
from beanstalkd_py.pipeline.sources.read_modes import CORRUPT, Mode

LISTENERS_MS = 60_000


class Faults(NamedTuple):
    """Damaged places, and files that were removed before they were read."""

    damaged: int = 0
    removed: int = 0


def fault_count() -> Column:
    """Count faults. A torn last entry is none, because it was not acknowledged."""
    return f.count_if(f.col(CORRUPT) != TORN)


def _columns_of_faults() -> tuple[Column, Column]:
    removed = f.count_if(f.col(CORRUPT) == REMOVED)
    return (fault_count() - removed).alias("damaged"), removed.alias("removed")


class DamageCount:
    def __init__(self) -> None:
        self._observed: dict[str, tuple[Observation, DataFrame]] = {}

    def observe(self, rows: DataFrame) -> DataFrame:
        """Return the rows, which are counted when Spark reads them first."""
        name = uuid.uuid4().hex
        observed = Observation(name)
        self._observed[name] = observed, rows
        return rows.observe(observed, *_columns_of_faults())

    def faults(self, query: DataFrame | None = None) -> Faults:
        """Count the faults of what was read. With a query, only what its plan contains was read.

        Reads rows again whose observation Spark did not complete: it completes none in subqueries,
        and Spark Connect none in checkpoints and queries of SQL.
        """
        self._wait()
        counts = {name: _faults_of(observed) for name, (observed, _) in self._observed.items()}
        unobserved = [name for name, faults in counts.items() if faults is None]
        if unobserved and query is not None:
            plan = _plan_of(query)
            unobserved = [name for name in unobserved if name in plan]
        for name in unobserved:
            _, rows = self._observed[name]
            counts[name] = Faults(*rows.agg(*_columns_of_faults()).collect()[0])
        found = [faults for faults in counts.values() if faults is not None]
        return Faults(sum(each.damaged for each in found), sum(each.removed for each in found))

    def _wait(self) -> None:
        """Wait for Spark's listeners, which complete observations after the query has ended."""
        for _, rows in self._observed.values():
            if is_connect(rows.sparkSession):
                return
            context: Any = rows.sparkSession.sparkContext
            context._jsc.sc().listenerBus().waitUntilEmpty(LISTENERS_MS)
            return


def _plan_of(query: DataFrame) -> str:
    if is_connect(query.sparkSession):
        text: Any = query._explain_string(mode="extended")  # type: ignore[operator]
        return str(text)
    plan: Any = query._jdf
    return str(plan.queryExecution().optimizedPlan().toString())


def _faults_of(observed: Observation) -> Faults | None:
    """Return the faults of a completed observation, None for another."""
    if not hasattr(observed, "_jo"):  # Spark Connect
        return Faults(**observed.get) if observed.get else None
    java: Any = observed._jo
    if not java.future().isCompleted():  # `get` would block
        return None
    # The future has no value if Spark skipped the read or only replanned it.
    row = java.future().value().get()
    return Faults(**observed.get) if row.isSuccess() and row.get().size() else None


def read_counted(
    read: Callable[..., DataFrame],
    spark: SparkSession,
    paths: Sequence[str],
    columns: Sequence[str],
    mode: str,
    damage: DamageCount | None,
) -> DataFrame:
    """Read columns by `read_binlog` or `read_store`, and count the faults in `damage`."""
    has_faults = Mode.of(mode) is Mode.PERMISSIVE
    added = [CORRUPT] if has_faults and CORRUPT not in columns else []
    rows = read(spark, paths, columns=[*columns, *added], mode=mode)
    return damage.observe(rows) if damage is not None and CORRUPT in rows.columns else rows
