"""Files of one task, one after another: the rows of each, or why it has none.

Must not know what is in them, nor how they are opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import pyarrow as pa

GONE = "it was removed before it was read"

File = TypeVar("File")
Rows = Iterator[pa.RecordBatch]


class Reading(Generic[File]):
    """`decoded` makes rows of a file and its bytes, `left_out` of a file and why it has none.

    `chosen` leaves those that are wanted.
    """

    def __init__(
        self,
        decoded: Callable[[File, Any], Rows],
        left_out: Callable[[File, str], Rows],
        chosen: Callable[[Rows], Rows],
    ) -> None:
        self._decoded = decoded
        self._left_out = left_out
        self._chosen = chosen

    def rows(self, file: File, data: Any) -> Rows:
        """Of a file whose bytes somebody has, as they are wanted. Raises MalformedError."""
        return self._chosen(self._decoded(file, data))

    def unreadable(self, file: File, why: str) -> Rows:
        """Of one that cannot be read. Raises MalformedError."""
        return self._chosen(self._left_out(file, why))

    def of_files(
        self,
        files: Iterable[File],
        opened: Callable[[File], Any],
        gone: Callable[[File], Iterable[pa.RecordBatch]],
    ) -> Rows:
        """Of all of them: `opened` gives the bytes of one, `gone` is for one that is not there.

        Raises MalformedError, and what `gone` raises.
        """
        for file in files:
            try:
                data = opened(file)
            except FileNotFoundError:
                yield from gone(file)
            except OSError as error:
                yield from self.unreadable(file, str(error.strerror))
            else:
                yield from self.rows(file, data)
