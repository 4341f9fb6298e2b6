"""A core as one of two workers; the test plays the other one by the frames of their link."""

from __future__ import annotations

import enum
import socket
import struct
from collections.abc import Iterator
from typing import Any

import msgpack

from beanstalkd_py.core._core import lib
from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.events import EventKind
from beanstalkd_py.core.placement import shard_of
from beanstalkd_py.core.shared_memory import new_shared
from beanstalkd_py.server.worker.upcalls import Frame, UpcallHandler

MESSAGE_BYTES = 1 << 16
FRAME_BYTES = 48 * 1024
HOME = 7 << 32 | 1
SO_TIMESTAMPNS = 35  # not in the module socket
PUT = b"\x01%b 1 put 0 0 9 1\r\nx\r\n"


US = shard_of(b"default", 2)
THEM = 1 - US
NAMES = [b"tube-%d" % i for i in range(10)]
HERE = next(name for name in NAMES if shard_of(name, 2) == US)
THERE = next(name for name in NAMES if shard_of(name, 2) == THEM)


class C(enum.IntEnum):
    """The frames that the core executes: BS_FRAME_ of csrc/api/server.h."""

    PYTHON = lib.BS_FRAME_PYTHON
    FEED = lib.BS_FRAME_FEED
    CLOSE = lib.BS_FRAME_CLOSE
    OUTPUT = lib.BS_FRAME_OUTPUT
    ENDED = lib.BS_FRAME_ENDED
    COUNT = lib.BS_FRAME_COUNT
    CENSUS = lib.BS_FRAME_CENSUS
    SYNC = lib.BS_FRAME_SYNC
    SYNCED = lib.BS_FRAME_SYNCED
    ARRIVED = lib.BS_FRAME_ARRIVED
    PUBLISHED = lib.BS_FRAME_PUBLISHED
    HEAD = lib.BS_FRAME_HEAD
    CLAIM = lib.BS_FRAME_CLAIM
    WAIT = lib.BS_FRAME_WAIT
    TAKE = lib.BS_FRAME_TAKE
    CANCEL = lib.BS_FRAME_CANCEL
    RESERVE = lib.BS_FRAME_RESERVE
    HEAD_IS = lib.BS_FRAME_HEAD_IS
    LOST = lib.BS_FRAME_LOST
    WAITED = lib.BS_FRAME_WAITED
    CANCELLED = lib.BS_FRAME_CANCELLED
    AWAIT = lib.BS_FRAME_AWAIT
    AWAITED = lib.BS_FRAME_AWAITED
    DOORBELL = lib.BS_FRAME_DOORBELL
    RING = lib.BS_FRAME_RING
    TO_RING = lib.BS_FRAME_TO_RING


OFFERS = (C.DOORBELL, C.RING)
"""The first frames of a worker. A played worker does not accept, so it gets all by its socket."""


HEADER = struct.Struct("=IIQ")
CoreFrame = tuple[C, int, bytes]
"""The kind, the number and the content."""


def packed(frame: CoreFrame | Frame) -> bytes:
    """The bytes of a frame: a tuple for the core, a list for Python."""
    kind, number, content = frame if isinstance(frame, tuple) else (C.PYTHON, 0, pack(frame))
    return HEADER.pack(len(content), kind, number) + content


def pack(frame: Frame) -> bytes:
    data: bytes = msgpack.packb(frame)
    return data


def count(name: bytes, users: int, watchers: int, holds: int, number: int) -> CoreFrame:
    return C.COUNT, number, struct.pack("=IIIBxxx", users, watchers, holds, 0) + name


def step(kind: C, session: int, token: int, argument: int = 0) -> CoreFrame:
    """A frame of a multi-shard reserve: bs_reserve_step."""
    return kind, session, struct.pack("=QQ", token, argument)


def head_is(session: int, token: int, job: int) -> CoreFrame:
    """The head of a shard that has this job of priority 0, or none: bs_head_is."""
    return C.HEAD_IS, session, struct.pack("=QQII?7x", token, job, 0, 0, False)


class Unpacker:
    """Frames from bytes that arrive in any pieces."""

    def __init__(self) -> None:
        self.data = b""

    def feed(self, data: bytes) -> Iterator[CoreFrame | Frame]:
        self.data += data
        while len(self.data) >= HEADER.size:
            length, kind, number = HEADER.unpack_from(self.data)
            end = HEADER.size + length
            if len(self.data) < end:
                break
            content, self.data = self.data[HEADER.size : end], self.data[end:]
            yield msgpack.unpackb(content) if kind == C.PYTHON else (C(kind), number, content)


class Other:
    """One of two workers, played by the test; the other one is real, and has the tube `default`."""

    def __init__(self, **options: Any) -> None:
        """`options` are those of CoreConfig."""
        self.shared = new_shared()
        self.shared.workers = 2
        config = CoreConfig(worker=US, workers=2, max_job_size=1 << 24, **options)
        self.core = Core(config, self.shared)
        self.core.recover()
        self.router = UpcallHandler(self.core, 2)
        self.unpacker = Unpacker()
        self.log: list[str] = []
        self.connect()

    def connect(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)
        self.router.add_peer(THEM, theirs.detach())

    def run(self) -> None:
        while self.core.run(0, linger=False):
            self.router.handle_all()
            self.log += [event.text for event in self.core.events() if event.kind == EventKind.LOG]
        self.router.handle_all()
        self.core.run(0, linger=False)

    def send(self, *frames: CoreFrame | Frame) -> None:
        """In one message."""
        self.send_bytes(b"".join(map(packed, frames)))

    def send_bytes(self, data: bytes) -> None:
        self.socket.send(data)
        self.run()

    def messages(self) -> Iterator[bytes]:
        while True:
            try:
                message = self.socket.recv(2 * MESSAGE_BYTES)
            except BlockingIOError:
                return
            yield message
            self.run()

    def frames(self) -> list[Any]:
        """Return the frames that have arrived. Answers SYNC; omits CENSUS and OFFERS."""
        frames = []
        for message in self.messages():
            assert len(message) <= MESSAGE_BYTES
            for frame in self.unpacker.feed(message):
                if isinstance(frame, list):
                    frames.append(frame)
                elif frame[0] == C.SYNC:
                    self.send((C.SYNCED, frame[1], b""))
                elif frame[0] not in (C.CENSUS, *OFFERS):
                    frames.append(frame)
        return frames

    def close(self) -> None:
        self.core.close()
        self.socket.close()
