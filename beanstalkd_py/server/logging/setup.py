"""The logger of the server's processes, and its handler for stderr."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import TypeVar

from beanstalkd_py.server.logging.lines import (
    FIELDS,
    NOTICE,
    LineFormatter,
    LogSource,
    leads_to_journal,
)
from beanstalkd_py.server.logging.writer import LogWriter
from beanstalkd_py.server.options import TEXT
from beanstalkd_py.server.process.exit_status import EXIT_ERROR

T = TypeVar("T")

LOGGER = logging.getLogger("beanstalkd_py")
STDERR = 2
FLUSH_LIMIT_S = 0.5
PARENT = LogSource()


class StderrHandler(logging.Handler):
    """Writes lines to stderr, directly or by `writer`."""

    def __init__(self) -> None:
        super().__init__()
        self.writer: LogWriter | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
            if self.writer is None:
                sys.stderr.write(line)
                sys.stderr.flush()
            else:
                self.writer.put(line.encode("utf-8", "replace"), record.levelno >= logging.ERROR)
        except Exception:
            self.handleError(record)

    def lost_line(self, count: int) -> bytes:
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
    """Write by a thread from now on, without blocking. The process must not fork afterwards."""
    if _handler.writer is None:
        _handler.writer = LogWriter(STDERR, _handler.lost_line)


def flush_log() -> None:
    """Wait up to FLUSH_LIMIT_S for the lines to be written."""
    if _handler.writer is not None:
        _handler.writer.flush(FLUSH_LIMIT_S)


def exit_on_error(task: Callable[[], T], process: str) -> T:
    """Return the result of a task; an exception of the task ends the process."""
    try:
        return task()
    except Exception:
        # Exit at once, because other greenlets would still answer the parent's heartbeat.
        LOGGER.critical("internal error, the %s exits", process, exc_info=True)
        flush_log()
        os._exit(EXIT_ERROR)


def fields(**values: object) -> dict[str, dict[str, object]]:
    """Return the `extra` argument of a logging call: fields for JSON, without None values."""
    return {FIELDS: {name: value for name, value in values.items() if value is not None}}
