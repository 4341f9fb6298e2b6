"""The one exception tree of the package.

Every error that an operator or a caller can meet derives from BeanstalkdError and carries a
sentence that says what happened. Nothing here knows where errors come from or how they are shown.
"""

from __future__ import annotations


class BeanstalkdError(Exception):
    """Anything that this package raises on purpose."""


class UsageError(BeanstalkdError):
    """An option or value is wrong, or cannot be followed on this machine."""


class AddressError(BeanstalkdError):
    """A listening address cannot be understood, resolved or bound."""


class WorkerError(BeanstalkdError):
    """A worker could not be started, or ended by itself.

    `status` is the exit status that the parent leaves with.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class BinlogFolderError(BeanstalkdError):
    """The binlog folder is missing, is no folder, or may not be used."""


class BinlogLockedError(BinlogFolderError):
    """Another process has the binlog folder."""


class CoreError(BeanstalkdError):
    """The C core refused a call. `code` is what it returned: a negative errno or BS_ERR_ value."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class BinlogWriteError(CoreError):
    """A write or sync of the binlog failed: nothing may be acknowledged any more."""


class SessionEndedError(CoreError):
    """The session that was fed or read has ended."""
