"""How many places could not be read, counted while rows go by: a job leaves them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as f

from beanstalkd_py.pipeline.sources.read_modes import CORRUPT, Mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def watched_columns(columns: Sequence[str], mode: str) -> list[str]:
    """Those that are needed, so that damage can be counted in the mode that tells of it."""
    tells = Mode.of(mode) is Mode.PERMISSIVE
    return [*columns, *([CORRUPT] if tells and CORRUPT not in columns else [])]


class Damage:
    """Of the frames that are watched, those of a session."""

    def __init__(self) -> None:
        self._watched: list[Observation] = []

    def watch(self, rows: DataFrame) -> DataFrame:
        """The same rows, which are counted when Spark reads them first."""
        observed = Observation()
        self._watched.append(observed)
        return rows.observe(observed, f.count(f.col(CORRUPT)).alias("places"))

    @property
    def places(self) -> int:
        """Those that have been counted. A frame that nothing was asked of has none."""
        return sum(map(_count_of, self._watched))


def _count_of(observed: Observation) -> int:
    # `get` would wait for ever if no query had read the rows.
    there: Any = observed._jo
    if there is None or not there.future().isCompleted():
        return 0
    # Spark completes it without a value when it left the reading out, or only planned it again.
    row = there.future().value().get()
    return int(observed.get["places"]) if row.isSuccess() and row.get().size() else 0


def watched(rows: DataFrame, damage: Damage | None) -> DataFrame:
    """Rows of `watched_columns`, counted if there is who wants to know and a mode that tells."""
    return damage.watch(rows) if damage is not None and CORRUPT in rows.columns else rows
