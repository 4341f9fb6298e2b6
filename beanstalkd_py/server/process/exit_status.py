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


_STATUSES = (
    ((errors.ToolUsageError, errors.NoConnectionError, errors.NoControlError), EXIT_TOOL_USAGE),
    (errors.InterruptError, EXIT_INTERRUPTED),
    (errors.UsageError, EXIT_USAGE),
    (errors.AddressError, EXIT_BIND),
    ((errors.BinlogFolderError, errors.HistoryFolderError), EXIT_FOLDER),
    (errors.BinlogWriteError, EXIT_BINLOG),
)


def exit_status(error: errors.BeanstalkdError) -> int:
    if isinstance(error, errors.WorkerError):
        return error.status
    return next((status for kinds, status in _STATUSES if isinstance(error, kinds)), EXIT_ERROR)
