"""Tubes by their shard, and the workers of a running server."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator

from processes import children, eventually
from servers import Server
from wire import Client, in_tube

from beanstalkd_py.core.placement import shard_of

WORKERS = 2
TWO = ("--workers", str(WORKERS))


def tubes_of(worker: int, workers: int = WORKERS) -> Iterator[bytes]:
    """Return names of tubes of one shard."""
    names = (b"tube-%d" % number for number in itertools.count())
    return (name for name in names if shard_of(name, workers) == worker)


def connect_at(server: Server, worker: int, workers: int = WORKERS) -> Client:
    """Return a connection with this home worker, with no trace but one cmd-ignore."""
    client = server.connect()
    assert client.ask(b"ignore %b\r\n" % next(tubes_of(worker, workers))) == b"WATCHING 1\r\n"
    return client


TUBES = [next(tubes_of(worker)) for worker in range(WORKERS)]
"""A tube of each worker."""


def client_of(server: Server, worker: int) -> Client:
    """Return a connection that uses and watches only TUBES[worker]."""
    return in_tube(server.connect(), TUBES[worker])


def worker_pids(server: Server) -> list[int]:
    """Return the workers in order, if none has been restarted."""
    found = children(server.pid)
    assert len(found) == WORKERS, found
    return found


def kill_worker(server: Server, pid: int) -> None:
    """Kill a worker, and wait until the parent has noticed; connections in flight are lost."""
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: pid not in children(server.pid))
