"""Reads files one after another into the same memory.

Files are not mapped, because a server may truncate them at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from beanstalkd_py.pipeline._columns import ffi
from beanstalkd_py.pipeline.sources.paths import is_bare
from beanstalkd_py.pipeline.sources.remote import RemotePath
from beanstalkd_py.regular_file import data_size, open_regular


class FileBuffer:
    def __init__(self) -> None:
        self._bytes = bytearray(0)

    def read(self, path: str) -> memoryview:
        """Return the whole file, valid until the next call. Raises OSError."""
        if not is_bare(path):
            return memoryview(RemotePath.of(path).read())
        fd = open_regular(path)
        try:
            size = data_size(fd)
            if len(self._bytes) < size:
                self._bytes = bytearray(size)
            view = memoryview(self._bytes)[:size]
            got = 0
            while got < size and (more := os.preadv(fd, [view[got:]], got)):
                got += more
            return view[:got]
        finally:
            os.close(fd)


@contextmanager
def in_c(data: Any) -> Iterator[tuple[Any, int]]:
    """Yield a buffer as `char *` and length, valid inside the block."""
    with memoryview(data) as view:
        length = view.nbytes
        if length == 0:
            yield ffi.new("char[1]"), 0
            return
        held = ffi.from_buffer("char[]", view)
        try:
            yield ffi.cast("char *", held), length
        finally:
            ffi.release(held)
