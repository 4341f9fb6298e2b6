"""Spark finds the format `beanstalkd_binlog` by `DefaultSource` in a module named pyspark_*."""

from __future__ import annotations

from beanstalkd_py.pipeline.data_sources import BinlogSource as DefaultSource

__all__ = ["DefaultSource"]
