"""Unpacks the package of spark-submit when its zip file is imported.

package.py appends this source to the package's `__init__` in the zip, so it imports nothing of the
package and nothing at the top level. The unpacked files stay for the next process, in a private
folder below that of temporary files, named by a hash of their content.
"""

from __future__ import annotations

from typing import Any

RUNTIME = "_runtime"
"""Folder in the zip with the runtime of cffi, for a Python without it."""


def unpacked_path(path: list[str], loader: Any, build: str) -> list[str]:
    """Unpack the zip and return the new `__path__` of the package."""
    import importlib.util
    import pathlib
    import sys

    archive = getattr(loader, "archive", None)
    if archive is None:
        return path
    folder = _unpacked(pathlib.Path(archive), build)
    if importlib.util.find_spec("_cffi_backend") is None:
        sys.path.append(str(folder / RUNTIME))
        importlib.invalidate_caches()
    return [str(folder / pathlib.PurePath(path[0]).name)]


def _unpacked(archive: Any, build: str) -> Any:
    """Return the folder of a build, which several processes may make at once."""
    import os
    import shutil
    import tempfile
    import zipfile

    parent = _own_folder()
    folder = parent / build
    if folder.is_dir():
        return folder
    unfinished = tempfile.mkdtemp(dir=parent, prefix=f".{build}.")
    try:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(unfinished)
        try:
            os.rename(unfinished, folder)  # noqa: PTH104 - fails if another process made it
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _own_folder() -> Any:
    """Return a folder that no other user can write to."""
    import os
    import pathlib
    import stat
    import tempfile

    folder = pathlib.Path(tempfile.gettempdir()) / f"beanstalkd_py-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        if is_own and not status.st_mode & 0o022:
            return folder
    except OSError:
        pass
    return pathlib.Path(tempfile.mkdtemp(prefix="beanstalkd_py-"))
