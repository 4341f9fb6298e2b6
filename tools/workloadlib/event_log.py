"""The log: JSON lines with the parameters, the events and the totals.

`seq` counts events from 1. An event happened between `sent_ns` and `at_ns`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import WorkloadError

FORMAT = 1
BEGIN = "begin"
END = "end"


class LogWriter:
    """Writes NAME.part, which gets its name with its last line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self.events = 0
        try:
            self._file = self._part.open("w", buffering=1 << 20)
        except OSError as error:
            raise WorkloadError(f"cannot write {path}: {error.strerror}") from error

    def close(self) -> None:
        self._file.close()

    def begin(self, parameters: dict[str, object]) -> None:
        self._line({"event": BEGIN, "format": FORMAT, **parameters})

    def event(self, text: str) -> None:
        """Write a line; `text` is the part after `seq`."""
        self.events += 1
        self._file.write(f'{{"seq":{self.events},{text}')

    def end(self, totals: dict[str, object]) -> None:
        self._line({"event": END, "events": self.events, **totals})
        self._file.close()
        self._part.replace(self._path)

    def _line(self, fields: dict[str, object]) -> None:
        self._file.write(json.dumps(fields, separators=(",", ":")) + "\n")


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Read all lines. Raises WorkloadError for an invalid one."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    fields = json.loads(line)
                    fields["event"]
                except (ValueError, KeyError, TypeError) as error:
                    raise WorkloadError(f"{path}:{number}: no line of a log: {error}") from error
                yield fields
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror}") from error
