"""The folder of backups: a manifest for each, and chunks of files that they share.

    URL/NAME.json           the files of a backup, and the chunks of each
    URL/chunks/SHA256       at most CHUNK_BYTES of a file, named by their hash

A chunk never changes, so backups share the chunks of files that did not change between them. The
manifest is written last: without it there is no backup, and its chunks serve the next one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from pyarrow import fs

from beanstalkd_py.backup.history_files import HISTORY
from beanstalkd_py.errors import PipelineError, ToolUsageError
from beanstalkd_py.pipeline.sources.paths import absolute, is_glob
from beanstalkd_py.pipeline.sources.remote import RemotePath

CHUNK_BYTES = 4 << 20
FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PATH = re.compile(
    rf"{HISTORY}(commitlog/\d{{20}}|[a-z][a-z.]*)|(shard-\d{{3}}/)?[A-Za-z][A-Za-z0-9.-]*"
)
_MANIFEST = ".json"
_CHUNKS = "chunks"


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file of `size` bytes; `path` is relative to the folder.

    `version` has inode, size, and times of the last changes in nanoseconds when it was read.
    """

    path: str
    size: int
    chunks: tuple[str, ...]
    version: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Backup:
    """The manifest. Times are UTC, in ISO 8601."""

    name: str
    created: str
    workers: int
    files: Sequence[SavedFile] = field(default_factory=tuple)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def has_history(self) -> bool:
        return any(file.path.startswith(HISTORY) for file in self.files)


class Target:
    """The folder at a URL. Methods raise OSError."""

    def __init__(self, url: str) -> None:
        """Raises ToolUsageError, PipelineUsageError, OSError."""
        if not url or is_glob(url):
            text = f"target {url!r} is not a folder; give a path or URL without the wildcards *?[{{"
            raise ToolUsageError(text)
        self._folder = RemotePath.of(absolute(url))
        self._stored: dict[str, int] | None = None  # the chunks and their bytes

    @property
    def url(self) -> str:
        return self._folder.url

    def names(self) -> list[str]:
        """Return the names of all backups, sorted."""
        selector = fs.FileSelector(self._folder.path, allow_not_found=True)
        infos = self._folder.files.get_file_info(selector)
        names = (info.base_name for info in infos if info.type == fs.FileType.File)
        return sorted(
            name.removesuffix(_MANIFEST)
            for name in names
            if name.endswith(_MANIFEST) and _NAME.fullmatch(name)
        )

    def backups(self) -> list[Backup]:
        """Return all backups, oldest first. Raises PipelineError."""
        return sorted(map(self.load, self.names()), key=lambda each: (each.created, each.name))

    def load(self, name: str) -> Backup:
        """Raises ToolUsageError without this backup, PipelineError."""
        path = self._manifest(name)
        try:
            text = path.read()
        except FileNotFoundError:
            raise ToolUsageError(
                f'there is no backup {name} in {self.url}; "backup list" shows those that exist'
            ) from None
        try:
            return _backup(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise PipelineError(f"{path.url} is no backup of this version: {error!r}") from error

    def save(self, backup: Backup) -> None:
        """Raises PipelineError if a chunk is not there any more."""
        self._stored = None
        if not all(map(self.has, backup.files)):
            text = f"chunks of the new backup were removed from {self.url} meanwhile; run it again"
            raise PipelineError(text)
        if backup.files:
            # A killed backup may have written chunks without syncing their folder.
            self._folder.below(_CHUNKS).sync()
        text = json.dumps({"format": FORMAT, **asdict(backup)})
        self._manifest(backup.name).write(text.encode())

    def _manifest(self, name: str) -> RemotePath:
        if not _NAME.fullmatch(name):
            text = f"{name!r} cannot be the name of a backup; use letters, digits, . _ and -"
            raise ToolUsageError(text)
        return self._folder.below(name + _MANIFEST)

    def put_chunk(self, data: bytes) -> tuple[str, bool]:
        """Store a chunk unless it is there; return its name, and whether it was written."""
        name = hashlib.sha256(data).hexdigest()
        stored = self._chunks()
        if stored.get(name) == len(data):
            return name, False
        self._chunk(name).write(data)
        stored[name] = len(data)
        return name, True

    def has(self, file: SavedFile) -> bool:
        """Whether all chunks of a file are there."""
        stored = self._chunks()
        return sum(stored.get(name, -1) for name in file.chunks) == file.size

    def _chunks(self) -> dict[str, int]:
        if self._stored is None:
            folder = self._folder.below(_CHUNKS)
            selector = fs.FileSelector(folder.path, allow_not_found=True)
            infos = folder.files.get_file_info(selector)
            self._stored = {info.base_name: info.size for info in infos}
        return self._stored

    def remove(self, names: Sequence[str]) -> int:
        """Remove these backups, and all chunks that no other one has; return how many chunks.

        No backup may be created meanwhile. A killed call leaves chunks that the next one removes.
        Raises PipelineError if one of the others cannot be read.
        """
        kept = [self.load(name) for name in self.names() if name not in names]
        needed = {chunk for backup in kept for file in backup.files for chunk in file.chunks}
        for name in names:
            self._manifest(name).remove()
        if names:
            self._folder.sync()  # a backup that is listed must have its chunks
        unneeded = [name for name in self._chunks() if name not in needed]
        for name in unneeded:
            self._chunk(name).remove()
        self._stored = None
        return len(unneeded)

    def chunk(self, name: str) -> bytes:
        """Return a chunk. Raises PipelineError if it is missing or damaged."""
        path = self._chunk(name)
        try:
            data = path.read()
        except FileNotFoundError:
            raise PipelineError(f"{path.url} is missing") from None
        if hashlib.sha256(data).hexdigest() != name:
            raise PipelineError(f"{path.url} is damaged: its contents have another hash")
        return data

    def _chunk(self, name: str) -> RemotePath:
        return self._folder.below(_CHUNKS).below(name)


def _backup(values: object) -> Backup:
    match values:
        case {
            "format": 1,
            "name": str(name),
            "created": str(created),
            "workers": int(workers),
            "files": list(files),
        }:
            return Backup(name, created, workers, tuple(map(_file, files)))
    raise ValueError("its keys are not known")


def _file(values: object) -> SavedFile:
    match values:
        case {
            "path": str(path),
            "size": int(size),
            "chunks": list(chunks),
            "version": list(version),
        }:
            if _PATH.fullmatch(path) and all(
                re.fullmatch(r"[0-9a-f]{64}", str(chunk)) for chunk in chunks
            ):
                return SavedFile(path, size, tuple(chunks), tuple(map(int, version)))
    raise ValueError(f"a file is not valid: {values!r:.200}")
