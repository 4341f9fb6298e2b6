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


class HistoryFolderError(BeanstalkdError):
    """The folder for the history is missing, is no folder, or may not be used."""


class BinlogLockedError(BinlogFolderError):
    """Another process has the binlog folder."""


class UnreadableError(UsageError):
    """A file that an option names may not be read by this user."""


class ToolUsageError(BeanstalkdError):
    """A tool was asked for what cannot be done: a user's mistake, which has lost nothing."""


class NoConnectionError(BeanstalkdError):
    """A server cannot be reached, stays silent, went away, or is no beanstalkd."""


class RefusedError(BeanstalkdError):
    """A server said no. `word` is the first word of its reply, such as NOT_FOUND."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__(message)
        self.word = word


class IncompleteError(BeanstalkdError):
    """A command did a part of what was asked, and its message says which."""


class InterruptError(BeanstalkdError):
    """The user interrupted a command; the message says how far it came and how to go on."""


class OutputError(BeanstalkdError):
    """What a command has to say cannot be written: a full disk, for example."""


class ReaderGoneError(OutputError):
    """Nobody reads stdout any more, which nobody needs to be told."""


class BinlogToolError(BeanstalkdError):
    """A tool could not do its work on a binlog folder: it is damaged, or the disk refused."""


class ControlError(BeanstalkdError):
    """The server refuses what it was asked on the control socket, or is lost meanwhile."""


class NoControlError(ControlError):
    """There is no control socket, or it cannot be reached."""


class CoreError(BeanstalkdError):
    """The C core refused a call. `code` is what it returned: a negative errno or BS_ERR_ value."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class BinlogWriteError(CoreError):
    """A write or sync of the binlog failed: nothing may be acknowledged any more."""


class SessionEndedError(CoreError):
    """The session that was fed or read has ended."""


class PipelineUsageError(BeanstalkdError):
    """An option of a source is wrong, or a path leads to nothing: a mistake that lost nothing."""


class PipelineError(BeanstalkdError):
    """Spark does not start, or has failed for a reason that is nobody's mistake here."""


class MalformedError(BeanstalkdError):
    """A place in a file cannot be read, and the source was asked to fail then (FAILFAST)."""


class DataLossError(BeanstalkdError):
    """Files that a stream has still to read are gone (failOnDataLoss)."""


class StoreError(BeanstalkdError):
    """A history store cannot do what it was asked."""


class StoreUsageError(StoreError):
    """The folder is no store, or sizes and options do not fit it: a mistake that lost nothing."""


class StoreLockedError(StoreUsageError):
    """Another process, or another Store of this one, has the history store."""


class StoreDamagedError(StoreError):
    """Files of a history store contradict each other; the message says file and offset."""


class StoreFullError(StoreError):
    """The disk is too full: nothing of the batch was taken, and it may be given again later."""


class StoreFailedError(StoreError):
    """A write or sync of a history store failed: it takes nothing more until it is opened anew."""


class FlushTimeoutError(StoreError):
    """The sync took longer than allowed: whether the messages are on disk is not known yet."""


class MessageRefusedError(StoreError):
    """A message cannot be stored as it is; none of its batch was. `number` counts from 0."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number
