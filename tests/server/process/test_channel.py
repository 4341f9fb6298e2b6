"""Messages between parent and child processes, and their descriptors."""

from __future__ import annotations

import os
import socket

from beanstalkd_py.server.process.channel import Channel, channel_pair


def channels() -> tuple[Channel, Channel]:
    one, other = channel_pair()
    return Channel(one), Channel(other)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_a_descriptor_comes_with_its_message() -> None:
    ours, theirs = channels()
    left, right = socket.socketpair()
    with left, right:
        assert ours.send("before")
        assert ours.send("peer", 7, fd=right.fileno())
        assert ours.send("after")
        assert theirs.receive_with_fd() == (["before"], None)
        message, fd = theirs.receive_with_fd()
        assert theirs.receive_with_fd() == (["after"], None)
        assert message == ["peer", 7]
        assert fd is not None
        assert not os.get_inheritable(fd)
        with socket.socket(fileno=fd) as copy:
            copy.send(b"x")
            assert left.recv(1) == b"x"
    ours.close()
    assert theirs.receive_with_fd() == (None, None)
    theirs.close()


def test_an_unwanted_descriptor_is_closed() -> None:
    ours, theirs = channels()
    before = open_descriptors()
    ours.send("peer", 1, fd=0)
    assert theirs.receive() == ["peer", 1]
    assert open_descriptors() == before
    ours.close()
    theirs.close()


def test_a_message_per_peer_fits_into_the_queue() -> None:
    """For the maximum number of peers, while the worker recovers."""
    ours, theirs = channels()
    ours.set_nonblocking()
    for peer in range(254):
        assert ours.send("peer", peer, fd=0)
    assert ours.send("ping")
    assert ours.send("stop")
    ours.close()
    theirs.close()


def test_a_full_nonblocking_channel_does_not_block() -> None:
    ours, theirs = channels()
    ours.set_nonblocking()
    assert not all(ours.send("ping") for _ in range(1_000_000))
    ours.close()
    theirs.close()


def test_a_closed_channel_refuses_messages() -> None:
    ours, theirs = channels()
    theirs.close()
    assert not ours.send("stop")
    ours.close()


def test_messages_of_a_peer_that_ended_with_unread_data_arrive() -> None:
    ours, theirs = channels()
    ours.send("never read")
    theirs.send("failed", 10, "why")
    theirs.close()
    assert ours.receive() == ["failed", 10, "why"]
    assert ours.receive() is None
    ours.close()
