"""Which worker gets a connection: the owner of the tube that it names first, or the least loaded.

Counts, in the parent's block of shared memory, the connections that no worker has yet. Must not
know how workers are started, nor how a descriptor travels.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

import gevent

from beanstalkd_py.core.connections import origin_of
from beanstalkd_py.core.placement import shard_of
from beanstalkd_py.server.accept.first_command import PEEK_BYTES, Hint, tube_of_first_command
from beanstalkd_py.server.accept.handover import Handover
from beanstalkd_py.server.accept.unrouted_connections import UnroutedConnections
from beanstalkd_py.server.accept.worker_backlog import Spawn, WorkerBacklog
from beanstalkd_py.server.logging.setup import LOGGER, fields


class Dispatcher:
    """Several workers and the connections that wait for one.

    `counters` is the parent's bs_counters, `capacity` how many connections the parent can hold.
    """

    def __init__(
        self, workers: int, colocate: bytes | None, counters: Any, capacity: int, spawn: Spawn
    ) -> None:
        self._colocate = colocate
        self._counters = counters
        self._capacity = max(1, capacity)
        self._backlogs = [WorkerBacklog(index, spawn, self._passed) for index in range(workers)]
        self._silent = UnroutedConnections(self._heard, self._given_up)
        self._listeners = [spawn(self._silent.run), spawn(self._silent.watch_time)]

    # --- workers ------------------------------------------------------------------------------

    def attach(self, worker: int, handover: Handover) -> None:
        """A worker is ready; those that wait for it are handed over."""
        self._backlogs[worker].attach(handover)

    def detach(self, worker: int) -> int | None:
        """A worker has gone: how many connections it was sent, None if it never was ready."""
        return self._backlogs[worker].detach()

    def close(self) -> None:
        """Closes every connection that no worker has."""
        gevent.killall(self._listeners)
        self._silent.close()
        for backlog in self._backlogs:
            backlog.close()
        self._counters.closed_connections += self._counters.connections
        self._counters.connections = 0

    # --- connections --------------------------------------------------------------------------

    def limit(self, idle_s: float, send_s: float) -> None:
        """For how long those that have said nothing, or half a line, are waited for; seconds."""
        self._silent.limit(idle_s, send_s)

    def room(self) -> int:
        """How many more connections the parent can hold."""
        return self._capacity - int(self._counters.connections)

    def send(self, fds: list[int]) -> None:
        """Takes over accepted connections."""
        self._counters.total_connections += len(fds)
        self._counters.connections += len(fds)
        for fd in fds:
            wish = _first_words(fd, ended=False)
            if wish is not Hint.INCOMPLETE or not self._wait_for_words(fd):
                self._deliver(fd, wish)

    def _wait_for_words(self, fd: int) -> bool:
        try:
            self._silent.add(fd)
        except OSError:
            return False  # the system watches no more descriptors; a worker can wait as well
        return True

    def _heard(self, fd: int, ended: bool) -> None:
        wish = _first_words(fd, ended)
        if wish is not Hint.INCOMPLETE:
            self._silent.remove(fd)
            self._deliver(fd, wish)

    def _deliver(self, fd: int, wish: bytes | Hint | None) -> None:
        if wish is None:
            if LOGGER.isEnabledFor(logging.INFO):
                origin = origin_of(fd)
                more = {"event": "close", "from": origin, "commands": 0}
                LOGGER.info(
                    "close one from %s, which has said nothing", origin, extra=fields(**more)
                )
            os.close(fd)
            self._ended(1)
        else:
            self._choose(wish).add(fd)

    def _given_up(self, count: int) -> None:
        self._counters.timed_out_connections += count
        self._ended(count)

    def _ended(self, count: int) -> None:
        self._counters.connections -= count
        self._counters.closed_connections += count

    def _choose(self, wish: bytes | Hint) -> WorkerBacklog:
        if isinstance(wish, bytes):
            owner = self._backlogs[shard_of(wish, len(self._backlogs), self._colocate)]
            # One that is being restarted is waited for, as only it has the jobs. One that is full
            # may stay so, and every worker can ask it.
            if not owner.open or owner.room() > 0:
                return owner
        return min(self._backlogs, key=_eagerness)

    def _passed(self, count: int) -> None:
        self._counters.connections -= count
        self._counters.moved_out += count


def _eagerness(backlog: WorkerBacklog) -> tuple[bool, bool, int]:
    return not backlog.open, backlog.room() <= 0, backlog.load()


def _first_words(fd: int, ended: bool) -> bytes | Hint | None:
    """What a connection has said so far; None if it has gone without a word."""
    # All three given, so that nothing is asked about the descriptor, which stays where it is.
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=fd)
    try:
        data = connection.recv(PEEK_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return Hint.INCOMPLETE
    except OSError:
        return None
    finally:
        connection.detach()
    return tube_of_first_command(data, ended) if data else None
