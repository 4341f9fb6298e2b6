"""Whether a store may still be written. After a write or sync that failed it may not.

What the kernel has dropped after a failed sync cannot be written again, so the only way on is to
open the store anew, and to see what the disk has.
"""

from __future__ import annotations

from beanstalkd_py.errors import StoreFailedError


class Health:
    """Shared by everything that writes one store."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> StoreFailedError:
        """From now on nothing is taken. The first failure is the one that is told."""
        if self.failure is None:
            self.failure = error
        return self.error()

    def error(self) -> StoreFailedError:
        """What callers are told."""
        raised = StoreFailedError(
            f"history store {self._what} failed: {self.failure}; open it anew"
        )
        raised.__cause__ = self.failure
        return raised

    def check(self) -> None:
        """StoreFailedError if it has failed."""
        if self.failure is not None:
            raise self.error()
