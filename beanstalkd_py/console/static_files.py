"""The files of the pages, in memory, compressed once."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

INDEX = "index.html"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}


@dataclass(frozen=True, slots=True)
class StaticFile:
    kind: str
    tag: str
    plain: bytes
    compressed: bytes


def load_static_files() -> dict[str, StaticFile]:
    """Return the files by their paths below static/."""
    found: dict[str, StaticFile] = {}
    _load(resources.files("beanstalkd_py.console") / "static", "", found)
    return found


def _load(folder: Traversable, prefix: str, found: dict[str, StaticFile]) -> None:
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            _load(entry, f"{name}/", found)
        elif not entry.name.endswith(".py"):
            data = entry.read_bytes()
            suffix = "." + entry.name.rpartition(".")[2]
            kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "text/plain"
            charset = "; charset=utf-8" if kind.startswith("text/") else ""
            tag = hashlib.sha256(data).hexdigest()[:16]
            found[name] = StaticFile(kind + charset, tag, data, gzip.compress(data, mtime=0))
