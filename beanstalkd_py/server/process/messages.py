"""Messages of several fields: the configuration of a process, and the statuses of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from beanstalkd_py.server.options import ServeOptions


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """The configuration of one process; `options` are those in force.

    `index` numbers the processes of a module from 0. `folders` are binlog folders: only its own for
    a worker, those of all workers for another process.
    """

    parent_pid: int
    instance_id: str
    started_mono: float
    index: int
    folders: list[str]
    options: ServeOptions

    def encode(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def decode(cls, values: Mapping[str, Any]) -> Self:
        return cls(**{**values, "options": ServeOptions(**values["options"])})


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    """What the console watches: the server's first address, and its control socket, if any."""

    address: str
    control: str | None


@dataclass(frozen=True, slots=True)
class ArchiverStatus:
    """The archiver's progress. The fields up to `missing_bytes` count since the process started."""

    archived: int = 0
    freed_bytes: int = 0
    orphans: int = 0
    bodies_left_out: int = 0
    faults: int = 0
    missing_bytes: int = 0
    behind_bytes: int = 0
    open_jobs: int = 0
    refused: str = ""
    store_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ReplicatorStatus:
    """`behind` is the number of messages that a standby has not read.

    `primary` is the address of the primary, empty if there is none. `unavailable` is the last error
    of the log, empty if it answers, and `unavailable_s` the time without an answer since the start
    of the process. `epoch` is 0 for a standby, and `failovers` is counted up to this epoch.

    Of a primary: `standbys` is the number of running ones. `behind` and `behind_bytes` are what the
    report of the last one lacks, and it had all messages `behind_s` before this report.
    `waiting_bytes` wait to be stored, the oldest for `waiting_s`.
    """

    primary: str = ""
    epoch: int = 0
    behind: int = 0
    unavailable: str = ""
    unavailable_s: float = 0.0
    standbys: int = 0
    waiting_s: float = 0.0
    waiting_bytes: int = 0
    behind_s: float = 0.0
    behind_bytes: int = 0
    failovers: int = 0
