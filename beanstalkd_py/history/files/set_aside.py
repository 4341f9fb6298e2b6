"""What a recovery takes away from a log is kept: sound messages may lie behind a damaged one.

Must not know what is in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

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
    with _new_file(folder, offset) as out:
        while at is not None:
            piece = segments.read(at, PIECE).rstrip(b"\0")
            out.seek(at - offset)
            out.write(piece)
            at = segments.first_data(at + len(piece))
        out.flush()
        os.fsync(out.fileno())
    layout.sync_folder(folder)
    return Path(out.name)


def _new_file(folder: Path, offset: int) -> BinaryIO:
    layout.make_folder(folder)
    path, number = folder / layout.segment_name(offset), 0
    while path.exists():
        number += 1
        path = path.with_suffix(f".{number}")
    return path.open("xb")
