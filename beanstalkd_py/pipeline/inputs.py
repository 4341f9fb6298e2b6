"""Sorts the input paths of a job into binlogs and history stores, on any file system.

A history store is a folder with a commit log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.history.files import layout
from beanstalkd_py.pipeline.binlogs.files import Lookup, find, is_in_place
from beanstalkd_py.pipeline.sources.frames import qualified
from beanstalkd_py.pipeline.sources.paths import Hosts, expand, local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Inputs:
    """Input paths of each kind, unexpanded because their wildcards give the hosts."""

    binlogs: tuple[str, ...]
    stores: tuple[str, ...]


def sort_inputs(spark: SparkSession, paths: str | Sequence[str]) -> Inputs:
    """Raises PipelineUsageError for a path that is neither."""
    given = qualified(spark, paths)
    if not given:
        raise PipelineUsageError("no input; give a folder of binlogs or a history store")
    is_store = {path: _is_store(spark, path) for path in given}
    for path in given:
        if not is_store[path] and not _has_binlogs(spark, path):
            # Otherwise `verify` of a mistyped path finds no fault.
            raise PipelineUsageError(
                f"path {path} has no binlog files; give a binlog folder or a history store"
            )
    return Inputs(
        tuple(path for path in given if not is_store[path]),
        tuple(path for path in given if is_store[path]),
    )


def _has_binlogs(spark: SparkSession, path: str) -> bool:
    lookup = Lookup((path,), Hosts.of([path], None, None))
    if local(path) is not None:
        return bool(find(lookup))
    files, matches = _found(spark, path)
    for match in matches:
        below = files.listFiles(match.getPath(), True)
        while below.hasNext():
            if is_in_place(str(below.next().getPath().toString()), lookup):
                return True
    return False


def _is_store(spark: SparkSession, path: str) -> bool:
    plain = local(path)
    if plain is None:
        found = _remote(spark, path)
    else:
        found = [(Path(each) / layout.COMMIT_LOG).is_dir() for each in expand(plain)]
    if len(set(found)) > 1:
        raise PipelineUsageError(
            f"path {path} matches history stores and other folders; give them one by one"
        )
    return found[0]


def _remote(spark: SparkSession, path: str) -> list[bool]:
    files, matches = _found(spark, path)
    context: Any = spark.sparkContext
    commit_log = context._jvm.org.apache.hadoop.fs.Path
    return [files.exists(commit_log(each.getPath(), layout.COMMIT_LOG)) for each in matches]


def _found(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a glob and its matches. Raises PipelineUsageError."""
    context: Any = spark.sparkContext
    pattern = context._jvm.org.apache.hadoop.fs.Path(path)
    files = pattern.getFileSystem(context._jsc.hadoopConfiguration())
    matches = files.globStatus(pattern)
    if not matches:
        raise PipelineUsageError(f"path {path} does not exist")
    return files, matches
