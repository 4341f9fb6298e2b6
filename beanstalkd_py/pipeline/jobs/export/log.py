"""The log of an export: atomic changes of a data set.

A change adds files, complete in a staging folder before, and may remove others. It is committed
when its record is renamed to its name in the log. If the run is killed, the next run applies the
change first. Files of a killed run without a record are deleted.

A record also has the state of the data set after the change: the position in the inputs, the open
jobs, the schema. Files are removed before others are added, so that a reader never sees a row
twice.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql.types import StructType

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs.export.files import File, Files
from beanstalkd_py.pipeline.sources.follower import Position

PENDING, DONE = ".pending", ".done"


@dataclass(frozen=True, slots=True)
class Run:
    """A sorted run of open jobs, in a folder below `open_jobs`."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Record:
    """A change and the state after it."""

    number: int = 0
    position: Position = field(default_factory=dict)
    schema: dict[str, Any] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    rows: int = 0
    size: int = 0
    adds: tuple[tuple[str, str], ...] = ()
    removes: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Record:
        values = json.loads(text)
        values["runs"] = tuple(Run(**run) for run in values["runs"])
        values["adds"] = tuple((old, new) for old, new in values["adds"])
        values["removes"] = tuple(values["removes"])
        return cls(**values)

    def text(self) -> str:
        return json.dumps(asdict(self))

    @property
    def struct(self) -> StructType:
        return StructType.fromJson(self.schema)


class ExportLog:
    """The changes of the data set in the folder `data`; the log is in the folder `own`."""

    def __init__(self, files: Files, data: str, own: str) -> None:
        self._files = files
        self.data = data
        self.own = own
        self.last = Record()

    def recover(self) -> Record | None:
        """Apply and return the change of a killed run, and delete files without a record."""
        log = self._folder("log")
        names = self._files.names(log)
        self.last = self.look() or Record()
        begun = self._name(self.last.number + 1, PENDING)
        ended = None
        if begun.rpartition("/")[2] in names:
            ended = Record.of(self._files.read(begun))
            self._apply(ended)
        for name in names:
            if f"{log}/{name}" not in (begun, self._name(self.last.number, DONE)):
                self._files.delete(f"{log}/{name}")
        self._files.delete(self._folder("staging"))
        kept = {run.name for run in self.last.runs}
        for name in self._files.names(self._folder("open_jobs")):
            if name not in kept:
                self._files.delete(self._folder(f"open_jobs/{name}"))
        return ended

    def look(self) -> Record | None:
        """Return the last applied change, or None."""
        log = self._folder("log")
        done = [name for name in self._files.names(log) if name.endswith(DONE)]
        return Record.of(self._files.read(f"{log}/{done[-1]}")) if done else None

    def _folder(self, name: str) -> str:
        return f"{self.own}/{name}"

    def _name(self, number: int, ending: str) -> str:
        return self._folder(f"log/{number:012}{ending}")

    def staging(self) -> str:
        """Return a new folder, which even a run that is being killed does not write to."""
        return self._folder(f"staging/{uuid.uuid4().hex}")

    def new_run(self) -> str:
        return uuid.uuid4().hex

    def folder_of(self, run: str) -> str:
        return self._folder(f"open_jobs/{run}")

    def change(self, after: Record, staged: str, removes: Sequence[File] = ()) -> Record:
        """Add the files of a staging folder; `after` is the state then."""
        number = self.last.number + 1
        found = self._files.below(staged)
        adds = []
        for place, file in enumerate(found):
            partition = file.name[len(staged) + 1 :].rpartition("/")[0]
            adds.append((file.name, f"{self.data}/{partition}/{number:012}-{place:05}.parquet"))
        record = replace(
            after,
            number=number,
            size=sum(file.size for file in found),
            adds=tuple(adds),
            removes=tuple(file.name for file in removes),
        )
        if removes:
            # After a power cut the removed files exist only in their successors.
            self._files.sync(file.name for file in found)
        self._begin(record)
        self._apply(record)
        self._files.delete(staged)
        return record

    def _begin(self, record: Record) -> None:
        draft = self._folder(f"log/{uuid.uuid4().hex}.draft")
        self._files.write(draft, record.text())
        self._files.rename(draft, self._name(record.number, PENDING))

    def _apply(self, record: Record) -> None:
        for name in record.removes:
            self._files.delete(name)
        self._files.make_folders(new.rpartition("/")[0] for _, new in record.adds)
        for old, new in record.adds:
            self._move(old, new)
        self._files.rename(self._name(record.number, PENDING), self._name(record.number, DONE))
        # The previous record stays for concurrent readers.
        self._files.delete(self._name(record.number - 2, DONE))
        self.last = record

    def _move(self, old: str, new: str) -> None:
        if not self._files.exists(old):
            if self._files.exists(new):
                return  # moved before the run was killed
            raise PipelineUsageError(
                f"{self._files.path(old)} is gone, and an interrupted export has not moved it yet;"
                " export to a new folder"
            )
        # If a rename copies and deletes, a killed run may have left both files.
        self._files.delete(new)
        self._files.rename(old, new)
