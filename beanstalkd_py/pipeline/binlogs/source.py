"""`beanstalkd_binlog`: binlogs as a source of Spark."""

from __future__ import annotations

from beanstalkd_py.pipeline.binlogs.follower import BinlogFollowing
from beanstalkd_py.pipeline.binlogs.plan import OPTIONS, BinlogPlan
from beanstalkd_py.pipeline.sources.planned_source import PlannedSource


class BinlogSource(PlannedSource):
    """`spark.read.format("beanstalkd_binlog").load(path)`."""

    NAME = "beanstalkd_binlog"
    OPTIONS = OPTIONS
    PLAN = BinlogPlan
    FOLLOWING = BinlogFollowing
