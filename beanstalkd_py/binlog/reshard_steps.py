"""Every change that resharding makes to a disk, one method each.

`before` hears of each change before it is made, so that a test can end the process at any of them.
It must not know what the changes are for. No change leaves the folder by a symbolic link of its
owner (symlinks.py).
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from beanstalkd_py import symlinks

NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})
"""What file systems without hard links answer."""
FILE_MODE = 0o600


def _nothing(step: str) -> None:
    """Nobody listens."""


class Steps:
    """The changes. All raise OSError."""

    def __init__(self, before: Callable[[str], None] = _nothing) -> None:
        self.before = before

    def make_folder(self, path: Path, like: Path) -> None:
        """A new folder with the mode of the folder `like`."""
        self.before(f"mkdir {path}")
        symlinks.make_folder(path, 0o700)
        with symlinks.opened(path) as fd:
            os.fchmod(fd, stat.S_IMODE(like.stat().st_mode))

    def remove_folder(self, path: Path) -> None:
        """It must be empty."""
        self.before(f"rmdir {path}")
        symlinks.remove_folder(path)

    def rename(self, path: Path, target: Path) -> None:
        """Takes the place of a target that is there."""
        self.before(f"rename {path} {target}")
        symlinks.rename(path, target)

    def remove(self, path: Path) -> None:
        """One that has gone already is as good as removed."""
        self.before(f"unlink {path}")
        symlinks.remove(path, missing_ok=True)

    def link(self, path: Path, target: Path) -> None:
        """A symbolic link at `path`, wherever it leads."""
        self.before(f"symlink {path}")
        with symlinks.parent_of(path) as at:
            os.symlink(target, path.name, dir_fd=at)

    def duplicate(self, path: Path, target: Path) -> None:
        """A second name for a file; where that cannot be, a copy, which appears all at once."""
        self.before(f"link {path} {target}")
        try:
            with symlinks.parent_of(path) as at, symlinks.parent_of(target) as to:
                os.link(path.name, target.name, src_dir_fd=at, dst_dir_fd=to)
            return
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
        unfinished = target.with_name(f"{target.name}.copying")
        self.before(f"copy {path} {unfinished}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with (
            path.open("rb") as source,
            os.fdopen(symlinks.open_file(unfinished, flags, FILE_MODE), "wb") as copy,
        ):
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())
        self.rename(unfinished, target)

    def write(self, path: Path, data: bytes) -> None:
        """A file with these contents, on disk; not yet its name."""
        self.before(f"write {path}")
        fd = symlinks.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def sync_folder(self, path: Path) -> None:
        """The names in it are on disk after this."""
        self.before(f"sync {path}")
        symlinks.sync_folder(path)
