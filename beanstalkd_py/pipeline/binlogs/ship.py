"""Copies complete binlog files to a folder from which a cluster reads, each once.

    TARGET/HOST/binlog.N              with one worker
    TARGET/HOST/shard-001/binlog.N    with several
    TARGET/HOST/_manifest.jsonl       see manifest.py

A file is complete if it was handed over (binlog.N.done), if a later one has entries, or if no
server runs. Files are copied in the order of their numbers, so a reader never sees a gap that is
filled later. The manifest is written after the files that it names: a run that was killed before
that copies some files again, with the same entries under the same names.

The files of a recreated folder, after resharding for example, go to HOST~2, then HOST~3, because
they have the same numbers and other jobs.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from beanstalkd_py.archiver.shipped_files import record_shipped
from beanstalkd_py.binlog.folders import inspect_files
from beanstalkd_py.binlog.layout import HISTORY_ID, LOCK, TOP_LOCK
from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.binlogs.entries import BinlogFile
from beanstalkd_py.pipeline.binlogs.files import SHARD, find_below, has_entries
from beanstalkd_py.pipeline.binlogs.manifest import Manifest, MissingFiles, ShippedFile
from beanstalkd_py.pipeline.binlogs.plan import read_file
from beanstalkd_py.pipeline.sources.file_buffer import FileBuffer
from beanstalkd_py.pipeline.sources.follower import HEAD_BYTES, head_of
from beanstalkd_py.pipeline.sources.paths import absolute, is_glob, is_host_name
from beanstalkd_py.pipeline.sources.remote import RemotePath
from beanstalkd_py.regular_file import read_regular

SAVE_S = 5.0
"""Time between two writes of the manifest, which grows with the number of files."""


@dataclass(frozen=True, slots=True)
class Shipment:
    """The files that a run has copied; `missing` describes those that were removed before."""

    target: str
    files: int
    size: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Shard:
    """One shard: its complete files, and the number of its last file with entries, 0 without any.

    `identity` is that of its folder, "" without a history.
    """

    name: str
    path: Path
    identity: str
    complete: Sequence[BinlogFile]
    last: int


def ship(folder: Path, target: str, host: str) -> Shipment:
    """Copy the complete files of a binlog folder that the target does not have.

    After an error, the next call continues. Raises BinlogFolderError, PipelineUsageError,
    PipelineError, OSError.
    """
    if not is_host_name(host):
        raise PipelineUsageError(
            f"host {host!r} cannot be the name of a folder; give one without / and wildcards, and"
            " without _ and . in front, that is not like shard-001 or binlog.1"
        )
    if not target or is_glob(target):
        raise PipelineUsageError(
            f"target {target!r} is not the path of a folder; give one without the wildcards *?[{{"
        )
    if SHARD.fullmatch(folder.absolute().name):
        raise PipelineUsageError(
            f"binlog folder {folder} is that of one worker; give the folder above it"
        )
    inspect_files(folder)
    with _locked(folder):
        shards = _shards(folder, host)
        return _Run(folder, shards, _manifest(shards, target, host)).ship()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder itself, which servers do not lock. Raises PipelineUsageError, OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineUsageError(
                f"binlog folder {folder} is being shipped by another process; wait for its end"
            ) from None
        yield
    finally:
        os.close(fd)


def _shards(folder: Path, host: str) -> list[_Shard]:
    # A start writes to new files, so those of a stopped server are complete. A server that starts
    # meanwhile is detected only if its files are listed before.
    listed = {
        name: _without_preallocated(list(files))
        for name, files in itertools.groupby(
            find_below(folder.absolute(), host), lambda each: each.shard
        )
    }
    _check_lock(folder / TOP_LOCK)
    shards = []
    for each in inspect_files(folder).shards:
        _check_lock(each.path / LOCK)
        name = each.prefix.rstrip("/")
        written = listed.get(name, [])
        last = written[-1].number if written else 0
        if each.live and written and not written[-1].path.endswith(".done"):
            del written[-1]
        shards.append(_Shard(name, each.path, _identity(each.path), written, last))
    return shards


def _check_lock(lock: Path) -> None:
    """Raise PipelineUsageError if the lock cannot show that a server is running."""
    if lock.exists() and not os.access(lock, os.R_OK, effective_ids=True):
        raise PipelineUsageError(
            f"cannot open {lock} to see whether a server is running; run as the owner of the folder"
        )


def _without_preallocated(files: list[BinlogFile]) -> list[BinlogFile]:
    while files and not has_entries(files[-1]):
        del files[-1]
    return files


def _identity(path: Path) -> str:
    try:
        return read_regular(path / HISTORY_ID).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def _manifest(shards: Sequence[_Shard], target: str, host: str) -> Manifest:
    """Return the manifest of HOST, HOST~2, ... that has files of these shards only, or is new."""
    top = RemotePath.of(absolute(target))
    for generation in itertools.count(1):
        name = host if generation == 1 else f"{host}~{generation}"
        manifest = Manifest.load(top.below(name))
        shipped = {line.shard for line in manifest.lines}
        if shipped <= {shard.name for shard in shards} and not any(
            _is_recreated(shard, manifest) for shard in shards
        ):
            return manifest
    raise AssertionError


def _is_recreated(shard: _Shard, manifest: Manifest) -> bool:
    """Whether the shard was recreated after the files in the manifest."""
    last = manifest.last(shard.name)
    if last is None:
        return False
    if last.identity and shard.identity and last.identity != shard.identity:
        return True
    if 0 < shard.last < last.file:
        return True
    file = next((each for each in shard.complete if each.number == last.file), None)
    return file is not None and head_of(file.path, HEAD_BYTES) not in (None, last.head)


class _Run:
    def __init__(self, top: Path, shards: Sequence[_Shard], manifest: Manifest) -> None:
        self._top = top
        self._shards = shards
        self._manifest = manifest
        self._buffer = FileBuffer()
        self._files = 0
        self._size = 0
        self._missing: list[str] = []
        self._is_saved = True
        self._saved_mono = time.monotonic()

    def ship(self) -> Shipment:
        self._save()  # the archiver keeps files from now on
        try:
            for shard in self._shards:
                self._ship(shard)
        finally:
            self._save()
        target = self._manifest.folder.url
        return Shipment(target, self._files, self._size, tuple(self._missing))

    def _ship(self, shard: _Shard) -> None:
        following = self._manifest.following(shard.name)
        for file in shard.complete:
            if following is not None and file.number < following:
                continue
            try:
                data = read_file(self._buffer, file)
            except FileNotFoundError:
                continue  # its number is missing before the next file
            self._report_missing(shard, following, file.number)
            self._copy(shard, file, data)
            following = file.number + 1
            if time.monotonic() - self._saved_mono >= SAVE_S:
                self._save()
        self._report_missing(shard, following, shard.last)

    def _copy(self, shard: _Shard, file: BinlogFile, data: memoryview) -> None:
        name = f"{shard.name}/{file.name}" if shard.name else file.name
        self._manifest.folder.below(name).write(data)
        head = bytes(data[:HEAD_BYTES]).ljust(HEAD_BYTES, bytes(1))
        self._manifest.lines.append(
            ShippedFile(
                shard.name,
                file.number,
                len(data),
                f"{zlib.crc32(data):08x}",
                f"{zlib.crc32(head):08x}",
                shard.identity,
                datetime.now(UTC).isoformat(timespec="seconds"),
            )
        )
        self._is_saved = False
        self._files += 1
        self._size += len(data)

    def _report_missing(self, shard: _Shard, first: int | None, end: int) -> None:
        """Report the files from `first` up to `end`, exclusive, if there are any."""
        if first is None or first >= end:
            return
        last = end - 1
        self._manifest.lines.append(MissingFiles(shard.name, (first, last)))
        self._is_saved = False
        names = f"binlog.{first}" if first == last else f"binlog.{first} to binlog.{last}"
        self._missing.append(f"{names} of {shard.path}")

    def _save(self) -> None:
        """Write the manifest, and let the archiver remove what it names."""
        if not self._is_saved:
            self._manifest.save()
            self._is_saved = True
            self._saved_mono = time.monotonic()
        following = {each.identity: self._manifest.following(each.name) for each in self._shards}
        shipped = {key: (number or 1) - 1 for key, number in following.items() if key}
        record_shipped(self._top, shipped)
