"""What a recovery takes away from a log is kept: sound messages may lie behind a damaged one.

Must not know what is in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from beanstalkd_py import symlinks
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.files.segments import Segments

PIECE = 1 << 20


def set_aside(segments: Segments, offset: int, folder: Path) -> Path | None:
    """Copies what is in the files from this offset on to a new file of the folder, on disk then.

    The file is named after the offset, and has its byte first. None: there are zeros only. OSError.
    """
    at = segments.first_data(offset)
    if at is None:
        return None
    path, out = _new_file(folder, offset)
    with out:
        while at is not None:
            piece = segments.read(at, PIECE).rstrip(b"\0")
            out.seek(at - offset)
            out.write(piece)
            at = segments.first_data(at + len(piece))
        out.flush()
        os.fsync(out.fileno())
    layout.sync_folder(folder)
    return path


def _new_file(folder: Path, offset: int) -> tuple[Path, BinaryIO]:
    layout.make_folder(folder)
    path, number = folder / layout.segment_name(offset), 0
    while path.exists():
        number += 1
        path = path.with_suffix(f".{number}")
    fd = symlinks.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    return path, os.fdopen(fd, "wb")
