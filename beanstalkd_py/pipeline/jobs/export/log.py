"""What an export has done to a data set: a change at a time, each wholly or not at all.

A change adds files, which lie complete in a hidden folder before, and may remove others. It begins
when its record gets its name in the log. From then on it is carried out, by the next run if this
one is killed, before anything else. What a killed run has left without a record is void.

A record also says what the data set is then: how far inputs have been taken, which jobs are open,
the schema. So all of that changes in one step: the renaming of a record.

Files are removed before others are added, so that no reader ever sees a row twice.
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

PENDING, DONE = ".pending", ".done"


@dataclass(frozen=True, slots=True)
class Run:
    """Some changes of the open jobs, in a folder below `open_jobs`; `rows` of them."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Record:
    """A change, and what there is after it."""

    number: int = 0
    position: dict[str, Any] = field(default_factory=dict)
    schema: dict[str, Any] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    rows: int = 0
    size: int = 0
    adds: tuple[tuple[str, str], ...] = ()
    removes: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Record:
        """One that was written down."""
        said = json.loads(text)
        said["runs"] = tuple(Run(**run) for run in said["runs"])
        said["adds"] = tuple((old, new) for old, new in said["adds"])
        said["removes"] = tuple(said["removes"])
        return cls(**said)

    def text(self) -> str:
        """As it is written down."""
        return json.dumps(asdict(self))

    @property
    def struct(self) -> StructType:
        """The columns of the data set, those of its folders last."""
        return StructType.fromJson(self.schema)


class ExportLog:
    """The changes of the data set `data`; all else is in the folder `own`."""

    def __init__(self, files: Files, data: str, own: str) -> None:
        self._files = files
        self.data = data
        self.own = own
        self.last = Record()

    def recover(self) -> Record | None:
        """Ends what a killed run has begun, and says what that was. Deletes what is void."""
        log = self._folder("log")
        names = self._files.names(log)
        self.last = self.look() or Record()
        begun = self._name(self.last.number + 1, PENDING)
        ended = None
        if begun.rpartition("/")[2] in names:
            ended = Record.of(self._files.read(begun))
            self._carry_out(ended)
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
        """The last change that is done; None: there was none yet. Changes nothing."""
        log = self._folder("log")
        done = [name for name in self._files.names(log) if name.endswith(DONE)]
        return Record.of(self._files.read(f"{log}/{done[-1]}")) if done else None

    def _folder(self, name: str) -> str:
        return f"{self.own}/{name}"

    def _name(self, number: int, ending: str) -> str:
        return self._folder(f"log/{number:012}{ending}")

    def staging(self) -> str:
        """A folder that nobody else writes to, not even a run that is just dying."""
        return self._folder(f"staging/{uuid.uuid4().hex}")

    def new_run(self) -> str:
        """A name for a run of open jobs, as new."""
        return uuid.uuid4().hex

    def folder_of(self, run: str) -> str:
        """Where a run is."""
        return self._folder(f"open_jobs/{run}")

    def change(self, after: Record, staged: str, removes: Sequence[File] = ()) -> Record:
        """Adds the files of a staging folder. `after` is what there is then."""
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
            # A machine that loses power keeps what was removed only if its successor is on disk.
            self._files.sync(file.name for file in found)
        self._begin(record)
        self._carry_out(record)
        self._files.delete(staged)
        return record

    def _begin(self, record: Record) -> None:
        draft = self._folder(f"log/{uuid.uuid4().hex}.draft")
        self._files.write(draft, record.text())
        self._files.rename(draft, self._name(record.number, PENDING))

    def _carry_out(self, record: Record) -> None:
        for name in record.removes:
            self._files.delete(name)
        self._files.make_folders(new.rpartition("/")[0] for _, new in record.adds)
        for old, new in record.adds:
            self._move(old, new)
        self._files.rename(self._name(record.number, PENDING), self._name(record.number, DONE))
        # The one before stays for those who are just reading it.
        self._files.delete(self._name(record.number - 2, DONE))
        self.last = record

    def _move(self, old: str, new: str) -> None:
        if not self._files.exists(old):
            if self._files.exists(new):
                return  # done before the run was killed
            raise PipelineUsageError(
                f"{self._files.path(old)} is gone, which a killed export had still to move; export"
                " to a new folder"
            )
        # Where renaming is copying and deleting, a killed run may have left both.
        self._files.delete(new)
        self._files.rename(old, new)
