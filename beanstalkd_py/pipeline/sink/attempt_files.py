"""How far each attempt at a task has come, in a small file each, right after a kill at any moment.

Notes are in a folder beside the counter. A task that does not see the folder, because it runs on
another machine, does without. Must not know what becomes of the numbers.
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
class Note:
    """The note of an attempt, open. `name` begins with what it is an attempt at."""

    name: str
    path: Path
    _file: int

    @classmethod
    def begin(cls, folder: Path, work: str, task: str) -> Note | None:
        """A new one. None: the folder is not here. Raises OutputError."""
        if not folder.is_dir():
            return None
        path = folder / f"{work}.{task}.{uuid.uuid4().hex[:12]}"
        try:
            note = cls(path.name, path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        except OSError as error:
            raise _unwritable(path, error) from error
        note.tell(Tally())
        return note

    def tell(self, tally: Tally) -> None:
        """Writes it down. Raises OutputError."""
        line = _LINE % (tally.sent, tally.put, tally.size)
        try:
            # Not synced: it is there after any end of the process, and a power cut ends the server
            # or leaves the question open anyway.
            os.pwrite(self._file, line.encode(), 0)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def close(self) -> None:
        """It stays as it is."""
        os.close(self._file)


def _unwritable(path: Path, error: OSError) -> errors.OutputError:
    return errors.OutputError(f"counter: {path}: {error.strerror or error}")


def read_notes(folder: Path, but: Iterable[str], work: str = "") -> dict[str, Tally]:
    """Tallies by the names of notes: of all attempts at this work, but for those named."""
    left_out = set(but)
    found = {}
    for path in sorted(folder.glob(f"{work}.*" if work else "*")):
        if path.name not in left_out:
            words = path.read_text().split()
            # One that is just begun has nothing yet.
            numbers = [int(word) for word in words] if len(words) == 3 else [0, 0, 0]
            found[path.name] = Tally(*numbers)
    return found
