"""Caching of intermediate results."""

from __future__ import annotations

from pyspark.sql import DataFrame


def computed_once(frame: DataFrame) -> DataFrame:
    """Compute a small result now and cache it in Spark as long as it is referenced.

    Needs no `unpersist`. If an executor is lost, the query fails and has to be repeated.
    """
    return frame.localCheckpoint(eager=True)
