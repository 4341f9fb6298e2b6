"""The exit statuses of `serve` and of tools, and which error means which."""

from __future__ import annotations

from beanstalkd_py import errors

EXIT_OK = 0
EXIT_ERROR = 1
"""Anything without a status of its own."""
EXIT_TOOL_USAGE = 2
"""A mistake in any command but `serve`, whose statuses are C beanstalkd's."""
EXIT_USAGE = 5
"""A wrong option or value."""
EXIT_FOLDER = 10
"""The binlog folder is missing, unusable, unreadable or locked; or that of the history is."""
EXIT_BINLOG = 74
"""A write or sync of the binlog failed while serving (EX_IOERR)."""
EXIT_BIND = 111
"""Cannot listen on the address."""

EXIT_INTERRUPTED = 130
"""Ctrl-C, as shells have it."""
EXIT_SIGNAL_BASE = 128
"""Plus the signal's number: a worker was killed."""


def exit_status(error: errors.BeanstalkdError) -> int:
    """The status to leave with after this error."""
    match error:
        case errors.WorkerError():
            return error.status
        case errors.ToolUsageError():
            return EXIT_TOOL_USAGE
        case errors.InterruptError():
            return EXIT_INTERRUPTED
        case errors.NoConnectionError() | errors.NoControlError():
            return EXIT_TOOL_USAGE
        case errors.UsageError():
            return EXIT_USAGE
        case errors.AddressError():
            return EXIT_BIND
        case errors.BinlogFolderError() | errors.HistoryFolderError():
            return EXIT_FOLDER
        case errors.BinlogWriteError():
            return EXIT_BINLOG
        case _:
            return EXIT_ERROR
