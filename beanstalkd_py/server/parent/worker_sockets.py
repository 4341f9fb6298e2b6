"""Introduces workers to each other: a socket pair for every two, one end sent to each.

The parent keeps neither end, so a worker sees by the end of file that its peer has gone. Must not
know what they talk about.
"""

from __future__ import annotations

import socket

from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.launch import ChildProcess


def connect_all(workers: list[ChildProcess]) -> None:
    """Introduces every two of them, none of which has been introduced before. Raises OSError."""
    for index, one in enumerate(workers):
        for other in workers[:index]:
            ours, theirs = peer_socket_pair()
            send_peer_socket(one, other.index, ours)
            send_peer_socket(other, one.index, theirs)


def peer_socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends for two workers. Raises OSError."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send_peer_socket(worker: ChildProcess, peer: int, end: socket.socket) -> bool:
    """Gives a worker its end of the pair that it shares with `peer`, and closes it here.

    False when the worker has gone, or has not read its messages for too long. Raises OSError, when
    more descriptors are on their way than the system allows.
    """
    with end:
        return worker.channel.send_fd(end.fileno(), channel.PEER, peer)
