"""The disk operations and the progress of reshard, compact and repair.

`before` is called before each one, so that a test can kill the process there. No operation follows
a symbolic link of the folder's owner (symlinks.py).
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from beanstalkd_py import symlinks
from beanstalkd_py.binlog.progress import Progress, no_progress

NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})
"""Errors of file systems without hard links."""
FILE_MODE = 0o600


class Steps:
    """The operations. All raise OSError."""

    def __init__(
        self, before: Callable[[str], None] = lambda _step: None, progress: Progress = no_progress
    ) -> None:
        self.before = before
        self.progress = progress

    def make_folder(self, path: Path, like: Path) -> None:
        """Create a folder with the mode of `like`."""
        self.before(f"mkdir {path}")
        symlinks.make_folder(path, 0o700)
        with symlinks.opened(path) as fd:
            os.fchmod(fd, stat.S_IMODE(like.stat().st_mode))

    def remove_folder(self, path: Path) -> None:
        self.before(f"rmdir {path}")
        symlinks.remove_folder(path)

    def rename(self, path: Path, target: Path) -> None:
        """Rename, replacing an existing target."""
        self.before(f"rename {path} {target}")
        symlinks.rename(path, target)

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        self.before(f"unlink {path}")
        symlinks.remove(path, missing_ok=True)

    def link(self, path: Path, target: Path) -> None:
        self.before(f"symlink {path}")
        with symlinks.parent_of(path) as at:
            os.symlink(target, path.name, dir_fd=at)

    def duplicate(self, path: Path, target: Path) -> None:
        """Create a hard link, or a copy that appears atomically where links are not supported.

        The duplicate of a symbolic link is a link, too.
        """
        self.before(f"link {path} {target}")
        try:
            with symlinks.parent_of(path) as at, symlinks.parent_of(target) as to:
                os.link(
                    *(path.name, target.name), src_dir_fd=at, dst_dir_fd=to, follow_symlinks=False
                )
            return
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
        if path.is_symlink():
            self.link(target, path.readlink())
            return
        unfinished = target.with_name(f"{target.name}.copying")
        self.before(f"copy {path} {unfinished}")
        flags = os.O_RDONLY | os.O_NONBLOCK
        with (
            os.fdopen(symlinks.open_file(path, flags), "rb") as source,
            os.fdopen(symlinks.create_file(unfinished, FILE_MODE), "wb") as copy,
        ):
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())
        self.rename(unfinished, target)

    def write(self, path: Path, data: bytes) -> None:
        """Write and sync a file, but not its folder."""
        self.before(f"write {path}")
        with os.fdopen(symlinks.create_file(path, FILE_MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def sync_folder(self, path: Path) -> None:
        self.before(f"sync {path}")
        symlinks.sync_folder(path)
