"""`take_jobs`: jobs of tubes as a DataFrame, deleted once the result is written.

    with pipeline.take_jobs(spark, "127.0.0.1:11300", tubes=["mails"], limit=100_000) as taken:
        taken.frame.write.parquet("/srv/mails")
        taken.commit()

The driver holds the jobs until `commit`; without a commit the server releases them. A job is in the
result at least once: if the driver is killed between write and commit, its jobs are taken again.
"""

from __future__ import annotations

import contextlib
import logging
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import SupportsIndex, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beanstalkd_py.admin.address import DEFAULT_ADDRESS
from beanstalkd_py.admin.tls_options import TlsOptions
from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sink.held_jobs import Committed, HeldJob, HeldJobs
from beanstalkd_py.pipeline.sink.server import (
    DEFAULT_TIMEOUT_S,
    TubeServer,
    address_of,
    check_tls,
    check_tube,
)
from beanstalkd_py.pipeline.sources.columns import BINARY, LONG, STRING
from beanstalkd_py.pipeline.sources.options import LONGEST_S
from beanstalkd_py.plural import counted

DEFAULT_LIMIT = 10_000
DEFAULT_LIMIT_BYTES = 1 << 27
COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")
SCHEMA = pa.schema(
    [
        ("id", LONG),
        ("tube", STRING),
        ("priority", LONG),
        ("delay", LONG),
        ("ttr", LONG),
        ("age_s", pa.float64()),
        *((name, LONG) for name in COUNTERS),
        ("body", BINARY),
    ]
)
"""`delay` and `ttr` are seconds; `age_s` is since the put; counters include this reserve."""
_NUMBERS = {"priority": "pri", "delay": "delay", "ttr": "ttr"}
_LOG = logging.getLogger(__name__)


@dataclass
class Taken:
    """Held jobs. `frame` has the columns of SCHEMA; `size` is bytes of bodies."""

    frame: DataFrame
    jobs: int
    size: int
    _held: HeldJobs = field(repr=False)
    _committed: Committed | None = None

    @property
    def lost(self) -> int:
        """The number of jobs whose TTR is known to have run out: others may have them."""
        return len(self._held.lost)

    def commit(self) -> Committed:
        """Delete the jobs after the result is written, and return the numbers of jobs.

        Jobs whose TTR ran out are `gone`. Raises IncompleteError if the connection is lost, and
        PipelineUsageError for a second call or one after the block.
        """
        if self._committed is not None:
            raise PipelineUsageError("these jobs are committed already; take new ones")
        if self._held.is_closed:
            raise PipelineUsageError("these jobs are given back; commit inside the with block")
        self._committed = self._held.delete()
        if self._committed.gone:
            _LOG.warning(
                "%d of %s were gone at the commit", self._committed.gone, counted(self.jobs)
            )
        return self._committed


@contextlib.contextmanager
def take_jobs(
    spark: SparkSession,
    addr: str = DEFAULT_ADDRESS,
    *,
    tubes: str | Sequence[str] = "default",
    limit: int = DEFAULT_LIMIT,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    wait_s: int = 0,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    trust: TlsOptions | None = None,
) -> Iterator[Taken]:
    """Reserve up to `limit` ready jobs of some tubes and hold them inside the block.

    Bodies go through the driver, up to `limit_bytes` before the last one. Waits `wait_s` for the
    first job; without one the frame is empty. `trust` is for `tls://`. The driver touches jobs
    three times in each TTR. Leaving the block releases jobs that are not committed.

    Limits and `wait_s` are whole numbers; `wait_s` and `timeout_s` are LONGEST_S at most.

    Raises PipelineUsageError, NoConnectionError, RefusedError.
    """
    names = _names(tubes)
    limit = _whole("limit", limit, 1)
    limit_bytes = _whole("limit_bytes", limit_bytes, 1)
    wait_s = _whole("wait_s", wait_s, 0, LONGEST_S)
    if not isinstance(addr, str):
        raise PipelineUsageError(f"addr {addr!r} is not a str; give HOST:PORT")
    address = address_of(addr)
    if trust is not None and trust != TlsOptions():
        check_tls(address, "trust")
    server = TubeServer(address, _seconds("timeout_s", timeout_s), trust or TlsOptions())
    with contextlib.closing(HeldJobs(server)) as holder:
        holder.take(names, limit, limit_bytes, wait_s)
        jobs = list(holder.jobs.values())
        yield Taken(_frame(spark, jobs), len(jobs), holder.size, holder)


def _names(tubes: object) -> list[str]:
    is_many = isinstance(tubes, Iterable) and not isinstance(tubes, str | bytes)
    candidates: Iterable[object] = cast("Iterable[object]", tubes) if is_many else [tubes]
    names = []
    for name in candidates:
        if not isinstance(name, str):
            raise PipelineUsageError(f"tubes: {name!r} is not a str; give the name of a tube")
        names.append(check_tube(name, "tubes"))
    if not names:
        raise PipelineUsageError("tubes is empty; name at least one tube")
    return names


def _whole(what: str, value: object, least: int, most: int | None = None) -> int:
    # A bool is an int, but always a mistake here.
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = operator.index(value)
        if number >= least and (most is None or number <= most):
            return number
    allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise PipelineUsageError(f"{what} {value!r} is not a whole number {allowed}")


def _seconds(what: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LONGEST_S:
        return float(value)
    raise PipelineUsageError(
        f"{what} {value!r} is not a number of seconds above 0, at most {LONGEST_S}"
    )


def _frame(spark: SparkSession, jobs: Sequence[HeldJob]) -> DataFrame:
    columns = {
        "id": [job.id for job in jobs],
        "tube": [job.stats["tube"] for job in jobs],
        **{name: [int(job.stats[key]) for job in jobs] for name, key in _NUMBERS.items()},
        "age_s": [float(job.stats["age"]) for job in jobs],
        **{name: [int(job.stats[name]) for job in jobs] for name in COUNTERS},
        "body": [job.body for job in jobs],
    }
    return spark.createDataFrame(pa.table(columns, schema=SCHEMA))
