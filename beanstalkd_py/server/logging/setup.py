"""The log: which records are wanted, and the way from a record to stderr.

The same in parent and workers. Must not know who logs what, nor how a line looks.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from beanstalkd_py.server.logging.formats import TEXT
from beanstalkd_py.server.logging.lines import (
    FIELDS,
    NOTICE,
    LogSource,
    formatter,
    leads_to_journal,
)
from beanstalkd_py.server.logging.writer import LogWriter

LOGGER = logging.getLogger("beanstalkd_py")
STDERR = 2
LAST_WORDS_S = 0.5
PARENT = LogSource()


class StderrHandler(logging.Handler):
    """Lines to stderr: written before `emit` returns, or, after `never_block`, when it can be."""

    def __init__(self) -> None:
        super().__init__()
        self._writer: LogWriter | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """logging.Handler."""
        try:
            line = self.format(record) + "\n"
            if self._writer is None:
                sys.stderr.write(line)
                sys.stderr.flush()
            else:
                self._writer.put(line.encode("utf-8", "replace"), record.levelno >= logging.ERROR)
        except Exception:
            self.handleError(record)

    def never_block(self) -> None:
        """From now on whoever logs does not wait for stderr. In a process that does not fork."""
        if self._writer is None:
            self._writer = LogWriter(STDERR, self._lost_line)

    def end(self) -> None:
        """Waits a moment for what is not written yet."""
        if self._writer is not None:
            self._writer.flush(LAST_WORDS_S)

    def _lost_line(self, count: int) -> bytes:
        text = "lines that were not logged because stderr is not read fast enough: %d"
        record = LOGGER.makeRecord(
            *(LOGGER.name, logging.WARNING, __file__, 0, text, (count,), None),
            extra=fields(event="lost", count=count),
        )
        return (self.format(record) + "\n").encode()


_handler = StderrHandler()


def set_up_logging(verbosity: int, form: str = TEXT, source: LogSource = PARENT) -> None:
    """Notices, warnings and errors always; information from 1 on; everything from 2 on."""
    level = {0: NOTICE, 1: logging.INFO}.get(verbosity, logging.DEBUG)
    journal = leads_to_journal(STDERR, os.environ)
    _handler.setFormatter(formatter(form, source, journal))
    LOGGER.handlers[:] = [_handler]
    LOGGER.setLevel(level)
    LOGGER.propagate = False
    # A reader of stderr that went away must not turn every record into a traceback.
    logging.raiseExceptions = False


def never_block() -> None:
    """A reader of stderr that is slow keeps this process no more. It must not fork afterwards."""
    _handler.never_block()


def flush_log() -> None:
    """Before the process ends: waits a moment for what is not written yet."""
    _handler.end()


def fields(**values: Any) -> dict[str, dict[str, Any]]:
    """For `extra` of a logging call: what the record says, for programs. None is left out."""
    return {FIELDS: {name: value for name, value in values.items() if value is not None}}
