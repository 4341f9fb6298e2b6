"""Rings in shared memory beside the sockets between workers."""

from __future__ import annotations

import mmap
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from core.workers.cluster import Cluster
from core.workers.played_worker import (
    HERE,
    HOME,
    MESSAGE_BYTES,
    OFFERS,
    PUT,
    THEM,
    C,
    Other,
    packed,
)
from core.workers.sanitized_threads import run_threads

WRITTEN_AT = 128
"""Offset in a ring of the number of bytes that were written."""
BYTES_AT = 256
TO_RING = packed((C.TO_RING, 0, b""))


def rings_of_this_process() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:beanstalkd-ring")


@pytest.mark.slow
def test_messages_are_in_order_and_none_is_lost(tmp_path: Path) -> None:
    """Small and large ones, and with descriptors; a worker that sleeps is woken for each."""
    links = ("message_ring.c", "worker_link.c", "outbox.c")
    base = ("alloc.c", "bytes.c", "ring.c")
    sources = [*(f"links/{name}" for name in links), *(f"base/{name}" for name in base)]
    run_threads(tmp_path, "worker_links.c", *sources)


def test_each_worker_maps_two_rings_for_each_other_one() -> None:
    before = rings_of_this_process()
    with Cluster(3) as cluster:
        cluster.settle()
        assert rings_of_this_process() - before == 3 * 2 * 2
        cluster.kill(1)
        cluster.settle()
        assert rings_of_this_process() - before == 2 * 2
    assert rings_of_this_process() == before


class RingWriter:
    """The side of a played worker that writes to the ring of a real one."""

    def __init__(self, other: Other) -> None:
        self.other = other
        _, doorbells, _, _ = socket.recv_fds(other.socket, MESSAGE_BYTES, 1)
        _, rings, _, _ = socket.recv_fds(other.socket, MESSAGE_BYTES, 1)
        self.ring = mmap.mmap(rings[0], os.fstat(rings[0]).st_size)
        self.written = self.ticket = 0
        for fd in (*doorbells, *rings):
            os.close(fd)

    def put(self, message: bytes, length: int | None = None) -> None:
        """Write a message of less than a ring, whose length may be stated wrongly."""
        self.ticket += 1
        header = struct.pack("=QQ", self.ticket, len(message) if length is None else length)
        start = BYTES_AT + self.written
        self.ring[start : start + len(header) + len(message)] = header + message
        self.written += len(header) + (len(message) + 15) // 16 * 16
        self.ring[WRITTEN_AT : WRITTEN_AT + 8] = struct.pack("=Q", self.written)


@pytest.fixture
def writer() -> Iterator[RingWriter]:
    other = Other()
    other.run()
    writer = RingWriter(other)
    yield writer
    writer.ring.close()
    other.close()


def test_a_ring_is_read_after_to_ring(writer: RingWriter) -> None:
    other = writer.other
    writer.put(packed((C.FEED, HOME, PUT % HERE)))
    other.run()
    assert other.frames() == []
    other.send_bytes(TO_RING)
    assert other.frames() == [(C.OUTPUT, HOME, b"INSERTED 1\r\n")]


def test_an_empty_message_stands_for_one_in_the_socket(writer: RingWriter) -> None:
    other = writer.other
    other.send_bytes(TO_RING)
    writer.put(b"")
    writer.put(packed((C.FEED, HOME, b"reserve-job 1\r\n")))
    other.run()
    assert other.frames() == []
    other.send((C.FEED, HOME, PUT % HERE))
    assert other.frames() == [(C.OUTPUT, HOME, b"INSERTED 1\r\nRESERVED 1 1\r\nx\r\n")]


@pytest.mark.parametrize("length", [100, 16 * 1024 + 1, 2**32 - 1])
def test_a_damaged_ring_ends_the_process(writer: RingWriter, length: int) -> None:
    writer.other.send_bytes(TO_RING)
    writer.put(b"x" * 16, length)
    with pytest.raises(ValueError, match=f"worker {THEM}"):
        writer.other.run()


def test_without_their_descriptors_offers_are_ignored(writer: RingWriter) -> None:
    """The kernel drops descriptors of a process that has too many."""
    other = writer.other
    for kind in OFFERS:
        other.send_bytes(packed((kind, 1, b"")))
    other.send((C.FEED, HOME, PUT % HERE))
    assert other.frames() == [(C.OUTPUT, HOME, b"INSERTED 1\r\n")]


def test_a_piece_of_a_large_frame_is_no_offer(writer: RingWriter) -> None:
    """Although it has the size of one, and its bytes."""
    other = writer.other
    piece = packed((C.RING, 0, b""))
    frame = packed((C.FEED, HOME, b"\x01%b 1 put 0 0 9 18\r\nxx" % HERE + piece + b"\r\n"))
    other.send_bytes(frame[: -len(piece) - 2])
    other.send_bytes(piece)
    other.send_bytes(b"\r\n")
    assert other.frames() == [(C.OUTPUT, HOME, b"INSERTED 1\r\n")]


def test_messages_before_the_death_of_a_worker_are_read(writer: RingWriter) -> None:
    other = writer.other
    other.send_bytes(TO_RING)
    writer.put(packed((C.FEED, HOME, PUT % HERE)))
    other.socket.close()
    other.run()
    client = other.core.open()
    other.core.feed(client, b"peek 1\r\n")
    other.run()
    assert other.core.output(client).startswith(b"FOUND 1 ")


@pytest.mark.parametrize("first", [0, 1])
def test_a_busy_worker_reads_messages_in_the_order_of_their_causes(first: int) -> None:
    """The client reads the reply to its first put before it sends the second to another worker."""
    home = 2
    with Cluster(3) as cluster:
        tubes = [cluster.tube_on(shard) for shard in range(2)]
        waiter = cluster.client(home)
        waiter.ask(b"watch %b\r\nwatch %b\r\n" % (tubes[0], tubes[1]))
        putters = [cluster.client(shard) for shard in range(2)]
        waiter.send(b"reserve\r\n")
        for shard in (first, 1 - first):
            putters[shard].core.feed(
                putters[shard].session, b"use %b\r\nput 0 0 9 1\r\nx\r\n" % tubes[shard]
            )
            for _ in range(20):
                cluster.turn(shard)
            assert putters[shard].read().endswith(b"INSERTED %d\r\n" % (2 - (shard == first)))
        cluster.settle()
        assert waiter.read().startswith(b"RESERVED 1 ")
