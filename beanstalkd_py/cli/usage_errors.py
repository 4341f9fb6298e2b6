"""Translate errors about binlog folders for the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from beanstalkd_py import errors


@contextlib.contextmanager
def folder_usage_errors() -> Iterator[None]:
    """Convert errors about a missing, locked or unsuitable folder to ToolUsageError (status 2)."""
    try:
        yield
    except (errors.BinlogFolderError, errors.HistoryFolderError) as error:
        raise errors.ToolUsageError(str(error)) from error


@contextlib.contextmanager
def folder_read_errors(folder: object) -> Iterator[None]:
    """Convert OSError to BinlogToolError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        text = f"cannot read binlog folder {folder}: {error.strerror}"
        raise errors.BinlogToolError(text) from error
