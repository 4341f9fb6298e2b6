"""Makes `rocketmq_store` known to Spark, which looks for DefaultSource in modules pyspark_*."""

from __future__ import annotations

from beanstalkd_py.pipeline.stores.source import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
