"""The failure state of a store: after a failed write or sync it accepts no more writes.

After a failed sync the kernel may drop dirty pages, so a retry proves nothing. The store must be
opened again to see what the disk has.
"""

from __future__ import annotations

from beanstalkd_py.errors import StoreFailedError


class Health:
    """Shared by all writers of one store."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> StoreFailedError:
        """Record the first failure and return the error to raise."""
        if self.failure is None:
            self.failure = error
        return self.error()

    def error(self) -> StoreFailedError:
        raised = StoreFailedError(
            f"history store {self._what} failed: {self.failure}; open it anew"
        )
        raised.__cause__ = self.failure
        return raised

    def check(self) -> None:
        """Raise StoreFailedError if the store has failed."""
        if self.failure is not None:
            raise self.error()
