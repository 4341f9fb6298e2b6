"""Files on object stores and other remote file systems: those of Arrow, or of fsspec if installed.

A path is a URL with a bucket or host, such as s3://bucket/binlogs/*. Credentials and endpoints are
those of the library, from AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS and so on. Binlog files
there never change, because `ship` writes each as a whole.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.paths import before_wildcard, is_bare, prefix_expression

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/*(.*)")
_DIRECT = ("s3", "gs", "gcs", "abfs", "abfss")
_HADOOP_NAMES = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfs"}
_OBJECT_STORES = ("s3", "gcs", "abfs")
"""Their files appear when they are complete."""


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A file or folder: `path` on the file system `files`, whose top is at the URL `root`."""

    files: fs.FileSystem
    path: str
    root: str
    root_path: str

    @classmethod
    def of(cls, url: str) -> RemotePath:
        """Raises PipelineUsageError if no library knows the file system, OSError."""
        match = _URL.fullmatch("file://" + url if is_bare(url) else url)
        if match is None:
            raise PipelineUsageError(f"path {url} has no bucket or host; give SCHEME://HOST/PATH")
        scheme, authority, rest = match.groups()
        files, top = _file_system(scheme.lower(), authority)
        path = f"{top}/{rest}".rstrip("/")
        return cls(files, path, "/" if is_bare(url) else f"{scheme}://{authority}/", top)

    def below(self, name: str) -> RemotePath:
        return RemotePath(self.files, f"{self.path}/{name}", self.root, self.root_path)

    @property
    def url(self) -> str:
        return self.root + self.path.removeprefix(self.root_path).lstrip("/")

    def read(self, length: int | None = None) -> bytes:
        """Return the bytes of a file, or its first ones. Raises OSError."""
        with self.files.open_input_file(self.path) as data:
            content: bytes = data.read(length)
            return content

    def remove(self) -> None:
        """Remove the file if it exists. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self.files.delete_file(self.path)

    def write(self, data: bytes | memoryview) -> None:
        """Write a file, which appears when it is complete; on this machine, sync it.

        Raises OSError, also if the file has another size afterwards.
        """
        folder, _, name = self.path.rpartition("/")
        is_store = self.files.type_name in _OBJECT_STORES
        path = self.path if is_store else f"{folder}/_{name}.{uuid.uuid4().hex}"
        if not is_store:
            self._create_folder(folder)
        try:
            with self.files.open_output_stream(path) as out:
                out.write(data)
            if self.files.type_name == "local":
                _sync(path)
            if path != self.path:
                self._rename(path)
        except Exception:
            if path != self.path:  # a full file system would not get its space back
                with contextlib.suppress(OSError):
                    self.files.delete_file(path)
            raise
        if self.files.type_name == "local":
            _sync(folder)
        size = self.files.get_file_info(self.path).size
        if size != len(data):
            raise OSError(f"{self.url} has {size} bytes after {len(data)} were written")

    def sync(self) -> None:
        """Sync a folder of this machine, which an earlier process may have changed."""
        if self.files.type_name == "local":
            _sync(self.path)

    def _rename(self, path: str) -> None:
        """Rename another file to this one."""
        if isinstance(self.files, fs.PyFileSystem) and isinstance(
            self.files.handler, fs.FSSpecHandler
        ):
            # Arrow gives the argument recursive, which sftp:// does not take.
            self.files.handler.fs.mv(path, self.path)
        else:
            self.files.move(path, self.path)

    def _create_folder(self, folder: str) -> None:
        """Create a folder and its missing parents; on this machine, sync them. Raises OSError."""
        missing = []
        if self.files.type_name == "local":
            lineage = (Path(folder), *Path(folder).parents)
            missing = list(itertools.takewhile(lambda each: not each.exists(), lineage))
        self.files.create_dir(folder, recursive=True)
        for each in missing:
            with contextlib.suppress(PermissionError):  # a parent that cannot be listed
                _sync(str(each.parent))


def is_direct(path: str) -> bool:
    """Whether `read_binlog` opens a path through Arrow, not through the file systems of Spark."""
    match = _URL.fullmatch(path)
    return match is not None and match[1].lower() in _DIRECT


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@cache
def _file_system(scheme: str, authority: str) -> tuple[fs.FileSystem, str]:
    """Return a file system and the path of its top, without a slash at the end.

    Raises PipelineUsageError, OSError.
    """
    if scheme == "file":
        return fs.LocalFileSystem(), ""
    url = f"{_HADOOP_NAMES.get(scheme, scheme)}://{authority}/"
    try:
        files, top = fs.FileSystem.from_uri(url)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        if is_direct(url) and isinstance(error, OSError):
            raise  # it does not answer
        try:
            from fsspec.core import url_to_fs

            found, top = url_to_fs(url)
        except (ImportError, ValueError, OSError) as unknown:
            reasons = "; ".join(str(each).partition("\n")[0] for each in (error, unknown))
            raise PipelineUsageError(
                f"cannot open {url}: {reasons}; install a file system of fsspec for it, or use"
                " read_binlog(spark, path), which reads through the file systems of Spark"
            ) from error
        files = fs.PyFileSystem(fs.FSSpecHandler(found))
    return files, top.rstrip("/")


def list_files(pattern: str) -> Iterator[tuple[str, int]]:
    """Yield URL and bytes of the files that match a glob, or are below a match. Raises OSError."""
    top = RemotePath.of(before_wildcard(pattern))
    expression = re.compile(prefix_expression(pattern))
    infos = [top.files.get_file_info(top.path)]
    if infos[0].type != fs.FileType.File:
        below = fs.FileSelector(top.path, allow_not_found=True, recursive=True)
        infos = top.files.get_file_info(below)
    for info in infos:
        url = RemotePath(top.files, info.path, top.root, top.root_path).url
        if info.type == fs.FileType.File and expression.match(url):
            yield url, info.size
