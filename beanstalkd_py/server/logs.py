"""Logging to stderr, one line per record, the same form in parent and workers.

Must not know who logs what; a record whose text has line breaks still becomes one line.
"""

from __future__ import annotations

import logging
import sys

LOGGER = logging.getLogger("beanstalkd_py")


class OneLine(logging.Formatter):
    """`beanstalkd-py: warning: text`; the level is left out of plain information."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, without an ending."""
        text = super().format(record).replace("\n", " | ")
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        return f"beanstalkd-py: {level}{text}"


def set_up_logging(verbosity: int) -> None:
    """Warnings and errors always; information from 1 on; everything from 2 on."""
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(message)s"))
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(level)
    LOGGER.propagate = False
    # A reader of stderr that went away must not turn every record into a traceback.
    logging.raiseExceptions = False
