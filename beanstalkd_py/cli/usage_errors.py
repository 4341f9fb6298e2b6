"""A user's mistake in a tool: one line, status 2."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from beanstalkd_py import errors


@contextlib.contextmanager
def told_with_status_2() -> Iterator[None]:
    """A folder that is missing, locked or in a wrong state is the user's mistake here."""
    try:
        yield
    except (errors.BinlogFolderError, errors.HistoryFolderError) as error:
        raise errors.ToolUsageError(str(error)) from error


@contextlib.contextmanager
def told_as_unreadable(folder: object) -> Iterator[None]:
    """What the system refuses while a folder is read."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        text = f"cannot read binlog folder {folder}: {error.strerror}"
        raise errors.BinlogToolError(text) from error
