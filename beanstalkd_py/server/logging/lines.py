"""Formats a log record as one line: text, text for the journal, or a JSON object.

Control characters are escaped in all formats, so that clients cannot inject lines.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

from beanstalkd_py.server.options import JSON

NOTICE = 25
"""The level of messages that are logged at every verbosity, but report no problem."""
logging.addLevelName(NOTICE, "NOTICE")

FIELDS = "fields"
"""The attribute of a record that has its fields for JSON, as a dict."""

# " | " distinguishes the line breaks of tracebacks from those of clients, which are escaped.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160))}
_CONTROL[ord("\n")] = " | "
_PRINTABLE = [
    "\\\\" if code == ord("\\") else chr(code) if 32 <= code < 127 else f"\\x{code:02x}"
    for code in range(256)
]

# Priorities of sd-daemon(3) by level.
_PRIORITIES = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (NOTICE, 5),
    (logging.INFO, 6),
    (0, 7),
)


def escaped(data: bytes) -> str:
    r"""Return printable ASCII: other bytes as \xNN, and each backslash doubled."""
    return "".join([_PRINTABLE[byte] for byte in data])


@dataclass(frozen=True, slots=True)
class LogSource:
    """The process that logs: a worker, or another process by `name`.

    If the server has `several` workers, lines name the worker.
    """

    worker: int | None = None
    several: bool = False
    name: str = "parent"


class LineFormatter(logging.Formatter):
    """Formats lines of TEXT or JSON; with `journal`, for systemd's journal.

    A text line is `beanstalkd-py: worker 1: warning: text`; only warnings and above show their
    level. A JSON line has time, level, message, worker, pid and the fields of the record.
    """

    def __init__(self, form: str, source: LogSource, journal: bool) -> None:
        super().__init__("%(message)s")
        self._line = self._json if form == JSON else self._text
        self._journal = journal
        self._worker: int | str = source.name if source.worker is None else source.worker
        names_worker = source.worker is not None and source.several
        self._prefix = "beanstalkd-py: " + (f"worker {source.worker}: " if names_worker else "")

    def format(self, record: logging.LogRecord) -> str:
        line = self._line(record)
        if not self._journal:
            return line
        priority = next(number for level, number in _PRIORITIES if record.levelno >= level)
        return f"<{priority}>{line}"

    def _text(self, record: logging.LogRecord) -> str:
        text = super().format(record).translate(_CONTROL)
        level = "" if record.levelno <= NOTICE else f"{record.levelname.lower()}: "
        return f"{self._prefix}{level}{text}"

    def _json(self, record: logging.LogRecord) -> str:
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
        fields: dict[str, object] = getattr(record, FIELDS, {})
        return json.dumps(line | fields)


def leads_to_journal(fd: int, environ: Mapping[str, str]) -> bool:
    """Return whether the descriptor is the stream that JOURNAL_STREAM names."""
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
