"""Throughput of reading binlogs with Spark, compared with a pure-Python source and with Parquet.

The binlogs are written by the C core. Times are medians of rounds, ratios are medians of the ratios
of each round, because a busy machine slows down a whole round.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from beanstalkd_py import pipeline
from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan

from . import interactive, timelines
from .spark import seconds_of, session, write_binlog

FEW = ["id", "tube", "state", "created_at"]
AT_ONCE = 1000
HEAD = 84
RECORD = "<QIIqqiiqqIIIIIB3s"
STATES = ("deleted", "ready", "reserved", "buried", "delayed")
SCHEMA = (
    "host string, shard string, file string, file_number long, offset long, kind string, id long,"
    " tube string, priority long, delay long, ttr long, body_size int, created_at_ns long,"
    " event_time_ns long, event_time_kind string, deadline_at_ns long, state string, reserves long,"
    " timeouts long, releases long, buries long, kicks long, checksum string, is_copy boolean,"
    " _corrupt_record string, body binary"
)


def batches(entries: int, size: int) -> Iterator[list[bytes]]:
    """Yield puts of entries of this size into eight tubes."""
    for first in range(0, entries, AT_ONCE):
        tube = b"tube-%d" % (first // AT_ONCE % 8)
        length = size - HEAD - len(tube) - 2
        jobs = range(first, min(first + AT_ONCE, entries))
        bodies = ((b"%d " % job).ljust(length, b"x") for job in jobs)
        puts = (b"put 1024 0 60 %d\r\n%b\r\n" % (length, body) for body in bodies)
        yield [b"use %b\r\n" % tube, *puts]


class Tuples(DataSource):
    """A data source that yields Python tuples, as the baseline."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: object) -> DataSourceReader:
        return TupleReader(self.options["path"])


class TupleReader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self.path = path

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(Path(self.path).glob("binlog.*"))]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        path = Path(partition.value)
        data = path.read_bytes()
        record = struct.Struct(RECORD)
        name, number, at, end = path.name, int(path.suffix[1:]), 4, len(data)
        while at + HEAD <= end:
            length = int.from_bytes(data[at : at + 4], "little")
            where = at + 4 + length
            (job, pri, _, delay, ttr, size, _, made, due, a, b, c, d, e, state, _) = (
                record.unpack_from(data, where)
            )
            if job == 0:
                return
            body = where + record.size
            tube = data[at + 4 : where].decode() if length else None
            yield (
                *("host", "", name, number, at, "full" if length else "short", job, tube, pri),
                *(delay // 10**9, ttr // 10**9, size - 2, made, due, "exact", None),
                *(STATES[state], a, b, c, d, e, "right", False, None),
                data[body : body + size - 2] if length else None,
            )
            at = body + (size if length else 0)


def decode(folder: Path, columns: list[str] | None, body: bool) -> float:
    """Return GB/s of one core from memory to Arrow."""
    plan = BinlogPlan.of({"path": str(folder), "includeBody": str(body).lower()}, columns)
    files = [file for task in plan.tasks(1) for file in task]
    start = time.process_time()
    for batch in plan.read(files):
        assert batch.num_rows
    return sum(file.size for file in files) / (time.process_time() - start) / 1e9


def measure(folder: Path, rounds: int, entries: int) -> None:
    binlog, parquet = folder / "binlog", str(folder / "parquet")
    path = str(binlog)
    gigabytes = {
        "to Arrow in C, all columns and bodies": (None, True),
        "to Arrow in C, four columns": (FEW, False),
    }
    for what, (columns, body) in gigabytes.items():
        best = max(decode(binlog, columns, body) for _ in range(rounds))
        print(f"{what:48} {best:6.2f} GB/s of one core, the file's reading included", flush=True)
    spark = session({})
    pipeline.register(spark)
    spark.dataSource.register(Tuples)
    pipeline.read_binlog(spark, path).write.parquet(parquet)
    source = spark.read.format("beanstalkd_binlog")
    ways = {
        "tuples": spark.read.format("tuples").load(path),
        "beanstalkd_binlog with bodies": source.option("includeBody", "true").load(path),
        "read_binlog with bodies": pipeline.read_binlog(spark, path, includeBody=True),
        "read_binlog, four columns": pipeline.read_binlog(spark, path, FEW),
        "Parquet, the same four": spark.read.parquet(parquet).select(FEW),
    }
    for frame in ways.values():
        seconds_of(frame)
    times = [{what: seconds_of(frame) for what, frame in ways.items()} for _ in range(rounds)]
    for what in ways:
        median = statistics.median(each[what] for each in times)
        ratio = statistics.median(each["tuples"] / each[what] for each in times)
        print(f"{what:48} {entries / median / 1e6:6.2f} M rows/s  {ratio:6.2f} x tuples")
    ratio = statistics.median(
        each["Parquet, the same four"] / each["read_binlog, four columns"] for each in times
    )
    print(f"{'four columns against Parquet':48} {ratio:6.2f}")
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools/bench_pipeline", description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000, help="entries to read")
    parser.add_argument("--size", type=int, default=200, help="bytes of an entry")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each kind")
    parser.add_argument(
        "--timelines",
        nargs="*",
        type=int,
        metavar="N",
        help="measure `timelines` over about N entries each (1, 2, 4 and 10 million)",
    )
    parser.add_argument(
        "--interactive",
        action="store_true",
        help="measure `tube-metrics` and `report` over 20,000 jobs, with the start of Spark",
    )
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-pipeline-"))
    try:
        if options.interactive:
            interactive.measure(folder, options.rounds)
            return
        if options.timelines is not None:
            sizes = sorted(options.timelines) or timelines.SIZES
            timelines.measure(folder, min(*sizes, options.entries), sizes)
            return
        (folder / "binlog").mkdir()
        write_binlog(folder / "binlog", batches(options.entries, options.size))
        measure(folder, options.rounds, options.entries)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
