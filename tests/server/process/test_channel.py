"""Messages between parent and worker, and descriptors that come along."""

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
        assert ours.send_fd(right.fileno(), "peer", 7)
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


def test_a_descriptor_that_nobody_asks_for_does_not_stay_open() -> None:
    ours, theirs = channels()
    before = open_descriptors()
    ours.send_fd(0, "peer", 1)
    assert theirs.receive() == ["peer", 1]
    assert open_descriptors() == before
    ours.close()
    theirs.close()


def test_a_message_about_each_peer_fits_unread() -> None:
    """As many as there can be, while the worker is busy with its binlog."""
    ours, theirs = channels()
    ours.set_nonblocking()
    for peer in range(254):
        assert ours.send_fd(0, "peer", peer)
    assert ours.send("ping")
    assert ours.send("stop")
    ours.close()
    theirs.close()


def test_a_full_channel_does_not_block_whoever_must_not_wait() -> None:
    ours, theirs = channels()
    ours.set_nonblocking()
    assert not all(ours.send("ping") for _ in range(1_000_000))
    ours.close()
    theirs.close()


def test_a_closed_channel_takes_nothing() -> None:
    ours, theirs = channels()
    theirs.close()
    assert not ours.send("stop")
    ours.close()


def test_last_words_of_a_side_that_has_not_read_everything_are_heard() -> None:
    ours, theirs = channels()
    ours.send("never read")
    theirs.send("failed", 10, "why")
    theirs.close()
    assert ours.receive() == ["failed", 10, "why"]
    assert ours.receive() is None
    ours.close()
