"""The settings of a console, and their checks. Imports neither gevent nor werkzeug."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from beanstalkd_py import errors
from beanstalkd_py.console.access.browser_checks import is_loopback
from beanstalkd_py.console.audit_log import AuditLog, open_to_append

if TYPE_CHECKING:
    from beanstalkd_py.console.access.accounts import Account


def require_packages(what: str) -> None:
    """Raise UsageError if the packages of the console are missing; `what` requires them."""
    if find_spec("werkzeug") is None:
        text = "requires werkzeug; run pip install 'beanstalkd_py[console]'"
        raise errors.UsageError(f"{what} {text}")


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The settings of one console, as an operator gives them.

    `host` is where it listens. `role` is that of everybody if there are no `users`. `names` are
    further names of the console for browsers.
    """

    host: str
    users: str | None = None
    role: str = "read"
    names: Sequence[str] = ()
    user_header: str | None = None
    is_https: bool = False
    audit_log: str | None = None

    def check(self, listen: str, prefix: str) -> None:
        """Check that the settings fit together. Raises UsageError.

        `listen` is the option of the address, and `prefix` begins the names of the others.
        """
        require_packages(f"option {listen}")
        if self.users is None and not is_loopback(self.host):
            raise errors.UsageError(
                f"option {listen}: {self.host} is reachable from other machines; give"
                f" {prefix}users FILE, so that users have to log in"
            )
        if self.user_header is None:
            return
        if self.users is None:
            raise errors.UsageError(f"option {prefix}user-header requires {prefix}users FILE")
        if not is_loopback(self.host):
            raise errors.UsageError(
                f"option {prefix}user-header: anybody could send this header; listen on 127.0.0.1,"
                " where the proxy connects"
            )

    def check_files(self) -> None:
        """Check that this process can use the files. Raises UsageError."""
        self.accounts()
        if self.audit_log is not None:
            try:
                os.close(open_to_append(Path(self.audit_log)))
            except OSError as error:
                raise self._cannot_write(error) from error

    def accounts(self) -> Mapping[str, Account]:
        """Read the users; none without a file. Raises UsageError."""
        if self.users is None:
            return {}
        from beanstalkd_py.console.access.accounts import load_accounts

        return load_accounts(Path(self.users))

    def open_audit_log(self) -> AuditLog:
        """Raises UsageError."""
        try:
            return AuditLog(Path(self.audit_log) if self.audit_log is not None else None)
        except OSError as error:
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: OSError) -> errors.UsageError:
        return errors.UsageError(f"cannot write audit log {self.audit_log}: {error.strerror}")
