"""A log record as one line: text, text for the journal, or a JSON object.

Control characters are escaped in all of them, so a client cannot inject lines.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beanstalkd_py.server.logging.formats import JSON

NOTICE = 25
"""The level of what is logged whatever the verbosity although nothing is wrong."""
logging.addLevelName(NOTICE, "NOTICE")

FIELDS = "fields"
"""The attribute of a record that has its structure, a dict, for JSON."""

# Line breaks within one record, as between the lines of a traceback, can be told from a client's.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160))}
_CONTROL[ord("\n")] = " | "
_PRINTABLE = [
    "\\\\" if code == ord("\\") else chr(code) if 32 <= code < 127 else f"\\x{code:02x}"
    for code in range(256)
]

# The priorities of sd-daemon(3), by the levels of logging.
_PRIORITIES = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (NOTICE, 5),
    (logging.INFO, 6),
    (0, 7),
)


def escaped(data: bytes) -> str:
    r"""Any bytes as printable ASCII: \xNN for what is none, two backslashes for one."""
    return "".join([_PRINTABLE[byte] for byte in data])


@dataclass(frozen=True, slots=True)
class LogSource:
    """The process that logs: the worker of this number, or else the one of this name.

    `several`: it is one of several workers.
    """

    worker: int | None = None
    several: bool = False
    name: str = "parent"


class TextLines(logging.Formatter):
    """`beanstalkd-py: worker 1: warning: text`.

    The worker is named if there are several. Lines below a warning have no level.
    """

    def __init__(self, source: LogSource) -> None:
        super().__init__("%(message)s")
        named = source.worker is not None and source.several
        self._prefix = f"beanstalkd-py: worker {source.worker}: " if named else "beanstalkd-py: "

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, without an ending."""
        text = super().format(record).translate(_CONTROL)
        level = "" if record.levelno <= NOTICE else f"{record.levelname.lower()}: "
        return f"{self._prefix}{level}{text}"


class JsonLines(logging.Formatter):
    """An object with time, level, message, worker, pid and the fields of the record."""

    def __init__(self, source: LogSource) -> None:
        super().__init__("%(message)s")
        self._worker: int | str = source.name if source.worker is None else source.worker

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, without an ending."""
        import json
        from datetime import UTC, datetime

        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        line = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "worker": self._worker,
            "pid": record.process,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        fields: dict[str, Any] = getattr(record, FIELDS, {})
        return json.dumps(line | fields)


class JournalLines(logging.Formatter):
    """Another form's line with the priority in front that the journal takes from it."""

    def __init__(self, form: logging.Formatter) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, without an ending."""
        priority = next(number for level, number in _PRIORITIES if record.levelno >= level)
        return f"<{priority}>{self._form.format(record)}"


def formatter(form: str, source: LogSource, journal: bool) -> logging.Formatter:
    """The one for TEXT or JSON; `journal`: that is where lines go."""
    lines = JsonLines(source) if form == JSON else TextLines(source)
    return JournalLines(lines) if journal else lines


def leads_to_journal(fd: int, environ: Mapping[str, str]) -> bool:
    """Whether a descriptor is the stream to the journal that systemd has named."""
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
