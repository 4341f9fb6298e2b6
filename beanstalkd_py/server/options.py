"""What `serve` was asked to do, checked and in base units. Knows no command line."""

from __future__ import annotations

import os
from dataclasses import dataclass

MAX_JOB_SIZE_LIMIT = 1073741824
DEFAULT_MAX_JOB_SIZE = 65535
DEFAULT_FILE_SIZE = 10485760
FILE_SIZE_UNIT = 4096
DEFAULT_PORT = 11300
DEFAULT_LISTEN = "0.0.0.0"
DEFAULT_WORKERS = "auto"
"""One for each usable processor."""
MAX_WORKERS = 255
MAX_COLOCATE_BYTES = 16

SYNC_EACH = 0
SYNC_NEVER = -1


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """One start of the server.

    Sizes are bytes (`file_size` a multiple of 4096). `sync_interval_ns` is 0 for sync before the
    reply and negative for never. `listen` is an address, a host name or `unix:PATH`;
    `address_given` tells whether it or the port was asked for or is the default. `verbosity`
    counts -V. `colocate` ends the part of a tube's name that decides its worker; None stands for
    the whole name.
    """

    listen: str = DEFAULT_LISTEN
    port: int = DEFAULT_PORT
    address_given: bool = False
    binlog_dir: str | None = None
    file_size: int = DEFAULT_FILE_SIZE
    sync_interval_ns: int = SYNC_EACH
    max_job_size: int = DEFAULT_MAX_JOB_SIZE
    user: str | None = None
    verbosity: int = 0
    workers: int = 1
    colocate: bytes | None = None


def round_file_size(size: int) -> int:
    """The size of a binlog file for a wanted size, bytes: up to a multiple of 4096."""
    return -(-size // FILE_SIZE_UNIT) * FILE_SIZE_UNIT


def usable_workers() -> int:
    """A worker for each processor that this process may run on, as far as workers go."""
    return min(len(os.sched_getaffinity(0)), MAX_WORKERS)
