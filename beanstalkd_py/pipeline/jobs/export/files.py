"""The files of an export, on whatever file system Spark reaches: Hadoop's own API does everything.

One code path for local folders, HDFS and object stores. All that an export does to its output by
itself goes through here, as single steps of which each has happened or not. Knows nothing of what
the files are.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class File:
    """A file below the top folder; `size` in bytes."""

    name: str
    size: int


class Files:
    """The files below a folder. Names are relative to it, with slashes between."""

    def __init__(self, spark: SparkSession, top: str) -> None:
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm
        path = self._jvm.org.apache.hadoop.fs.Path(top)
        self._system: Any = path.getFileSystem(context._jsc.hadoopConfiguration())
        whole = self._system.makeQualified(path)
        self.top = str(whole.toString()).rstrip("/")
        self.local: str | None = None
        """The folder on this machine. None: it is elsewhere."""
        if self._system.getScheme() == "file":
            self.local = str(whole.toUri().getPath())

    def path(self, name: str) -> str:
        """The whole path, as Spark takes it."""
        return f"{self.top}/{name}"

    def _of(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path(name))

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        return bool(self._system.exists(self._of(name)))

    def names(self, folder: str) -> list[str]:
        """What is directly in a folder, in order; nothing if there is no such folder."""
        if not self.exists(folder):
            return []
        found = self._system.listStatus(self._of(folder))
        return sorted(str(each.getPath().getName()) for each in found)

    def below(self, folder: str) -> list[File]:
        """The files in a folder and its folders, in order, without those that are hidden."""
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
        """The text of a small file."""
        stream = self._system.open(self._of(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """A small file; one that is there is replaced, and may be torn by a crash."""
        stream = self._system.create(self._of(name), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def make_folders(self, names: Iterable[str]) -> None:
        """Folders that may be there already. Raises OSError."""
        for name in sorted(set(names)):
            if not self._system.mkdirs(self._of(name)):
                raise OSError(errno.EIO, "the folder cannot be made", self.path(name))

    def rename(self, old: str, new: str) -> None:
        """A file whose new name nobody has. Raises OSError."""
        if not self._system.rename(self._of(old), self._of(new)):
            raise OSError(errno.EIO, f"cannot be renamed to {self.path(new)}", self.path(old))

    def delete(self, name: str) -> None:
        """A file, or a folder with all that is in it; no matter if it is not there."""
        self._system.delete(self._of(name), True)

    def sync(self, names: Iterable[str]) -> None:
        """Local files are on disk when it returns; other systems see to that themselves."""
        if self.local is None:
            return
        for name in names:
            fd = os.open(f"{self.local}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
