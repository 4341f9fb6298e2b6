"""The registered jobs: inputs, options, and the columns shown first.

Imports nothing of Spark, because the command line lists jobs at its start.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from beanstalkd_py.errors import PipelineUsageError

_PACKAGE = "beanstalkd_py.pipeline.jobs"


class Needs(enum.Enum):
    ENTRIES = "entries of binlogs"
    TIMELINES = "timelines"
    BODIES = "timelines, and bodies"
    INPUTS = "the inputs themselves, and an output of its own"


class Span(enum.Enum):
    JOBS = "jobs that existed in it"
    WINDOWS = "windows that overlap it"
    LAST_EVENTS = "jobs whose last event is in it"


@dataclass(frozen=True, slots=True)
class Job:
    """A job. Its function has the name of its view, and is in a module of this name or `module`.

    `options` are the fields of JobRequest that the function takes. `order` and `shown` are the
    order and the columns of a table on the terminal. `is_by_tube`: the rows of a tube depend on
    that tube alone.
    """

    name: str
    needs: Needs
    about: str
    module: str | None = None
    options: tuple[str, ...] = ()
    span: Span | None = None
    is_by_tube: bool = False
    order: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    are_faults: bool = False

    @property
    def view(self) -> str:
        return self.name.replace("-", "_")

    def load(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(self._module(), self.view)
        return function

    def columns(self) -> Sequence[str]:
        columns: Sequence[str] = self._module().COLUMNS
        return columns

    def _module(self) -> Any:
        try:
            return importlib.import_module(f"{_PACKAGE}.{self.module or self.view}")
        except ModuleNotFoundError as error:
            raise PipelineUsageError(
                f"{self.name} needs {error.name}; pip install 'beanstalkd_py[spark]' installs it"
            ) from error


_ALL = (
    Job(
        name="timelines",
        needs=Needs.TIMELINES,
        about="each job: its events, and its time in each state",
        span=Span.JOBS,
        is_by_tube=True,
        order=("put_at", "host", "id"),
        shown=(
            *("host", "id", "tube", "put_at", "state", "wait_s", "finish_s", "reserves"),
            *("timeouts", "releases", "buries", "kicks", "time_kind"),
        ),
    ),
    Job(
        name="tube-metrics",
        needs=Needs.TIMELINES,
        about="rates, waiting times and depth of each tube over time",
        options=("window",),
        span=Span.WINDOWS,
        is_by_tube=True,
        order=("host", "tube", "window_start"),
        shown=(
            *("host", "tube", "window_start", "puts", "reserves", "deletes", "timeouts", "buries"),
            *("wait_p50_s", "wait_p99_s", "finish_p50_s", "finish_p99_s", "depth", "buried"),
            "unknown",
        ),
    ),
    Job(
        name="dead-letters",
        needs=Needs.BODIES,
        about="jobs that are buried or timed out often, by similar bodies",
        options=("timeouts",),
        span=Span.LAST_EVENTS,
        is_by_tube=True,
        order=("-jobs", "host", "tube", "signature"),
        shown=(
            *("host", "tube", "signature", "jobs", "buried", "timed_out", "first_put_at"),
            "sample_id",
        ),
    ),
    Job(
        name="binlog-health",
        needs=Needs.ENTRIES,
        about="live and dead bytes of each file, and the jobs that keep it",
        order=("host", "shard", "file_number"),
        shown=(
            *("host", "shard", "file", "bytes", "live_bytes", "copy_bytes", "live_jobs"),
            *("pinned_by", "oldest_job_id", "oldest_job_put_at", "write_amplification"),
        ),
    ),
    Job(
        name="verify",
        needs=Needs.ENTRIES,
        about="inconsistencies between entries of binlogs",
        order=("host", "shard", "file", "offset"),
        are_faults=True,
    ),
    Job(
        name="export",
        module="export.job",
        needs=Needs.INPUTS,
        about="add new rows to Delta Lake tables, partitioned by date",
        options=("bodies", "allow_loss"),
    ),
)
JOBS = {job.name: job for job in _ALL}
"""Jobs by their names on the command line."""
