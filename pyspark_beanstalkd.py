"""Makes `beanstalkd` known to Spark, which looks for DefaultSource in modules pyspark_*."""

from __future__ import annotations

from beanstalkd_py.pipeline.sink.source import TubesSource as DefaultSource

__all__ = ["DefaultSource"]
