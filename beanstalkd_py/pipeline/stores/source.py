"""`rocketmq_store`: history stores as a source of Spark."""

from __future__ import annotations

from beanstalkd_py.pipeline.sources.planned_source import PlannedSource
from beanstalkd_py.pipeline.stores.follower import StoreFollowing
from beanstalkd_py.pipeline.stores.plan import OPTIONS, StorePlan


class StoreSource(PlannedSource):
    """`spark.read.format("rocketmq_store").load(path)`."""

    NAME = "rocketmq_store"
    OPTIONS = OPTIONS
    PLAN = StorePlan
    FOLLOWING = StoreFollowing
