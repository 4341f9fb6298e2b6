"""Spark finds the format `rocketmq_store` by `DefaultSource` in a module named pyspark_*."""

from __future__ import annotations

from beanstalkd_py.pipeline.data_sources import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
