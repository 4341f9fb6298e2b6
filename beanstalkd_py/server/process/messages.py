"""Typed payloads of channel messages. Each travels as a msgpack map of its fields.

The configuration of a process is the first message that it receives; see channel.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from beanstalkd_py.core.limits import Limits
from beanstalkd_py.server.options import HistoryOptions, ServeOptions


class Payload:
    def encode(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def decode(cls, values: Mapping[str, Any]) -> Self:
        return cls(**values)


@dataclass(frozen=True, slots=True)
class WorkerOptions(Payload):
    """The options of a worker that a reload can change. Sizes are bytes."""

    max_job_size: int
    sync_interval_ns: int
    verbosity: int
    limits: Limits
    log_format: str
    slow_ns: int

    @classmethod
    def of(cls, options: ServeOptions) -> WorkerOptions:
        limits = Limits(
            memory=options.max_memory,
            tubes=options.max_tubes,
            output=options.output_limit,
            idle_timeout_ns=options.idle_timeout_ns,
            send_timeout_ns=options.send_timeout_ns,
            output_timeout_ns=options.output_timeout_ns,
        )
        return cls(
            options.max_job_size,
            options.sync_interval_ns,
            options.verbosity,
            limits,
            options.log_format,
            options.slow_ns,
        )

    @classmethod
    def decode(cls, values: Mapping[str, Any]) -> Self:
        return cls(**{**values, "limits": Limits(**values["limits"])})


@dataclass(frozen=True, slots=True)
class WorkerConfig(Payload):
    """The configuration of one worker. `history`: write the entries that the archiver needs."""

    worker: int
    parent_pid: int
    instance_id: str
    started_mono: float
    binlog_dir: bytes | None
    file_size: int
    workers: int
    colocate: bytes | None
    history: bool
    options: WorkerOptions

    @classmethod
    def decode(cls, values: Mapping[str, Any]) -> Self:
        return cls(**{**values, "options": WorkerOptions.decode(values["options"])})


@dataclass(frozen=True, slots=True)
class TlsConfig(Payload):
    """The configuration of the TLS process."""

    parent_pid: int
    verbosity: int
    log_format: str


@dataclass(frozen=True, slots=True)
class ArchiverOptions(Payload):
    """The options of the archiver that a reload can change. `backlog` is bytes."""

    verbosity: int
    log_format: str
    backlog: int
    history: HistoryOptions

    @classmethod
    def of(cls, options: ServeOptions) -> ArchiverOptions:
        history = options.history_options()
        assert history is not None
        return cls(options.verbosity, options.log_format, options.history_backlog, history)

    @classmethod
    def decode(cls, values: Mapping[str, Any]) -> Self:
        return cls(**{**values, "history": HistoryOptions(**values["history"])})


@dataclass(frozen=True, slots=True)
class ArchiverConfig(Payload):
    """The configuration of the archiver."""

    parent_pid: int
    folders: list[bytes]
    options: ArchiverOptions

    @classmethod
    def decode(cls, values: Mapping[str, Any]) -> Self:
        return cls(**{**values, "options": ArchiverOptions.decode(values["options"])})

    def folder_names(self) -> list[str]:
        return [os.fsdecode(folder) for folder in self.folders]


@dataclass(frozen=True, slots=True)
class ArchiverStatus(Payload):
    """The archiver's progress. The fields up to `missing_bytes` count from the process's start."""

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
