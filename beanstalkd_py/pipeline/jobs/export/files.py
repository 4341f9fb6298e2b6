"""File operations of an export by Hadoop's API: local folders, HDFS and object stores alike.

Every change of the output that Spark does not make goes through here, in atomic steps.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from beanstalkd_py.errors import PipelineUsageError


@dataclass(frozen=True, slots=True)
class File:
    name: str
    size: int


class Files:
    """The files below a folder; names are relative to it."""

    def __init__(self, spark: SparkSession, top: str) -> None:
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm
        path = self._jvm.org.apache.hadoop.fs.Path(top)
        self._system: Any = path.getFileSystem(context._jsc.hadoopConfiguration())
        whole = self._system.makeQualified(path)
        self.top = str(whole.toString()).rstrip("/")
        self.local: str | None = None  # the folder, if it is on this machine
        if self._system.getScheme() == "file":
            self.local = str(whole.toUri().getPath())

    def path(self, name: str) -> str:
        return f"{self.top}/{name}"

    def _of(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path(name))

    def exists(self, name: str) -> bool:
        return bool(self._system.exists(self._of(name)))

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; nothing for a missing folder."""
        if not self.exists(folder):
            return []
        found = self._system.listStatus(self._of(folder))
        return sorted(str(each.getPath().getName()) for each in found)

    def below(self, folder: str) -> list[File]:
        """Return the files below a folder in order, without hidden ones."""
        if not self.exists(folder):
            return []
        found: list[File] = []
        each_file = self._system.listFiles(self._of(folder), True)
        while each_file.hasNext():
            status = each_file.next()
            name = str(status.getPath().toString())[len(self.top) + 1 :]
            if not name.rpartition("/")[2].startswith(("_", ".")):
                found.append(File(name, int(status.getLen())))
        return sorted(found, key=lambda file: file.name)

    def read(self, name: str) -> str:
        stream = self._system.open(self._of(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write or replace a small file. A crash may leave it incomplete."""
        stream = self._system.create(self._of(name), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def make_folders(self, names: Iterable[str]) -> None:
        """Make folders, which may exist. Raises OSError."""
        for name in sorted(set(names)):
            if not self._system.mkdirs(self._of(name)):
                raise OSError(errno.EIO, "cannot make the folder", self.path(name))

    def rename(self, old: str, new: str) -> None:
        if not self._system.rename(self._of(old), self._of(new)):
            raise OSError(errno.EIO, f"cannot rename the file to {self.path(new)}", self.path(old))

    def delete(self, name: str) -> None:
        """Delete a file, or a folder and its contents, if it exists."""
        self._system.delete(self._of(name), True)

    def sync(self, names: Iterable[str]) -> None:
        """Sync local files. Other file systems do so themselves."""
        if self.local is None:
            return
        for name in names:
            fd = os.open(f"{self.local}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


@contextmanager
def locked(files: Files, folder: str) -> Iterator[None]:
    """Lock the output of an export. Raises PipelineUsageError if another export has the lock.

    Only local file systems have a lock, which ends with the process. On others the caller has to
    run one export at a time.
    """
    try:
        files.make_folders([folder])
    except OSError as error:
        raise PipelineUsageError(f"cannot make output {files.top}: {error.strerror}") from error
    if files.local is None:
        yield
        return
    fd = os.open(f"{files.local}/{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineUsageError(
                f"another export writes to {files.local}; wait until it has ended"
            ) from None
        yield
    finally:
        os.close(fd)
