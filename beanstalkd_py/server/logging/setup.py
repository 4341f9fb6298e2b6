"""The logger of the server's processes, and its handler for stderr."""

from __future__ import annotations

import logging
import os
import sys

from beanstalkd_py.server.logging.lines import (
    FIELDS,
    NOTICE,
    LineFormatter,
    LogSource,
    leads_to_journal,
)
from beanstalkd_py.server.logging.writer import LogWriter
from beanstalkd_py.server.options import TEXT

LOGGER = logging.getLogger("beanstalkd_py")
STDERR = 2
FLUSH_LIMIT_S = 0.5
PARENT = LogSource()


class StderrHandler(logging.Handler):
    """Writes lines to stderr: directly, or by a thread after `write_in_background`."""

    def __init__(self) -> None:
        super().__init__()
        self._writer: LogWriter | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
            if self._writer is None:
                sys.stderr.write(line)
                sys.stderr.flush()
            else:
                self._writer.put(line.encode("utf-8", "replace"), record.levelno >= logging.ERROR)
        except Exception:
            self.handleError(record)

    def write_in_background(self) -> None:
        if self._writer is None:
            self._writer = LogWriter(STDERR, self._lost_line)

    def drain(self) -> None:
        if self._writer is not None:
            self._writer.flush(FLUSH_LIMIT_S)

    def _lost_line(self, count: int) -> bytes:
        text = "lines that were not logged because stderr is not read fast enough: %d"
        record = LOGGER.makeRecord(
            *(LOGGER.name, logging.WARNING, __file__, 0, text, (count,), None),
            extra=fields(event="lost", count=count),
        )
        return (self.format(record) + "\n").encode()


_handler = StderrHandler()


def set_up_logging(verbosity: int, form: str = TEXT, source: LogSource = PARENT) -> None:
    """Log notices and above at verbosity 0, information from 1 on, everything from 2 on."""
    level = {0: NOTICE, 1: logging.INFO}.get(verbosity, logging.DEBUG)
    journal = leads_to_journal(STDERR, os.environ)
    _handler.setFormatter(LineFormatter(form, source, journal))
    LOGGER.handlers[:] = [_handler]
    LOGGER.setLevel(level)
    LOGGER.propagate = False
    # A closed stderr must not turn every record into a traceback.
    logging.raiseExceptions = False


def log_in_background() -> None:
    """Never block on stderr from now on. The process must not fork afterwards."""
    _handler.write_in_background()


def flush_log() -> None:
    """Wait up to FLUSH_LIMIT_S for the lines to be written."""
    _handler.drain()


def fields(**values: object) -> dict[str, dict[str, object]]:
    """Return the `extra` argument of a logging call: fields for JSON, without None values."""
    return {FIELDS: {name: value for name, value in values.items() if value is not None}}
