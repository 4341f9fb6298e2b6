"""Streams where Spark has what they need: stream_reader.py can be imported from 4.2 on."""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.options import Options


def stream_reader_of(following: Any, options: Options) -> DataSourceStreamReader:
    """The stream of what is followed. Raises PipelineUsageError."""
    try:
        from beanstalkd_py.pipeline.sources.stream_reader import FollowingReader
    except ImportError as error:
        raise PipelineUsageError(
            f"streams need Spark 4.2 or newer, and this is {pyspark.__version__}"
        ) from error
    return FollowingReader(following, options)
