"""One server that the console shows: its connections, and what it can do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.admin.address import Address
from beanstalkd_py.admin.connection import Connection, connect
from beanstalkd_py.admin.local_control import connect_control
from beanstalkd_py.admin.tls_options import TlsOptions
from beanstalkd_py.control.client import ControlClient

TIMEOUT_S = 10.0
ABILITIES = ("schedules", "policies", "connections")
"""What a control socket gives."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server. `control` is its control socket, None to search for it.

    `history` and `binlog` are folders of it that this process can read, if it can.
    """

    address: Address
    control: Path | None = None
    tls_options: TlsOptions | None = None
    history: Path | None = None
    binlog: Path | None = None

    @property
    def name(self) -> str:
        return str(self.address)

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection]:
        """Raises NoConnectionError, RefusedError."""
        with connect(self.address, TIMEOUT_S, self.tls_options) as connection:
            yield connection

    @contextlib.contextmanager
    def control_client(self) -> Iterator[ControlClient]:
        """Raises NoControlError for a server elsewhere, and C beanstalkd; NoConnectionError."""
        if self.control is not None:
            with ControlClient(self.control, TIMEOUT_S) as client:
                yield client
            return
        with self.connection() as connection:
            client_found = connect_control(connection, self.address, TIMEOUT_S)
        if client_found is None:
            raise errors.NoControlError(
                f"this needs the control socket of {self.name}: a beanstalkd-py on this machine,"
                " and a console that runs as its user"
            )
        with client_found:
            yield client_found

    def has_control(self) -> bool:
        try:
            with self.control_client():
                return True
        except errors.ControlError:
            return False
