"""A small file for each attempt at a task with its tally, correct after a kill at any moment.

The files are in a folder next to the counter. A task on a machine without the folder writes none.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.pipeline.sink.put import Tally

_LINE = "%020d %020d %020d\n"


@dataclass(slots=True)
class AttemptTally:
    """The open file of an attempt; `name` begins with the name of its batch."""

    name: str
    path: Path
    _file: int

    @classmethod
    def begin(cls, folder: Path, work: str, task: str) -> AttemptTally | None:
        """Make the file; return None without the folder. Raises OutputError."""
        if not folder.is_dir():
            return None
        path = folder / f"{work}.{task}.{uuid.uuid4().hex[:12]}"
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except OSError as error:
            raise _unwritable(path, error) from error
        attempt = cls(path.name, path, file)
        attempt.write(Tally())
        return attempt

    def write(self, tally: Tally) -> None:
        line = _LINE % (tally.sent, tally.put, tally.size)
        try:
            # Not synced, because it only has to survive the process.
            os.pwrite(self._file, line.encode(), 0)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def close(self) -> None:
        os.close(self._file)


def _unwritable(path: Path, error: OSError) -> errors.OutputError:
    return errors.OutputError(f"counter: {path}: {error.strerror or error}")


def read_tallies(folder: Path, but: Iterable[str], work: str = "") -> dict[str, Tally]:
    """Return the tallies of all attempts at a batch by file name, without those named `but`."""
    left_out = set(but)
    found = {}
    for path in sorted(folder.glob(f"{work}.*" if work else "*")):
        if path.name not in left_out:
            words = path.read_text().split()
            # A new file is still empty.
            numbers = [int(word) for word in words] if len(words) == 3 else [0, 0, 0]
            found[path.name] = Tally(*numbers)
    return found
