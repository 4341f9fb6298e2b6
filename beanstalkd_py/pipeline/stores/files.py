"""Finds the files of history stores and divides them among tasks, without taking a lock.

Files of the commit log can be split anywhere: a message contains its own offset, so a task finds
the first message after any offset.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.topics import unescape
from beanstalkd_py.pipeline.sources.columns import ALL
from beanstalkd_py.pipeline.sources.decoder import Fault
from beanstalkd_py.pipeline.sources.paths import Hosts, expand_local, true_path

_PATHS = {
    "messages": re.compile(rf"(?:^|.*/){layout.COMMIT_LOG}/(?P<start>\d{{20}})"),
    "queues": re.compile(
        rf"(?:^|.*/){layout.CONSUME_QUEUE}/(?P<topic>[^/]+)/(?P<queue>\d+)/(?P<start>\d{{20}})"
    ),
    "index": re.compile(rf"(?:^|.*/){layout.INDEX}/(?P<name>\d{{17}})"),
}
GLOBS = {
    "messages": f"{layout.COMMIT_LOG}/*",
    "queues": f"{layout.CONSUME_QUEUE}/*/*/*",
    "index": f"{layout.INDEX}/*",
}
"""Files of a view, below the folder of a store."""


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file, or its bytes from `begin` to `end`. `start` is the log offset of its first byte.

    `last`: no file follows. `exact`: a message begins at `begin`; otherwise the first one after it
    is searched for.
    """

    path: str
    host: str
    start: int = 0
    size: int = 0
    last: bool = False
    topic: str = ""
    queue_id: int = 0
    begin: int = 0
    end: int = ALL
    exact: bool = False

    @property
    def stop(self) -> int:
        """The log offset after its last byte."""
        return self.start + self.size

    def constants(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "path": self.path,
            "file": self.path.rpartition("/")[2],
            "topic": self.topic,
            "tube": unescape(self.topic) if self.topic else None,
            "queueId": self.queue_id,
        }

    def fault(self, offset: int, what: str, torn: bool = False) -> Fault:
        columns = {**self.constants(), "physicalOffset": self.start + offset}
        if not self.topic:  # that of a lost message is unknown
            columns |= {"topic": None, "queueId": None}
        return Fault(self.path, offset, what, columns, torn)


def of_path(view: str, path: str, hosts: Hosts, size: int = 0) -> StoreFile | None:
    """Return the file at a path, None if the path is not one of the view."""
    match = _PATHS[view].fullmatch(path)
    if match is None:
        return None
    named = match.groupdict()
    return StoreFile(
        path,
        hosts.host(path),
        int(named.get("start") or 0),
        size,
        topic=named.get("topic") or "",
        queue_id=int(named.get("queue") or 0),
    )


def find(view: str, paths: tuple[str, ...], hosts: Hosts) -> list[StoreFile]:
    """Find the files of a view, by store, each once. Raises PipelineUsageError, OSError."""
    by_store: dict[str, list[StoreFile]] = {}
    for pattern in paths:
        matched = expand_local(pattern, "read_store")
        stores = [each for each in matched if (Path(each) / layout.COMMIT_LOG).is_dir()]
        if not stores:
            raise PipelineUsageError(
                f"{pattern} is not a history store: it has no folder {layout.COMMIT_LOG}"
            )
        for store in stores:
            key = true_path(store)
            if key not in by_store:
                by_store[key] = _of_store(view, Path(store), hosts)
    return [file for files in by_store.values() for file in files]


def _of_store(view: str, store: Path, hosts: Hosts) -> list[StoreFile]:
    files = []
    for path in sorted(store.glob(GLOBS[view])):
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            continue  # expired meanwhile
        file = of_path(view, str(path), hosts, size)
        if file is not None and size > 0:
            files.append(file)
    if view == "messages" and files:
        files[-1] = replace(files[-1], last=True)
    return files


def _used(file: StoreFile) -> int:
    """Return the bytes that may be written, at least 1: the last file of a log is preallocated.

    They end at the hole at the end of the file, if the file system reports one.
    """
    if not file.last:
        return file.size
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return file.size  # expired meanwhile
    end = 0
    try:
        while end < file.size:
            end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:  # there is no more data
            return file.size
    finally:
        os.close(fd)
    return max(end, 1)


def divide(
    files: list[StoreFile], view: str, least: int, most_bytes: int
) -> Iterator[list[StoreFile]]:
    """Return the files of each task: parts of the commit log, whole files of other views."""
    with_use = [(file, _used(file)) for file in files]
    total = sum(used for _, used in with_use)
    piece = max(1, min(most_bytes, -(-total // least) if least else most_bytes))
    task: list[StoreFile] = []
    rest = piece
    for file, used in with_use:
        at = 0
        while at < used:
            part = min(rest, used - at) if view == "messages" else used
            # The last part includes what is written meanwhile.
            end = at + part if at + part < used else file.size
            task.append(replace(file, begin=at, end=end))
            at, rest = at + part, rest - part
            if rest <= 0:
                yield task
                task, rest = [], piece
    if task:
        yield task
