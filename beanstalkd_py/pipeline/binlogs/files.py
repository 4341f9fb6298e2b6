"""Finds binlog files, archived ones too, and divides them among tasks, without taking a lock."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from beanstalkd_py.binlog.layout import HIGHEST_NUMBER
from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.binlogs.entries import BinlogFile
from beanstalkd_py.pipeline.sources.paths import (
    Hosts,
    expand,
    is_bare,
    local,
    matches,
    parts_of,
    true_path,
)
from beanstalkd_py.pipeline.sources.remote import list_files
from beanstalkd_py.regular_file import NOT_REGULAR, open_regular

_NAME = re.compile(r"binlog\.([1-9]\d*)(?:\.done)?")
SHARD = re.compile(r"shard-\d{3}")
DIGITS = len(str(HIGHEST_NUMBER))
STAGING = ("reshard.new", "reshard.done")
"""Folders of a reshard, whose files are incomplete or obsolete."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Where to search: Spark's options path, pathGlobFilter and recursiveFileLookup."""

    paths: tuple[str, ...]
    hosts: Hosts
    name_glob: str | None = None
    recursive: bool = False


def number_of(name: str) -> int | None:
    """Return the number in the name of a binlog file, None for other names."""
    match = _NAME.fullmatch(name)
    number = int(match[1]) if match is not None and len(match[1]) <= DIGITS else 0
    return number if 0 < number <= HIGHEST_NUMBER else None


def of_path(path: str, hosts: Hosts, size: int = 0) -> BinlogFile | None:
    """Return the file at a path, None if it does not have the name of a binlog file."""
    folder, _, name = path.rpartition("/")
    number = number_of(name)
    if number is None:
        return None
    above = folder.rpartition("/")[2]
    shard = above if SHARD.fullmatch(above) else ""
    return BinlogFile(path, hosts.host(path), shard, number, size)


def find(lookup: Lookup) -> list[BinlogFile]:
    """Find files in the order of host, shard and number. Raises PipelineUsageError, OSError.

    A file that several paths lead to counts once. Jobs identify entries by host, shard, file and
    offset, so two files with the same key are an error.
    """
    files = _without_second_names(
        file
        for pattern in lookup.paths
        for file in (
            _remote(pattern, lookup) if local(pattern) is None else _local(pattern, lookup)
        )
    )
    for one, two in itertools.pairwise(files):
        if one.key == two.key:
            raise PipelineUsageError(
                f"{one.path} and {two.path} are both {one.name} of host {one.host!r}; name the host"
                " of each by a wildcard, as in '/srv/{a,b}/binlog', or by hostPattern"
            )
    return files


def find_below(folder: Path, host: str) -> list[BinlogFile]:
    """Find the files of one binlog folder, whose path is not a glob, in the order of find().

    Raises PipelineUsageError, OSError.
    """
    return _without_second_names(_below(folder, Lookup((), Hosts(host, None, (), ""))))


def _without_second_names(files: Iterable[BinlogFile]) -> list[BinlogFile]:
    unique: dict[tuple[str, int], BinlogFile] = {}
    folders: dict[str, str] = {}
    for file in files:
        # During archiving a file has both names.
        folder = file.path.rpartition("/")[0]
        key = folders.setdefault(folder, true_path(folder)), file.number
        if key not in unique or file.path.endswith(".done"):
            unique[key] = file
    return sorted(unique.values(), key=lambda file: (*file.key, file.path))


def _local(pattern: str, lookup: Lookup) -> Iterator[BinlogFile]:
    matched = [Path(path) for path in expand(local(pattern) or pattern)]
    for path in matched:
        if path.is_dir() or number_of(path.name) is not None:
            yield from _below(path, lookup)
        elif len(matched) == 1:  # otherwise it is one of several matches of a glob
            raise PipelineUsageError(
                f"{path} is not a binlog file; give a file binlog.N or a folder"
            )


def _remote(pattern: str, lookup: Lookup) -> Iterator[BinlogFile]:
    is_empty, lookup = True, replace(lookup, paths=(pattern,))
    for url, size in list_files(pattern):
        name = url.rpartition("/")[2]
        if is_in_place(url, lookup) and (
            lookup.name_glob is None or matches(name, lookup.name_glob)
        ):
            file = of_path(url, lookup.hosts, size)
            if file is not None:
                is_empty = False
                yield file
    if is_empty:  # an object store does not know whether there is a folder
        raise PipelineUsageError(
            f"path {pattern} has no binlog files; give the folder of a host, such as"
            " s3://BUCKET/binlogs/*"
        )


def _below(path: Path, lookup: Lookup) -> Iterator[BinlogFile]:
    if not path.is_dir():
        yield from _file(path, lookup)
        return
    if os.path.lexists(path / "reshard.done"):
        raise PipelineUsageError(
            f"binlog folder {path} was being resharded when that was interrupted; start the server"
            " on it, or run 'beanstalkd-py binlog reshard', to finish it"
        )
    for child in sorted(path.iterdir()):
        if child.is_dir():
            if SHARD.fullmatch(child.name) or (lookup.recursive and child.name not in STAGING):
                yield from _below(child, lookup)
        elif lookup.name_glob is None or matches(child.name, lookup.name_glob):
            yield from _file(child, lookup)


def _file(path: Path, lookup: Lookup) -> Iterator[BinlogFile]:
    if number_of(path.name) is None:
        return
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return  # removed meanwhile
    file = of_path(str(path), lookup.hosts, size)
    if file is not None:
        yield file


def has_entries(file: BinlogFile) -> bool:
    """Whether the file has entries: a preallocated file has zeros after its version."""
    if not is_bare(file.path):
        return True  # `ship` copies only files with entries
    try:
        with os.fdopen(open_regular(file.path), "rb") as data:
            return any(data.read(300)[4:])
    except FileNotFoundError:
        return True  # archived or removed meanwhile, so it was complete
    except OSError as error:
        if error.errno != NOT_REGULAR:
            raise
        return True  # the read reports the error


def is_followed(file: BinlogFile) -> bool:
    """Whether a later file of the folder has entries; False if the folder cannot be listed."""
    folder = file.path.rpartition("/")[0]
    lookup = Lookup((folder,), Hosts(file.host, None, (), ""))
    if not is_bare(folder):
        with contextlib.suppress(OSError, PipelineUsageError):
            return any(each.number > file.number for each in _remote(folder, lookup))
        return False
    paths = (path for path in Path(folder).iterdir() if not path.is_dir())
    beside = (each for path in paths for each in _file(path, lookup))
    return any(each.number > file.number and has_entries(each) for each in beside)


def is_in_place(path: str, lookup: Lookup) -> bool:
    """Whether a server of a searched folder would read this file."""
    parts = parts_of(path)
    if number_of(parts[-1]) is None or any(part in STAGING for part in parts):
        return False
    if lookup.recursive:
        return True
    depths = {len(parts) - len(parts_of(root)) for root in lookup.paths}
    return bool(depths & {0, 1}) or (2 in depths and SHARD.fullmatch(parts[-2]) is not None)


OPEN_BYTES = 1 << 18
"""Cost of opening a file, in bytes that could be read in that time."""


def pack(files: Sequence[BinlogFile], least: int, most_bytes: int) -> list[list[BinlogFile]]:
    """Divide files into even runs of about `most_bytes`, at least `least` if there are so many."""
    if not files:
        return []
    total = sum(file.size + OPEN_BYTES for file in files)
    count = min(len(files), max(least, -(-total // most_bytes), 1))
    runs: list[list[BinlogFile]] = [[] for _ in range(count)]
    done = 0
    for file in files:
        weight = file.size + OPEN_BYTES
        runs[min((done + weight // 2) * count // total, count - 1)].append(file)
        done += weight
    return [run for run in runs if run]
