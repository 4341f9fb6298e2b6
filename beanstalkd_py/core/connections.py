"""Sessions as the core lists them: `bs_session_info` of csrc/api/server.h."""

from __future__ import annotations

from typing import Any, NamedTuple

from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.core.c_values import fields_of
from beanstalkd_py.core.events import text_in


class Connection(NamedTuple):
    """A session with a connection, or a proxy for session `number` of worker `home`.

    `until` is monotonic nanoseconds, valid while it waits; `unread` and `unsent` are bytes.
    """

    number: int
    home: int
    fd: int
    is_proxy: bool
    waits: bool
    until: int
    watching: int
    holds: int
    producer: bool
    worker: bool
    unread: int
    unsent: int
    use: bytes
    watched: list[bytes]
    jobs: list[int]


class Roles(NamedTuple):
    """How many connections of all workers have put, and how many have reserved."""

    producers: int
    workers: int


def connection_of(info: Any) -> Connection:
    # The empty line behind the names is the first one, or the very first line.
    names, _, jobs = (b"\n" + bytes(ffi.buffer(info.lists, info.length))).partition(b"\n\n")
    plain = fields_of(info, Connection._fields[:-3])
    lists = names.split(b"\n")[1:], [int(job) for job in jobs.split()]
    return Connection._make([*plain, ffi.string(info.use), *lists])


def origin_of(fd: int) -> str:
    """Return HOST:PORT, pid:PID for a Unix socket, or "gone"."""
    text = ffi.new("char[]", lib.BS_ADDRESS_MAX)
    lib.bs_peer_address(fd, text)
    return text_in(text)
