"""A folder that appears with all its files, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.binlog.steps import Steps

STAGING_SUFFIX = ".restoring"


class NewFolder:
    """Its files are written to `staging` beside it. `like` is the folder whose owner it gets."""

    def __init__(self, folder: Path, steps: Steps) -> None:
        self.path = Path(os.path.abspath(folder))  # noqa: PTH100 - links stay
        self.staging = self.path.with_name(self.path.name + STAGING_SUFFIX)
        self._steps = steps

    @property
    def like(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def check(self) -> None:
        """Raise ToolUsageError unless the folder is missing or empty."""
        if not self.path.parent.is_dir():
            raise errors.ToolUsageError(f"{self.path.parent} is no directory; create it first")
        if os.path.lexists(self.path) and (not self.path.is_dir() or any(self.path.iterdir())):
            text = (
                f"{self.path} is not empty; give a new folder, or move its files to another place"
            )
            raise errors.ToolUsageError(text)

    def begin(self, below: Sequence[str] = ()) -> None:
        """Create the staging folder, and these folders below it. Raises OSError."""
        self.discard()
        for name in ("", *below):
            self._steps.make_folder(self.staging / name, self.like)

    def discard(self) -> None:
        """Remove the staging folder, if it exists. Raises OSError."""
        if self.staging.is_dir() and not self.staging.is_symlink():
            self._steps.before(f"rmtree {self.staging}")
            shutil.rmtree(self.staging)

    def put_in_place(self, below: Sequence[str] = ()) -> None:
        """Sync the staging folder and those below it, and rename it. Raises OSError."""
        for name in (*below, ""):
            self._steps.sync_folder(self.staging / name)
        self._steps.rename(self.staging, self.path)
        self._steps.sync_folder(self.path.parent)
