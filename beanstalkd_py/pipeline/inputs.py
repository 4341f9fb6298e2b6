"""Sorts the input paths of a job into binlogs and history stores, on any file system.

A history store is a folder with a commit log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.history.files import layout
from beanstalkd_py.pipeline.binlogs.files import Lookup, find, is_in_place
from beanstalkd_py.pipeline.sources.connect import is_connect
from beanstalkd_py.pipeline.sources.frames import listed, qualified
from beanstalkd_py.pipeline.sources.paths import Hosts, expand, local, parts_of
from beanstalkd_py.pipeline.sources.remote import is_direct

_NAMES = "{binlog.*,[0-9]*}"
"""Files of binlogs and of commit logs."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Input paths of each kind, unexpanded because their wildcards give the hosts."""

    binlogs: tuple[str, ...]
    stores: tuple[str, ...]


def sort_inputs(spark: SparkSession, paths: str | Sequence[str]) -> Inputs:
    """Raises PipelineUsageError for a path that is neither."""
    absolute_paths = qualified(spark, paths)
    if not absolute_paths:
        raise PipelineUsageError("no input; give a folder of binlogs or a history store")
    binlogs: list[str] = []
    stores: list[str] = []
    for path in absolute_paths:
        plain = None if is_connect(spark) else local(path)
        lookup = Lookup((path,), Hosts.of([path], None, None))
        if is_direct(path):
            are_stores = {False} if find(lookup) else set()
        elif plain is None:
            are_stores = _kinds_by_listing(spark, lookup)
        else:
            are_stores = _kinds_of_matches(plain, lookup)
        if len(are_stores) > 1:
            raise PipelineUsageError(
                f"path {path} matches history stores and other folders; give them one by one"
            )
        if not are_stores:
            # Without this error, `verify` of a mistyped path would find no fault.
            raise PipelineUsageError(
                f"path {path} has no binlog files; give a binlog folder or a history store"
            )
        (stores if are_stores == {True} else binlogs).append(path)
    return Inputs(tuple(binlogs), tuple(stores))


def _kinds_of_matches(glob: str, lookup: Lookup) -> set[bool]:
    """Return True for matching stores, False for other folders; nothing if none has binlogs."""
    are_stores = {(Path(each) / layout.COMMIT_LOG).is_dir() for each in expand(glob)}
    return are_stores if are_stores != {False} or find(lookup) else set()


def _kinds_by_listing(spark: SparkSession, lookup: Lookup) -> set[bool]:
    """Return True for stores and False for binlogs in a listing of Spark."""
    (path,), are_stores = lookup.paths, set()
    depth = len(parts_of(path))
    for each in listed(spark, path, _NAMES):
        parts = parts_of(each)
        if parts[-2] == layout.COMMIT_LOG and len(parts) == depth + 2:
            are_stores.add(True)
        elif is_in_place(each, lookup):
            are_stores.add(False)
    return are_stores
