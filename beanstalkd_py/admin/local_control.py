"""The control socket of the server that a connection leads to."""

from __future__ import annotations

from beanstalkd_py import errors
from beanstalkd_py.admin.address import Address
from beanstalkd_py.admin.connection import Connection
from beanstalkd_py.admin.statistics import server_stats
from beanstalkd_py.control import client as control_client
from beanstalkd_py.control.client import ControlClient


def connect_control(
    connection: Connection, address: Address, timeout_s: float
) -> ControlClient | None:
    """Connect to the server's control socket; None for C beanstalkd or without permission.

    Compares process ids, because a server on another machine or address may have the port by which
    the control socket is found. The caller closes the connection. Raises NoConnectionError.
    """
    try:
        found = control_client.connect(str(address), timeout_s)
    except errors.NoControlError:
        return None
    if str(found.server_pid()) == server_stats(connection).get("pid"):
        return found
    found.close()
    return None
