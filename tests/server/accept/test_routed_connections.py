"""The queue of connections for a worker that ends and restarts."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import gevent

from beanstalkd_py.core.shared_memory import new_shared
from beanstalkd_py.server.accept.handover import Handover
from beanstalkd_py.server.accept.routed_connections import RoutedConnections


def test_a_connection_during_the_end_of_a_worker_waits_for_the_next() -> None:
    shared = new_shared()
    counters = shared.worker[0]
    tasks: list[gevent.Greenlet[[], None]] = []

    def spawn(task: Callable[[], None]) -> gevent.Greenlet[[], None]:
        tasks.append(gevent.spawn(task))
        return tasks[-1]

    passed: list[int] = []
    routed = RoutedConnections(0, spawn, passed.append)
    ends = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    for one, _ in ends:
        one.setblocking(False)
    routed.attach(Handover(ends[0][0], counters, 10))
    gevent.sleep(0.01)  # the task waits for connections
    routed.add(os.open(os.devnull, os.O_RDONLY))
    assert routed.detach() == 0
    assert [task.exception for task in tasks] == [None]
    routed.attach(Handover(ends[1][0], counters, 10))
    gevent.sleep(0.01)
    assert passed == [1]
    assert ends[1][1].recv(10) == b"\0"
    routed.close()
    for pair in ends:
        for end in pair:
            end.close()
