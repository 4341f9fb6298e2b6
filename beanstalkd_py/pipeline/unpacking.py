"""Unpacks the package of spark-submit where a zip of it is imported.

This text is behind that of the package's `__init__` in the zip (package.py), so it stands alone and
imports late. What is unpacked stays for the next process: in a folder of the user alone below that
for temporary files, with a name for each content.
"""

from __future__ import annotations

from typing import Any

RUNTIME = "_runtime"
"""Folder of the zip with the runtime of cffi, for a Python that has none."""


def unpacked_path(path: list[str], loader: Any, build: str) -> list[str]:
    """Where modules of the package are found from now on."""
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
    """The folder of a build; many processes may want it at once."""
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
            os.rename(unfinished, folder)  # noqa: PTH104 - fails if another process was faster
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _own_folder() -> Any:
    """One that nobody else can have put anything into."""
    import os
    import pathlib
    import stat
    import tempfile

    folder = pathlib.Path(tempfile.gettempdir()) / f"beanstalkd_py-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if is_own and not found.st_mode & 0o022:
            return folder
    except OSError:
        pass
    return pathlib.Path(tempfile.mkdtemp(prefix="beanstalkd_py-"))
