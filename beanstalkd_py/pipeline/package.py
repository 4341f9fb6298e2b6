"""The package for spark-submit: a zip file with the Python and C modules.

Python cannot import extension modules from a zip file, so the package's `__init__` in the zip
unpacks it on first import (unpacking.py). The zip includes the runtime of cffi and click, so a
cluster needs nothing besides PySpark's requirements.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import beanstalkd_py
from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline import unpacking

TOP_MODULES = ("pyspark_*.py",)
PURE = ("click",)
RUNTIME = "_cffi_backend"
_SKIPPED = ("__pycache__",)
_TIME = (1980, 1, 1, 0, 0, 0)
"""A constant, so that the same content gives the same file."""


def write_package(path: Path) -> int:
    """Write the file atomically and return its size. Raises PipelineUsageError, OSError."""
    if not path.absolute().parent.is_dir():
        raise PipelineUsageError(f"folder {path.absolute().parent} does not exist; make it first")
    contents = dict(_contents())
    build = hashlib.sha256()
    for name, data in contents.items():
        build.update(f"{name}\0{len(data)}\0".encode() + data)
    first = f"{beanstalkd_py.__name__}/__init__.py"
    contents[first] += _bootstrap(build.hexdigest()[:16])
    descriptor, unfinished = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed,
        ):
            for name, data in contents.items():
                packed.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED)
        Path(unfinished).chmod(0o644)
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
    return path.stat().st_size


def _contents() -> Iterator[tuple[str, bytes]]:
    package = Path(beanstalkd_py.__file__).parent
    yield from _of_folder(package)
    for pattern in TOP_MODULES:
        for module in sorted(package.parent.glob(pattern)):
            yield module.name, module.read_bytes()
    for name in PURE:
        yield from _of_folder(_origin(name).parent)
    runtime = _origin(RUNTIME)
    yield f"{unpacking.RUNTIME}/{runtime.name}", runtime.read_bytes()


def _of_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder.parent)
        if path.is_file() and not set(_SKIPPED) & set(name.parts):
            yield str(name), path.read_bytes()


def _origin(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin)


def _bootstrap(build: str) -> bytes:
    source = Path(unpacking.__file__).read_text(encoding="utf-8")
    body = source.partition("from __future__ import annotations\n")[2]
    call = f'__path__ = unpacked_path(__path__, __loader__, "{build}")\n'
    return f"\n\n{body}\n\n{call}".encode()
