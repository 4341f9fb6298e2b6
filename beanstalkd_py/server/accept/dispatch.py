"""Chooses the worker of a connection: the owner of its first tube, or the one with fewest clients.

Counts the connections that no worker has yet in the parent's block of shared memory.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

import gevent

from beanstalkd_py.core.connections import origin_of
from beanstalkd_py.core.placement import shard_of
from beanstalkd_py.quantities import NS_PER_S
from beanstalkd_py.server.accept.first_command import PEEK_BYTES, Hint, tube_of_first_command
from beanstalkd_py.server.accept.handover import Handover
from beanstalkd_py.server.accept.routed_connections import RoutedConnections, Spawn
from beanstalkd_py.server.accept.unrouted_connections import UnroutedConnections
from beanstalkd_py.server.logging.setup import LOGGER, fields
from beanstalkd_py.server.options import ServeOptions


class Dispatcher:
    """Routes connections to several workers.

    `counters` is the parent's bs_counters, `capacity` the number of connections it can hold.
    """

    def __init__(
        self, workers: int, colocate: bytes | None, counters: Any, capacity: int, spawn: Spawn
    ) -> None:
        self._colocate = colocate
        self._counters = counters
        self._capacity = max(1, capacity)
        self._routed = [RoutedConnections(n, spawn, self._on_passed) for n in range(workers)]
        self._unrouted = UnroutedConnections(self._on_data, self._on_timeout)
        self._tasks = [spawn(self._unrouted.run), spawn(self._unrouted.close_expired)]

    def attach(self, worker: int, handover: Handover) -> None:
        """Hand queued and new connections to a worker that is ready."""
        self._routed[worker].attach(handover)

    def detach(self, worker: int) -> int | None:
        """Return how many connections an ended worker was sent; None if it never was ready."""
        return self._routed[worker].detach()

    def close(self) -> None:
        gevent.killall(self._tasks)
        self._unrouted.close()
        for routed in self._routed:
            routed.close()
        self._counters.closed_connections += self._counters.connections
        self._counters.connections = 0

    def set_timeouts(self, options: ServeOptions) -> None:
        idle_ns, send_ns = options.idle_timeout_ns, options.send_timeout_ns
        self._unrouted.set_timeouts(idle_ns / NS_PER_S, send_ns / NS_PER_S)

    def free_slots(self) -> int:
        return self._capacity - int(self._counters.connections)

    def send(self, fds: list[int]) -> None:
        self._counters.total_connections += len(fds)
        self._counters.connections += len(fds)
        for fd in fds:
            hint = _peek(fd, ended=False)
            if hint is not Hint.INCOMPLETE or not self._wait_for_data(fd):
                self._route(fd, hint)

    def _wait_for_data(self, fd: int) -> bool:
        try:
            self._unrouted.add(fd)
        except OSError:
            return False  # no epoll watch is left; a worker can wait for the data
        return True

    def _on_data(self, fd: int, ended: bool) -> None:
        hint = _peek(fd, ended)
        if hint is not Hint.INCOMPLETE:
            self._unrouted.remove(fd)
            self._route(fd, hint)

    def _route(self, fd: int, hint: bytes | Hint | None) -> None:
        if hint is None:
            if LOGGER.isEnabledFor(logging.INFO):
                origin = origin_of(fd)
                extra = fields(**{"event": "close", "from": origin, "commands": 0})
                LOGGER.info("close one from %s, which sent no data", origin, extra=extra)
            os.close(fd)
            self._count_closed(1)
        else:
            self._choose(hint).add(fd)

    def _on_timeout(self, count: int) -> None:
        self._counters.timed_out_connections += count
        self._count_closed(count)

    def _count_closed(self, count: int) -> None:
        self._counters.connections -= count
        self._counters.closed_connections += count

    def _choose(self, hint: bytes | Hint) -> RoutedConnections:
        if isinstance(hint, bytes):
            owner = self._routed[shard_of(hint, len(self._routed), self._colocate)]
            # Wait for an owner that restarts, because only the owner has the jobs. Do not wait for
            # a full owner, because every other worker can relay commands to it.
            if not owner.open or owner.free_slots() > 0:
                return owner
        return min(self._routed, key=_rank)

    def _on_passed(self, count: int) -> None:
        self._counters.connections -= count
        self._counters.moved_out += count


def _rank(routed: RoutedConnections) -> tuple[bool, bool, int]:
    return not routed.open, routed.free_slots() <= 0, routed.connection_count()


def _peek(fd: int, ended: bool) -> bytes | Hint | None:
    """Return the hint in the data received so far; None if the client left without any."""
    # With all arguments given, socket() makes no system call.
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
