"""What `serve` was asked to do, checked and in base units. Knows no command line."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from beanstalkd_py.server.logging.formats import TEXT

MAX_JOB_SIZE_LIMIT = 1073741824
DEFAULT_MAX_JOB_SIZE = 65535
DEFAULT_FILE_SIZE = 10485760
DEFAULT_PORT = 11300
DEFAULT_LISTEN = "0.0.0.0"
AUTO_WORKERS = 0
"""As many workers as the binlog folder has been divided for, else new_workers()."""
MAX_WORKERS = 255
FEW_PROCESSORS = 4
"""Below this number one worker is faster than several, because the clients need processors, too."""
MAX_COLOCATE_BYTES = 16
DEFAULT_METRICS_TUBES = 1000
MAX_METRICS_TUBES = 1_000_000
DEFAULT_HISTORY_BACKLOG = 1 << 32
SMALL_SIZES = "small"
ROCKETMQ_SIZES = "rocketmq"
HISTORY_SIZES = (SMALL_SIZES, ROCKETMQ_SIZES)
DEFAULT_OUTPUT_LIMIT = 1 << 20
LEAST_OUTPUT_LIMIT = 4096
NS_PER_S = 1_000_000_000

SYNC_EACH = 0
SYNC_NEVER = -1


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """One start of the server.

    Sizes are bytes. `sync_interval_ns` is 0 for sync before the reply and negative for never.
    `listen` is an address, a host name or `unix:PATH`; `address_given` tells whether it or the port
    was asked for or is the default. `verbosity` counts -V. `workers` is AUTO_WORKERS until
    shards.with_workers has chosen. `colocate` ends the part of a tube's name that decides its
    worker; None stands for the whole name. `control` is the path of the control socket, "none", or
    None for the usual place. `metrics` is where metrics are served, as addresses.parse_endpoint
    reads it; None: nowhere. `metrics_tubes` is how many tubes have metrics of their own. Of limits
    and timeouts 0 is none. `allow` has networks as networks.parse_networks gives them; without any,
    everybody may connect. `tls_listen` is HOST:PORT, the other three are files. `log_format` is one
    of log_lines.FORMATS. Commands whose reply takes `slow_ns` nanoseconds or longer are logged.
    `history` is the folder of the history store, None: there is none. Messages in it are kept for
    `history_age_ns` nanoseconds and as long as they have `history_size` bytes, 0 is no limit; a new
    store has files of `history_sizes`. `history_backlog` is bytes of binlog files that may wait to
    be archived.
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
    workers: int = AUTO_WORKERS
    colocate: bytes | None = None
    control: str | None = None
    metrics: str | None = None
    metrics_tubes: int = DEFAULT_METRICS_TUBES
    max_connections: int = 0
    max_memory: int = 0
    max_tubes: int = 0
    output_limit: int = DEFAULT_OUTPUT_LIMIT
    idle_timeout_ns: int = 0
    send_timeout_ns: int = 0
    output_timeout_ns: int = 0
    allow: tuple[str, ...] = ()
    tls_listen: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    log_format: str = TEXT
    slow_ns: int = 0
    history: str | None = None
    history_age_ns: int = 0
    history_size: int = 0
    history_backlog: int = DEFAULT_HISTORY_BACKLOG
    history_sizes: str = SMALL_SIZES

    def for_archiver(self) -> dict[str, Any]:
        """What the archiver is told, at its start and when it has changed."""
        return {
            "verbosity": self.verbosity,
            "log_format": self.log_format,
            "history": self.history_rules(),
            "backlog": self.history_backlog,
        }

    def history_rules(self) -> dict[str, Any]:
        """What a store is to be like: see archiver.rules.Rules."""
        assert self.history is not None
        return {
            "folder": os.fsencode(self.history),
            "age_s": self.history_age_ns / NS_PER_S,
            "most_bytes": self.history_size,
            "rocketmq_sizes": self.history_sizes == ROCKETMQ_SIZES,
        }

    def limits(self) -> dict[str, int]:
        """What a core is told of them: the fields of core.limits.Limits."""
        return {
            "memory": self.max_memory,
            "tubes": self.max_tubes,
            "output": self.output_limit,
            "idle_timeout_ns": self.idle_timeout_ns,
            "send_timeout_ns": self.send_timeout_ns,
            "output_timeout_ns": self.output_timeout_ns,
        }


def new_workers() -> int:
    """The workers of a server without a binlog so far: one per usable processor, one for few."""
    usable = len(os.sched_getaffinity(0))
    return 1 if usable < FEW_PROCESSORS else min(usable, MAX_WORKERS)
