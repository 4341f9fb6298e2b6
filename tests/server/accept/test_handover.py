"""Passing connections to a process that reads slowly."""

from __future__ import annotations

import os
import socket

import gevent

from beanstalkd_py.core.shared_memory import new_shared
from beanstalkd_py.server.accept.handover import Handover

COUNT = 100
"""More than the socket holds."""


def test_several_senders_wait_for_one_full_socket() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = os.open(os.devnull, os.O_RDONLY)
    shared = new_shared()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the kernel's minimum
        ours.setblocking(False)
        handover = Handover(ours, shared.worker[0], 10 * COUNT)

        def send() -> None:
            for _ in range(COUNT):
                assert handover.pass_copies([fd])

        senders = [gevent.spawn(send) for _ in range(3)]
        gevent.sleep(0.01)
        for expected in range(1, 3 * COUNT + 1):
            assert handover.passed >= expected
            _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
            os.close(*fds)
            gevent.sleep(0.001)
        gevent.joinall(senders, timeout=5, raise_error=True)
        assert handover.passed == 3 * COUNT
        handover.close()
    os.close(fd)
