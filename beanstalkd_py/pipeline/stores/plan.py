"""The plan of a read of history stores."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.columns import Table
from beanstalkd_py.pipeline.sources.options import Options
from beanstalkd_py.pipeline.sources.plan import COMMON_OPTIONS, Plan, choose_columns
from beanstalkd_py.pipeline.stores import files as store_files
from beanstalkd_py.pipeline.stores.files import StoreFile
from beanstalkd_py.pipeline.stores.messages import Messages
from beanstalkd_py.pipeline.stores.tables import VIEWS


@dataclass(frozen=True, slots=True)
class StorePlan(Plan[StoreFile]):
    OPTIONS: ClassVar = (*COMMON_OPTIONS, "includeHeaders", "verifyChecksum", "view")
    TIME_COLUMN: ClassVar = "storeTimestamp"

    view: str
    checksums: bool

    @classmethod
    def _of_format(
        cls, options: Options, named: Sequence[str] | None
    ) -> tuple[Table, dict[str, Any]]:
        view = options.text("view") or "messages"
        if view not in VIEWS:
            raise PipelineUsageError(f"no view {view!r}; there are {', '.join(VIEWS)}")
        added = []
        if view == "messages":
            added = ["body"] if options.flag("includeBody", False) else []
            added += ["properties"] if options.flag("includeHeaders", False) else []
        checksums = options.flag("verifyChecksum", True)
        return choose_columns(VIEWS[view], options, named, added), {
            "view": view,
            "checksums": checksums,
        }

    def decoder(self, table: Table) -> Messages:
        return Messages(table, self.view, self.mode, self.checksums)

    def opener(self) -> Callable[[StoreFile], Any]:
        return mapped

    def file_of(self, path: str) -> StoreFile | None:
        return store_files.of_path(self.view, path, self.hosts)

    def content_globs(self) -> tuple[list[str], str | None]:
        return [f"{path.rstrip('/')}/{store_files.GLOBS[self.view]}" for path in self.paths], None

    def find(self) -> list[StoreFile]:
        return store_files.find(self.view, self.paths, self.hosts)

    def divide(self, files: list[StoreFile], least: int) -> list[list[StoreFile]]:
        return list(store_files.divide(files, self.view, least, self.target_bytes))


def mapped(file: StoreFile) -> Any:
    """Map a file. This is safe because a store never truncates a file. Raises OSError."""
    fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size == 0:
            return b""
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(fd)
