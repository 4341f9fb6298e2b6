"""The exceptions of the package.

All expected errors derive from BeanstalkdError; their text is a complete message for the user.
"""

from __future__ import annotations


class BeanstalkdError(Exception):
    """The base class of all expected errors."""


class UsageError(BeanstalkdError):
    """An option or value is invalid, or not supported on this machine."""


class AddressError(BeanstalkdError):
    """A listening address cannot be resolved or bound."""


class WorkerError(BeanstalkdError):
    """A child process cannot start, or ended unexpectedly. `status` is the server's exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class BinlogFolderError(BeanstalkdError):
    """The binlog folder is missing, not a folder, or not accessible."""


class ReplicationError(BeanstalkdError):
    """The replicated log cannot be used, or contradicts itself or this server's folder."""


class HistoryFolderError(BeanstalkdError):
    """The history folder is missing, not a folder, or not accessible."""


class BinlogLockedError(BinlogFolderError):
    """Another process has locked the binlog folder."""


class UnreadableError(UsageError):
    """This user has no permission to read a file that an option names."""


class ToolUsageError(BeanstalkdError):
    """The arguments of a tool are invalid; the tool has changed nothing."""


class NoConnectionError(BeanstalkdError):
    """A server cannot be reached, does not answer, hung up, or is not a beanstalkd."""


class RefusedError(BeanstalkdError):
    """A server rejected a command. `word` is the first word of its reply, such as NOT_FOUND."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__(message)
        self.word = word


class MissingFeatureError(BeanstalkdError):
    """The server lacks an extension of the protocol; `feature` is its name in `features`."""

    def __init__(self, feature: str) -> None:
        super().__init__(
            f'the server lacks the extension "{feature}": it is C beanstalkd, or older than this'
            " client"
        )
        self.feature = feature


class IncompleteError(BeanstalkdError):
    """A command succeeded in part; the message describes the rest."""


class InterruptError(BeanstalkdError):
    """The user interrupted a command; the message describes its progress and how to resume."""


class OutputError(BeanstalkdError):
    """Output cannot be written, for example to a full disk."""


class ReaderGoneError(OutputError):
    """The reader of stdout has closed the pipe; commands end without a message."""


class BinlogToolError(BeanstalkdError):
    """A tool failed on a binlog folder, because of damage or a disk error."""


class ControlError(BeanstalkdError):
    """A request on the control socket failed, or the connection was lost."""


class PutError(BeanstalkdError):
    """The server could not put a job of a schedule, or lost the connection before the reply."""


class NoControlError(ControlError):
    """The control socket does not exist or cannot be reached."""


class CoreError(BeanstalkdError):
    """A call of the C core failed. `code` is its result: a negative errno or BS_ERR_ value."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class BinlogWriteError(CoreError):
    """A write or sync of the binlog failed; the worker must not acknowledge anything after it."""


class SessionEndedError(CoreError):
    """The session is closed."""


class PipelineUsageError(BeanstalkdError):
    """An option of a source is invalid, or a path does not exist."""


class PipelineError(BeanstalkdError):
    """Spark does not start, or failed internally."""


class MalformedError(BeanstalkdError):
    """A file is damaged, and the read mode is FAILFAST."""


class DataLossError(BeanstalkdError):
    """Files that a stream has not read yet are gone (failOnDataLoss)."""


class StoreError(BeanstalkdError):
    """An operation of a history store failed."""


class StoreUsageError(StoreError):
    """The folder is not a store, or its sizes do not match the options."""


class StoreLockedError(StoreUsageError):
    """Another process, or another Store of this process, has locked the history store."""


class StoreDamagedError(StoreError):
    """Files of a history store are inconsistent; the message has file and offset."""


class StoreFullError(StoreError):
    """The disk is full; the store has no message of the batch, so it can be retried."""


class StoreFailedError(StoreError):
    """A write or sync of a history store failed; it must be opened again before further writes."""


class FlushTimeoutError(StoreError):
    """A sync timed out; it is unknown whether the messages are on disk."""


class MessageRefusedError(StoreError):
    """A message is invalid, so its batch was rejected. `number` is its index in the batch."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number
