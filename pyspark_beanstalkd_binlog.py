"""Makes `beanstalkd_binlog` known to Spark, which looks for DefaultSource in modules pyspark_*."""

from __future__ import annotations

from beanstalkd_py.pipeline.binlogs.source import BinlogSource as DefaultSource

__all__ = ["DefaultSource"]
