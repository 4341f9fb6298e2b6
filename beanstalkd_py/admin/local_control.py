"""The control socket of the very server that a connection is to, if it has one that we may use."""

from __future__ import annotations

from beanstalkd_py import errors
from beanstalkd_py.admin.address import Address
from beanstalkd_py.admin.connection import Connection
from beanstalkd_py.admin.statistics import parse
from beanstalkd_py.control import client as control_client
from beanstalkd_py.control.client import ControlClient


def control_of(connection: Connection, address: Address, timeout_s: float) -> ControlClient | None:
    """A connection to it, for the caller to close; None: C beanstalkd, or not for us.

    A server on another machine, or C beanstalkd on another address of this one, may have the port
    by which a control socket is found. Raises NoConnectionError.
    """
    try:
        found = control_client.connect(str(address), timeout_s)
    except errors.NoControlError:
        return None
    server = parse(connection.ask_one(b"stats").expect(b"OK").body)
    if str(found.server_pid()) == server.get("pid"):
        return found
    found.close()
    return None
