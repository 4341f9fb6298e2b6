"""One export at a time to one output.

A lock of the kernel, which goes with the process that has it, so none is ever left behind. Other
file systems than local ones have no such lock: there it is for the caller to run one at a time.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs.export.files import Files

NAME = "lock"


@contextmanager
def locked(files: Files, folder: str) -> Iterator[None]:
    """For as long as the block lasts. Raises PipelineUsageError if somebody else has it."""
    try:
        files.make_folders([folder])
    except OSError as error:
        raise PipelineUsageError(f"output {files.top} cannot be made: {error.strerror}") from error
    if files.local is None:
        yield
        return
    fd = os.open(f"{files.local}/{folder}/{NAME}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineUsageError(
                f"another export writes to {files.local}; wait until it is done"
            ) from None
        yield
    finally:
        os.close(fd)
