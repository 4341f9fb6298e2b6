"""The failure state of a store: after a failed write or sync it accepts no more writes.

After a failed sync the kernel may drop dirty pages, so a retry proves nothing. The store must be
opened again to see what the disk has.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from beanstalkd_py.errors import StoreDamagedError, StoreFailedError, StoreFullError


def is_no_space(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class Health:
    """Shared by all writers of one store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> StoreFailedError:
        """Record the first failure and return the error to raise."""
        if self.failure is None:
            self.failure = error
        failed = StoreFailedError(
            f"history store {self._folder} failed: {self.failure}; open it anew"
        )
        failed.__cause__ = self.failure
        return failed

    def check(self) -> None:
        """Raise StoreFailedError if the store has failed."""
        if self.failure is not None:
            raise self.fail(self.failure)

    @contextlib.contextmanager
    def guard(self, no_space_for: str) -> Iterator[None]:
        """Fail the store if the block fails; only a full disk is a StoreFullError instead."""
        try:
            yield
        except OSError as error:
            if not is_no_space(error):
                raise self.fail(error) from error
            text = f"{self._folder}: no space for {no_space_for}: {error}"
            raise StoreFullError(text) from error
        except StoreDamagedError as error:
            raise self.fail(error) from error
