"""Compaction of the small files in the folders of an exported data set.

Each round merges at most one group of small files of each folder, by one change of the log.

While a data set grows, a file joins a group only once smaller ones add up to its size, so a row is
rewritten a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs.export.files import File, Files
from beanstalkd_py.pipeline.jobs.export.log import ExportLog
from beanstalkd_py.pipeline.jobs.export.tables import PARTITIONS, write_parquet

FOLDERS_AT_ONCE = 1000
"""Limit for one change, whose record lists its files."""

Choose = Callable[[Sequence[File]], list[File]]


class Compaction:
    """Compacts one data set, whose log has been recovered."""

    def __init__(self, spark: SparkSession, files: Files, log: ExportLog, target: int) -> None:
        """`target` is the size in bytes of a file that is large enough."""
        if target < 1:
            raise PipelineUsageError(f"target_bytes is {target}; give at least 1")
        self._spark = spark
        self._files = files
        self._log = log
        self._target = target

    def everywhere(self, least: int) -> int:
        """Compact folders with at least `least` small files; return the number of files."""
        folders = _by_folder(self._files.below(self._log.data))
        chosen = [name for name, files in folders.items() if len(files) >= max(least, 2)]
        return self._rounds(chosen, self._all)

    def amortized(self, folders: Iterable[str], least: int) -> int:
        """Compact groups of similar files in some folders; return the number of files."""

        def choose(files: Sequence[File]) -> list[File]:
            return similar(self._all(files), max(least, 2))

        return self._rounds(list(folders), choose)

    def _all(self, files: Sequence[File]) -> list[File]:
        group: list[File] = []
        size = 0
        for file in sorted(files, key=lambda each: (each.size, each.name)):
            if 2 * file.size > self._target or (len(group) > 1 and size + file.size > self._target):
                break
            group.append(file)
            size += file.size
        return group if len(group) > 1 else []

    def _rounds(self, folders: list[str], choose: Choose) -> int:
        count = 0
        for first in range(0, len(folders), FOLDERS_AT_ONCE):
            some = folders[first : first + FOLDERS_AT_ONCE]
            while some:
                groups = {name: choose(self._files.below(name)) for name in some}
                some = [name for name, group in groups.items() if group]
                if some:
                    count += self._round([file for name in some for file in groups[name]])
        return count

    def _round(self, old: list[File]) -> int:
        record, staged = self._log.last, self._log.staging()
        reader = self._spark.read.schema(record.struct)
        reader = reader.option("basePath", self._files.path(self._log.data))
        rows = reader.parquet(*(self._files.path(file.name) for file in old))
        folders = {file.name.rpartition("/")[0] for file in old}
        tasks = min(len(folders), self._spark.sparkContext.defaultParallelism * 4)
        write_parquet(rows.repartition(tasks, *PARTITIONS), self._files.path(staged), *PARTITIONS)
        made = self._spark.read.schema(record.struct).parquet(self._files.path(staged))
        if (there := made.count()) != (before := rows.count()):
            data = self._files.path(self._log.data)
            raise PipelineUsageError(
                f"{data} changed during compaction: {before} rows became"
                f" {there}; compact again when nothing else writes to it"
            )
        self._log.change(replace(record, rows=0), staged, old)
        return len(old)


def similar(files: Sequence[File], least: int) -> list[File]:
    """Return the first `least` of sorted files, and those that smaller ones outweigh together."""
    if len(files) < least:
        return []
    group = list(files[:least])
    size = sum(file.size for file in group)
    while group and len(group) > 2 and group[-1].size > size - group[-1].size:
        size -= group.pop().size
    for file in files[len(group) :]:
        if file.size > size:
            break
        group.append(file)
        size += file.size
    return group


def _by_folder(files: Sequence[File]) -> dict[str, list[File]]:
    folders: dict[str, list[File]] = {}
    for file in files:
        folders.setdefault(file.name.rpartition("/")[0], []).append(file)
    return folders
