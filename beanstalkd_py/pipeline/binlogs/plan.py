"""The plan of a read of binlog folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from beanstalkd_py.pipeline.binlogs import files as binlog_files
from beanstalkd_py.pipeline.binlogs.entries import BinlogFile, Entries
from beanstalkd_py.pipeline.binlogs.table import COLUMNS
from beanstalkd_py.pipeline.sources.columns import Table
from beanstalkd_py.pipeline.sources.file_buffer import FileBuffer
from beanstalkd_py.pipeline.sources.options import Options
from beanstalkd_py.pipeline.sources.plan import COMMON_OPTIONS, Plan, choose_columns
from beanstalkd_py.pipeline.sources.remote import is_direct


@dataclass(frozen=True, slots=True)
class BinlogPlan(Plan[BinlogFile]):
    OPTIONS: ClassVar = (*COMMON_OPTIONS, "pathGlobFilter", "recursiveFileLookup")
    TIME_COLUMN: ClassVar = "event_time"

    name_glob: str | None
    recursive: bool

    @classmethod
    def _of_format(
        cls, options: Options, named: Sequence[str] | None
    ) -> tuple[Table, dict[str, Any]]:
        added = ["body"] if options.flag("includeBody", False) else []
        return choose_columns(COLUMNS, options, named, added), {
            "name_glob": options.text("pathGlobFilter"),
            "recursive": options.flag("recursiveFileLookup", False),
        }

    @property
    def lookup(self) -> binlog_files.Lookup:
        return binlog_files.Lookup(self.paths, self.hosts, self.name_glob, self.recursive)

    def decoder(self, table: Table) -> Entries:
        return Entries(table, self.mode, binlog_files.is_followed)

    def opener(self) -> Callable[[BinlogFile], Any]:
        buffer = FileBuffer()
        return lambda file: read_file(buffer, file)

    def file_of(self, path: str) -> BinlogFile | None:
        is_in_place = binlog_files.is_in_place(path, self.lookup)
        return binlog_files.of_path(path, self.hosts) if is_in_place else None

    def is_opened_by_tasks(self) -> bool:
        return all(map(is_direct, self.paths)) or super(BinlogPlan, self).is_opened_by_tasks()

    def content_globs(self) -> tuple[list[str], str | None]:
        return list(self.paths), self.name_glob or "binlog.*"

    def find(self) -> list[BinlogFile]:
        return binlog_files.find(self.lookup)

    def divide(self, files: list[BinlogFile], least: int) -> list[list[BinlogFile]]:
        return binlog_files.pack(files, least, self.target_bytes)


def read_file(buffer: FileBuffer, file: BinlogFile) -> memoryview:
    """Read a file that may have been archived under its other name. Raises OSError."""
    try:
        return buffer.read(file.path)
    except FileNotFoundError:
        if file.path.endswith(".done"):
            raise
        return buffer.read(file.path + ".done")
