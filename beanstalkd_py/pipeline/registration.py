"""The sources that there are, made known to a session of Spark."""

from __future__ import annotations

from pyspark.sql import SparkSession

from beanstalkd_py.pipeline.binlogs.source import BinlogSource
from beanstalkd_py.pipeline.sink.source import TubesSource
from beanstalkd_py.pipeline.stores.source import StoreSource

SOURCES = (BinlogSource, StoreSource, TubesSource)


def register(spark: SparkSession) -> None:
    """Makes them known by their names. Harmless when done twice."""
    for source in SOURCES:
        spark.dataSource.register(source)
