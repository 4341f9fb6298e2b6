"""The checked options of `serve`, in base units. Imports nothing else of the server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beanstalkd_py.core.tube_policy import TubePolicy
from beanstalkd_py.quantities import NS_PER_S
from beanstalkd_py.schedules.schedule import Schedule

if TYPE_CHECKING:
    from beanstalkd_py.archiver.store_settings import StoreSettings
    from beanstalkd_py.console.settings import ConsoleSettings

MAX_JOB_SIZE_LIMIT = 1073741824
DEFAULT_MAX_JOB_SIZE = 65535
DEFAULT_FILE_SIZE = 10485760
DEFAULT_PORT = 11300
DEFAULT_LISTEN = "0.0.0.0"
AUTO_WORKERS = 0
"""The number of shards of the binlog folder; for a new folder, new_workers()."""
MAX_WORKERS = 255
FEW_PROCESSORS = 4
"""With fewer processors, one worker is faster than several, because clients use processors, too."""
AUTO_TLS_PROCESSES = 0
"""The result of auto_tls_processes()."""
MAX_TLS_PROCESSES = 64
MAX_COLOCATE_BYTES = 16
DEFAULT_METRICS_TUBES = 1000
MAX_METRICS_TUBES = 1_000_000
DEFAULT_HISTORY_BACKLOG = 1 << 32
SMALL_SIZES = "small"
ROCKETMQ_SIZES = "rocketmq"
HISTORY_SIZES = (SMALL_SIZES, ROCKETMQ_SIZES)
DEFAULT_LEASE_NS = 12_000_000_000
MIN_LEASE_NS = 4_000_000_000
DEFAULT_KEEP_NS = 300_000_000_000
DEFAULT_CONSOLE_ROLE = "read"
CONSOLE_ROLES = (DEFAULT_CONSOLE_ROLE, "operate", "admin")
DEFAULT_COPIES = 3
MAX_COPIES = 5
DEFAULT_OUTPUT_LIMIT = 1 << 20
MIN_OUTPUT_LIMIT = 4096
TEXT = "text"
JSON = "json"
LOG_FORMATS = (TEXT, JSON)

SYNC_EACH = 0
SYNC_NEVER = -1


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of one start. Sizes are bytes; for limits and timeouts 0 means none."""

    listen: str = DEFAULT_LISTEN
    """An address, a host name or `unix:PATH`."""
    port: int = DEFAULT_PORT
    address_given: bool = False
    """Whether `listen` or `port` is not the default."""
    binlog_dir: str | None = None
    file_size: int = DEFAULT_FILE_SIZE
    sync_interval_ns: int = SYNC_EACH
    max_job_size: int = DEFAULT_MAX_JOB_SIZE
    user: str | None = None
    verbosity: int = 0
    """The number of -V."""
    workers: int = AUTO_WORKERS
    """AUTO_WORKERS until shard_folders.with_workers replaces it."""
    colocate: bytes | None = None
    """Ends the part of a tube's name that decides its shard; None: the whole name decides."""
    control: str | None = None
    """The path of the control socket, "none", or None for the default path."""
    metrics: str | None = None
    """HOST:PORT, [IPV6]:PORT or unix:PATH."""
    metrics_tubes: int = DEFAULT_METRICS_TUBES
    """The number of tubes with metrics of their own."""
    max_connections: int = 0
    max_memory: int = 0
    max_tubes: int = 0
    body_memory: int = 0
    """Bytes of job bodies that all workers keep in memory; 0: all bodies."""
    output_limit: int = DEFAULT_OUTPUT_LIMIT
    idle_timeout_ns: int = 0
    send_timeout_ns: int = 0
    output_timeout_ns: int = 0
    policies: tuple[TubePolicy, ...] = ()
    """The policies of tubes; the first whose pattern matches applies."""
    schedules: tuple[Schedule, ...] = ()
    """The jobs that the parent puts again and again. Other processes do not get them."""
    allow: tuple[str, ...] = ()
    """The networks that may connect, in CIDR notation; empty: all."""
    tls_listen: str | None = None
    """HOST:PORT."""
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    tls_processes: int = AUTO_TLS_PROCESSES
    log_format: str = TEXT
    slow_ns: int = 0
    """The slow log contains commands that take at least this long; 0: no slow log."""
    history: str | None = None
    """The folder of the history store."""
    history_age_ns: int = 0
    history_size: int = 0
    history_backlog: int = DEFAULT_HISTORY_BACKLOG
    """The maximum size of binlog files that wait for the archiver."""
    history_sizes: str = SMALL_SIZES
    replicate: str | None = None
    """nats://HOST[:PORT][,...]/NAME."""
    replicate_address: str | None = None
    """Where clients and other servers reach this one, HOST:PORT."""
    replicate_lease_ns: int = DEFAULT_LEASE_NS
    replicate_timeout_ns: int = 0
    replicate_keep_ns: int = DEFAULT_KEEP_NS
    """How long NATS keeps what a server that does not run has not copied."""
    replicate_copies: int = DEFAULT_COPIES
    """The number of NATS servers that have a copy of a new stream."""
    replicate_creds: str | None = None
    replicate_tls_ca: str | None = None
    console: str | None = None
    """HOST:PORT."""
    console_users: str | None = None
    console_role: str = DEFAULT_CONSOLE_ROLE
    """The role of everybody without `console_users`."""
    console_host: tuple[str, ...] = ()
    """Further names of the console for browsers."""
    console_user_header: str | None = None
    console_https: bool = False
    console_audit_log: str | None = None

    def body_memory_of_worker(self) -> int:
        """Return the share of each worker."""
        return self.body_memory and max(1, self.body_memory // max(1, self.workers))

    def store_settings(self) -> StoreSettings:
        """Return the settings of the history store; `history` must be set."""
        from pathlib import Path

        from beanstalkd_py.archiver.store_settings import StoreSettings

        assert self.history is not None
        return StoreSettings(
            folder=Path(self.history),
            age_s=self.history_age_ns / NS_PER_S,
            most_bytes=self.history_size,
            rocketmq_sizes=self.history_sizes == ROCKETMQ_SIZES,
        )

    def console_settings(self) -> ConsoleSettings:
        """Return the settings of the console; `console` must be set."""
        from beanstalkd_py.console.settings import ConsoleSettings
        from beanstalkd_py.server.accept.addresses import parse_host_port

        assert self.console is not None
        return ConsoleSettings(
            parse_host_port(self.console, "--console").host,
            self.console_users,
            self.console_role,
            self.console_host,
            self.console_user_header,
            self.console_https,
            self.console_audit_log,
        )


def new_workers() -> int:
    """Return the number of workers for a new binlog folder, by the usable processors."""
    usable = len(os.sched_getaffinity(0))
    return 1 if usable < FEW_PROCESSORS else min(usable, MAX_WORKERS)


def auto_tls_processes() -> int:
    """Return the number of TLS processes by the usable processors."""
    usable = len(os.sched_getaffinity(0))
    return 1 if usable < FEW_PROCESSORS else min(usable // 2, MAX_TLS_PROCESSES)
