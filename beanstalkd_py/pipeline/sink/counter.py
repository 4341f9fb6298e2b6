"""The counter of a sink: a JSON file with the number of rows that were put, once or repeatedly.

    rows, bytes    of finished batches; a batch counts once, even if it is repeated
    rows_again     jobs put by failed and killed attempts and by repeated batches
    rows_unknown   rows sent without a reply: each may be a job or not
    batches        finished batches
    queries        the last finished batch of each stream, by the stream's id
    recent         the last hundred batches, with these numbers of each

The server got at least `rows` + `rows_again` jobs, and at most `rows_unknown` more.
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
from beanstalkd_py.pipeline.sink.attempt_tallies import read_tallies

FORMAT = 1
RECENT = 100


@dataclass(frozen=True, slots=True)
class TaskPut:
    """What a finished task has put; `attempt` is the name of its tally file, if any."""

    rows: int
    size: int
    unknown: int
    attempt: str | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """A batch of a stream, or a batch query, which has no number and a unique `query`."""

    query: str
    batch: int | None = None

    @property
    def name(self) -> str:
        return self.query if self.batch is None else f"{self.query}.{self.batch}"


@dataclass(slots=True)
class PutCounts:
    rows: int = 0
    bytes: int = 0
    rows_again: int = 0
    rows_unknown: int = 0
    batches: int = 0
    queries: dict[str, int] = field(default_factory=dict)
    recent: list[dict[str, Any]] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)
    """Tally files that are counted already and may not be removed yet."""


def put_counts(path: str | Path) -> PutCounts:
    """Read a counter and add the attempts that are running or were killed.

    A missing file counts nothing. Raises PipelineUsageError for a file of something else.
    """
    counter = Counter(Path(path))
    counts = counter.read()
    for tally in read_tallies(counter.folder, counts.folded).values():
        counts.rows_again += tally.put
        counts.rows_unknown += tally.unknown
    return counts


@dataclass(frozen=True, slots=True)
class Counter:
    path: Path

    @property
    def folder(self) -> Path:
        return self.path.with_name(self.path.name + ".tasks")

    def begin(self) -> None:
        """Make the folder of tally files. Raises PipelineUsageError."""
        if not self.path.is_absolute():
            raise errors.PipelineUsageError(
                f"counter {str(self.path)!r} is not an absolute path, as tasks need it"
            )
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise errors.PipelineUsageError(
                f"counter {self.path}: {error.strerror or error}"
            ) from error
        self.read()

    def read(self) -> PutCounts:
        try:
            known = json.loads(self.path.read_text())
            if known.pop("format") != FORMAT:
                raise ValueError("it has another version")
            return PutCounts(**known)
        except FileNotFoundError:
            return PutCounts()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise errors.PipelineUsageError(
                f"counter {self.path} is not a counter of this sink: {error}; give another path"
            ) from error

    def commit(self, work: Work, tasks: Sequence[TaskPut]) -> dict[str, Any]:
        """Count a finished batch and return its numbers; a repeated batch counts once.

        Raises OutputError.
        """
        with self._lock():
            counts = self.read()
            # A commit that was killed may have left them.
            self._remove(counts.folded)
            own = {task.attempt for task in tasks if task.attempt is not None}
            others = read_tallies(self.folder, own, work.query)
            batch: dict[str, Any] = {
                "query": work.query,
                "batch": work.batch,
                "rows": sum(task.rows for task in tasks),
                "bytes": sum(task.size for task in tasks),
                "rows_again": sum(tally.put for tally in others.values()),
                "rows_unknown": sum(task.unknown for task in tasks)
                + sum(tally.unknown for tally in others.values()),
            }
            again = work.batch is not None and counts.queries.get(work.query, -1) >= work.batch
            if again:
                batch["rows_again"] += batch["rows"]
                batch["rows"] = batch["bytes"] = 0
            for name in ("rows", "bytes", "rows_again", "rows_unknown"):
                setattr(counts, name, getattr(counts, name) + batch[name])
            counts.batches += not again
            if work.batch is not None:
                counts.queries[work.query] = max(counts.queries.get(work.query, -1), work.batch)
            counts.recent = [*counts.recent, batch][-RECENT:]
            counts.folded = sorted({*own, *others})
            self._write(counts)
            self._remove(counts.folded)
        return batch

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def _write(self, counts: PutCounts) -> None:
        staged = self.path.with_name(self.path.name + ".new")
        try:
            staged.unlink(missing_ok=True)  # never write to a link that another user has put there
            with staged.open("x") as file:
                json.dump({"format": FORMAT, **asdict(counts)}, file, indent=1)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            staged.replace(self.path)
        except OSError as error:
            raise errors.OutputError(f"counter {self.path}: {error.strerror or error}") from error

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Serialize sinks with the same counter."""
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)
