"""Who is connected, as the core tells it: `bs_session_facts`. Must not know what is shown of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.core.events import text_in


class Connection(NamedTuple):
    """A session with a connection, or a proxy for one of worker `home`, with its number there.

    `until` is monotonic nanoseconds, of use while it waits; `unread` and `unsent` are bytes.
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


def connection_of(facts: Any) -> Connection:
    """A `bs_session_facts` as a record of its own."""
    # The empty line behind the names is the first one, or the very first line.
    names, _, jobs = (b"\n" + bytes(ffi.buffer(facts.lists, facts.length))).partition(b"\n\n")
    return Connection(
        facts.id,
        facts.home,
        facts.fd,
        bool(facts.proxy),
        bool(facts.waits),
        facts.until,
        facts.watching,
        facts.holds,
        bool(facts.producer),
        bool(facts.worker),
        facts.unread,
        facts.unsent,
        ffi.string(facts.use),
        names.split(b"\n")[1:],
        [int(job) for job in jobs.split()],
    )


def origin_of(fd: int) -> str:
    """Where a connection comes from: HOST:PORT, pid:PID by a Unix socket, or "gone"."""
    text = ffi.new("char[]", lib.BS_FROM_MAX)
    lib.bs_from(fd, text)
    return text_in(text)
