"""The control socket of the server that a connection leads to."""

from __future__ import annotations

from typing import TypedDict

from beanstalkd_py import errors
from beanstalkd_py.admin.address import Address
from beanstalkd_py.admin.connection import Connection
from beanstalkd_py.admin.statistics import server_stats
from beanstalkd_py.control import client as control_client
from beanstalkd_py.control.client import ControlClient

WorkerRow = TypedDict(
    "WorkerRow",
    {
        "worker": int,
        "state": str,
        "since-s": float,
        "pid": int,
        "restarts": int,
        "cpu-s": float,
        "memory-bytes": int,
        "tubes": int,
        "connections": int,
        "mesh-in-bytes": int,
        "mesh-out-bytes": int,
        "jobs-ready": int,
        "jobs-reserved": int,
        "jobs-delayed": int,
        "jobs-buried": int,
    },
)
"""A row of the request `workers`, without the keys that no command uses."""

ConnectionRow = TypedDict(
    "ConnectionRow",
    {
        "from": str,
        "worker": int,
        "use": str,
        "watch": list[str],
        "watching": int,
        "waits": bool,
        "waits-s": float | None,
        "holds": int,
        "jobs": list[int],
        "unread-bytes": int,
        "unsent-bytes": int,
    },
)
"""A row of the request `conns`; long `watch` and `jobs` are cut off."""


def connect_control(
    connection: Connection, address: Address, timeout_s: float
) -> ControlClient | None:
    """Connect to the server's control socket; None for C beanstalkd or without permission.

    Compares process ids, because a local server with the same port may not be the one at `address`.
    The caller closes the connection. Raises NoConnectionError.
    """
    try:
        control = control_client.connect(str(address), timeout_s)
    except errors.NoControlError:
        return None
    if str(control.server_pid()) == server_stats(connection).get("pid"):
        return control
    control.close()
    return None
