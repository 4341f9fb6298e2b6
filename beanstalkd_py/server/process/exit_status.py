"""Exit statuses of `serve` and of tools, and their errors."""

from __future__ import annotations

from beanstalkd_py import errors

EXIT_OK = 0
EXIT_ERROR = 1
"""Any other error."""
EXIT_TOOL_USAGE = 2
"""A usage error of any command except `serve`, which has the statuses of C beanstalkd."""
EXIT_USAGE = 5
"""A usage error of `serve`."""
EXIT_FOLDER = 10
"""A folder of the binlog or the history is missing, unusable, unreadable or locked."""
EXIT_BINLOG = 74
"""A write or sync of the binlog failed while serving (EX_IOERR)."""
EXIT_BIND = 111
"""Cannot listen on the address."""

EXIT_INTERRUPTED = 130
"""SIGINT, as shells report it."""
EXIT_SIGNAL_BASE = 128
"""Plus the number of the signal that killed a worker."""


def exit_status(error: errors.BeanstalkdError) -> int:
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
