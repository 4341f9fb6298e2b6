"""Export messages to Parquet files, which appear atomically. This module imports PyArrow."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.queries.columns import SCHEMA, batch_of
from beanstalkd_py.symlinks import sync_folder

GROUP_ROWS = 1 << 16
GROUP_BYTES = 1 << 25
"""Limits of a row group: rows, and bytes of messages kept in memory."""
SUCCESS = "_SUCCESS"
"""Marks a complete folder, as in Spark and Hadoop."""

_DICTIONARIES = ["tube", "topic", "tags", "born_host", "store_host"]


@dataclass(slots=True)
class Written:
    """Completed files and rows."""

    files: int = 0
    rows: int = 0
    bytes: int = 0


class ParquetFile:
    """A Parquet file, written under a hidden name until it is complete. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Spark ignores files whose names begin with a dot.
        self._staged = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
        self._file = self._staged.open("xb")
        self._writer: Any = None
        self._messages: list[Stored] = []
        self._waiting_bytes = 0
        self.rows = 0
        self.message_bytes = 0
        """Size of its messages in the log."""

    def add(self, message: Stored) -> None:
        self._messages.append(message)
        self.rows += 1
        self.message_bytes += message.size
        self._waiting_bytes += message.size
        if len(self._messages) >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._write_group()

    def _open(self) -> Any:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._file, SCHEMA, compression="zstd", use_dictionary=_DICTIONARIES
            )
        return self._writer

    def _write_group(self) -> None:
        messages, self._messages, self._waiting_bytes = self._messages, [], 0
        self._open().write_batch(batch_of(messages), row_group_size=GROUP_ROWS)

    def finish(self) -> int:
        """Complete the file durably and return its size in bytes."""
        if self._messages:
            self._write_group()
        self._open().close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = os.fstat(self._file.fileno()).st_size
        self._file.close()
        self._staged.replace(self._path)
        sync_folder(self._path.parent)
        return size

    def abandon(self) -> None:
        self._file.close()
        self._staged.unlink(missing_ok=True)


def write_file(messages: Iterable[Stored], path: Path) -> Written:
    """Write all messages to one file, replacing an existing one. OSError leaves it unchanged."""
    file = ParquetFile(path)
    try:
        for message in messages:
            file.add(message)
        return Written(1, file.rows, file.finish())
    except BaseException:
        file.abandon()
        raise


def write_folder(
    messages: Iterable[Stored], folder: Path, most_rows: int | None, most_bytes: int | None
) -> Written:
    """Write files of limited rows and bytes of messages to a folder, which is created if needed.

    SUCCESS is written last. A message above the limit gets its own file. After OSError complete
    files remain.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = Written()
    rest = iter(messages)
    first = next(rest, None)
    while first is not None or written.files == 0:
        path = folder / f"part-{written.files:05d}.parquet"
        first = _fill(path, first, rest, most_rows, most_bytes, written)
    (folder / SUCCESS).touch()
    sync_folder(folder)
    return written


def _fill(
    path: Path,
    first: Stored | None,
    rest: Iterator[Stored],
    most_rows: int | None,
    most_bytes: int | None,
    written: Written,
) -> Stored | None:
    """Write one file; return the first message that did not fit, None at the end."""
    file = ParquetFile(path)
    try:
        at: Stored | None = first
        while at is not None:
            if file.rows and (
                (most_rows is not None and file.rows >= most_rows)
                or (most_bytes is not None and file.message_bytes + at.size > most_bytes)
            ):
                break
            file.add(at)
            at = next(rest, None)
        rows = file.rows
        size = file.finish()
    except BaseException:
        file.abandon()
        raise
    written.files, written.rows, written.bytes = (
        written.files + 1,
        written.rows + rows,
        written.bytes + size,
    )
    return at
