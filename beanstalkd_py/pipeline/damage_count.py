"""Counts the faults that a job leaves out, while Spark reads the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.sources.read_modes import CORRUPT, Mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class DamageCount:
    def __init__(self) -> None:
        self._observed: list[Observation] = []

    def observe(self, rows: DataFrame) -> DataFrame:
        """Return the rows, which are counted when Spark reads them first."""
        observed = Observation()
        self._observed.append(observed)
        return rows.observe(observed, f.count(f.col(CORRUPT)).alias("faults"))

    @property
    def faults(self) -> int:
        return sum(map(_count_of, self._observed))


def _count_of(observed: Observation) -> int:
    # `get` blocks until a query has read the rows.
    there: Any = observed._jo
    if there is None or not there.future().isCompleted():
        return 0
    # The future has no value if Spark skipped the read or only replanned it.
    row = there.future().value().get()
    return int(observed.get["faults"]) if row.isSuccess() and row.get().size() else 0


def read_counted(
    read: Callable[..., DataFrame],
    spark: SparkSession,
    paths: Sequence[str],
    columns: Sequence[str],
    mode: str,
    damage: DamageCount | None,
) -> DataFrame:
    """Read columns by `read_binlog` or `read_store`, and count the faults in `damage`."""
    is_filled = Mode.of(mode) is Mode.PERMISSIVE
    more = [CORRUPT] if is_filled and CORRUPT not in columns else []
    rows = read(spark, paths, columns=[*columns, *more], mode=mode)
    return damage.observe(rows) if damage is not None and CORRUPT in rows.columns else rows
