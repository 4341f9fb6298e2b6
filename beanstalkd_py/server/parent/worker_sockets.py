"""Connects workers: a socket pair for every two, one end sent to each.

The parent keeps neither end, so the end of one worker closes the link at the other.
"""

from __future__ import annotations

import socket

from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.launch import ChildProcess


def connect_all(workers: list[ChildProcess]) -> None:
    """Connect every two workers. Raises OSError."""
    for index, one in enumerate(workers):
        for other in workers[:index]:
            ours, theirs = peer_socket_pair()
            send_peer_socket(one, other.index, ours)
            send_peer_socket(other, one.index, theirs)


def peer_socket_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send_peer_socket(worker: ChildProcess, peer: int, end: socket.socket) -> bool:
    """Send a worker its end of the pair that it shares with `peer`, and close it here.

    Returns False if the worker is gone or does not read its channel. Raises OSError if too many
    descriptors are in flight.
    """
    with end:
        return worker.channel.send_fd(end.fileno(), channel.PEER, peer)
