"""A result that is asked more than once, computed once."""

from __future__ import annotations

from pyspark.sql import DataFrame


def computed_once(frame: DataFrame) -> DataFrame:
    """Its rows, computed now and kept by Spark, on disk if need be, as long as anybody has them.

    For results that are small beside what they are made of. Unlike a cache it needs nobody to give
    it up. An executor that is lost takes its part along: then the query has to be begun again.
    """
    return frame.localCheckpoint(eager=True)
