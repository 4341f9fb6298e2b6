"""The counter of a sink: a file of JSON that says how many rows were put, and how often again.

    rows, bytes    of finished batches, each counted once, though a batch may be done again
    rows_again     jobs put besides: by tasks and batches that failed or were killed, or done again
    rows_unknown   sent besides, and not answered: each may be a job or not
    batches        finished
    queries        the last finished batch of each stream, by the stream's id
    recent         the last hundred batches, with the same numbers of each

So the server got at least `rows` + `rows_again` jobs, and at most `rows_unknown` more. Must not
know how jobs are put, nor Spark.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.pipeline.sink.attempt_files import read_notes

FORMAT = 1
RECENT = 100


@dataclass(frozen=True, slots=True)
class TaskPut:
    """What a finished task says. `note` is the name of its note, if it had one."""

    rows: int
    size: int
    unknown: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """A batch of a stream, or a batch of its own, which has no number and a `query` for itself."""

    query: str
    batch: int | None = None

    @property
    def name(self) -> str:
        """Of its notes."""
        return self.query if self.batch is None else f"{self.query}.{self.batch}"


@dataclass(slots=True)
class PutCounts:
    """The file, as above."""

    rows: int = 0
    bytes: int = 0
    rows_again: int = 0
    rows_unknown: int = 0
    batches: int = 0
    queries: dict[str, int] = field(default_factory=dict)
    recent: list[dict[str, Any]] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)
    """Notes that are counted already, and may be there still."""


def put_counts(path: str | Path) -> PutCounts:
    """What a counter says, and what attempts that are under way or were killed have put.

    Raises PipelineUsageError if the file is none of a sink; one that is not there counts nothing.
    """
    counter = Counter(Path(path))
    counts = counter.read()
    for tally in read_notes(counter.folder, counts.folded).values():
        counts.rows_again += tally.put
        counts.rows_unknown += tally.unknown
    return counts


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter file, on the machine of the driver."""

    path: Path

    @property
    def folder(self) -> Path:
        """Of notes."""
        return self.path.with_name(self.path.name + ".tasks")

    def begin(self) -> None:
        """Makes the folder of notes. Raises PipelineUsageError if that cannot be."""
        if not self.path.is_absolute():
            raise errors.PipelineUsageError(
                f"counter {str(self.path)!r} is no absolute path; tasks have other folders"
            )
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise errors.PipelineUsageError(
                f"counter {self.path}: {error.strerror or error}"
            ) from error
        self.read()

    def read(self) -> PutCounts:
        """What the file says. Raises PipelineUsageError."""
        try:
            known = json.loads(self.path.read_text())
            if known.pop("format") != FORMAT:
                raise ValueError("it is of another version")
            return PutCounts(**known)
        except FileNotFoundError:
            return PutCounts()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise errors.PipelineUsageError(
                f"counter {self.path} is none of this sink: {error}; give another path"
            ) from error

    def commit(self, work: Work, tasks: Sequence[TaskPut]) -> dict[str, Any]:
        """Counts a finished batch, and returns its numbers. Done twice, its rows count once.

        Raises OutputError.
        """
        with self._lock():
            counts = self.read()
            # Whoever was killed before it removed them left them behind.
            self._remove(counts.folded)
            own = {task.note for task in tasks if task.note is not None}
            others = read_notes(self.folder, own, work.query)
            batch = _numbers(work, tasks)
            again = work.batch is not None and counts.queries.get(work.query, -1) >= work.batch
            if again:
                batch["rows_again"], batch["rows"], batch["bytes"] = batch["rows"], 0, 0
            batch["rows_again"] += sum(tally.put for tally in others.values())
            batch["rows_unknown"] += sum(tally.unknown for tally in others.values())
            counts.rows += batch["rows"]
            counts.bytes += batch["bytes"]
            counts.rows_again += batch["rows_again"]
            counts.rows_unknown += batch["rows_unknown"]
            counts.batches += not again
            if work.batch is not None:
                counts.queries[work.query] = max(counts.queries.get(work.query, -1), work.batch)
            counts.recent = [*counts.recent, batch][-RECENT:]
            counts.folded = sorted({*own, *others})
            self._write(counts)
            self._remove(counts.folded)
        return batch

    def _remove(self, notes: Sequence[str]) -> None:
        for name in notes:
            (self.folder / name).unlink(missing_ok=True)

    def _write(self, counts: PutCounts) -> None:
        staged = self.path.with_name(self.path.name + ".new")
        try:
            with staged.open("w") as file:
                json.dump({"format": FORMAT, **asdict(counts)}, file, indent=1)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            staged.replace(self.path)
        except OSError as error:
            raise errors.OutputError(f"counter {self.path}: {error.strerror or error}") from error

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Two sinks with one counter wait for each other."""
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def _numbers(work: Work, tasks: Sequence[TaskPut]) -> dict[str, Any]:
    return {
        "query": work.query,
        "batch": work.batch,
        "rows": sum(task.rows for task in tasks),
        "bytes": sum(task.size for task in tasks),
        "rows_again": 0,
        "rows_unknown": sum(task.unknown for task in tasks),
    }
