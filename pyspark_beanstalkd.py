"""Spark finds the format `beanstalkd` by `DefaultSource` in a module named pyspark_*."""

from __future__ import annotations

from beanstalkd_py.pipeline.sink.writer import TubeSink as DefaultSource

__all__ = ["DefaultSource"]
