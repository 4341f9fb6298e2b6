"""The core among simulated workers: frames received and sent on a worker link."""

from __future__ import annotations

import array
import os
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from core.workers.played_worker import (
    FRAME_BYTES,
    HEADER,
    HERE,
    HOME,
    MESSAGE_BYTES,
    OFFERS,
    PUT,
    SO_TIMESTAMPNS,
    THEM,
    THERE,
    US,
    C,
    Other,
    Unpacker,
    count,
    head_is,
    pack,
    packed,
    step,
)
from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.limits import Limits
from beanstalkd_py.core.placement import shard_of
from beanstalkd_py.core.shared_memory import new_shared
from beanstalkd_py.server.worker.upcalls import Kind, UpcallHandler


@pytest.fixture
def other() -> Iterator[Other]:
    made = Other()
    yield made
    made.close()


def test_a_command_and_its_reply(other: Other) -> None:
    other.send((C.FEED, HOME, PUT % HERE))
    assert other.frames() == [(C.OUTPUT, HOME, b"INSERTED 1\r\n")]


def test_frames_may_be_cut_anywhere(other: Other) -> None:
    """Also between those of the core and those of Python."""
    frames = [
        (C.FEED, HOME, b"\x02+%b\r\n" % HERE),
        step(C.HEAD, HOME, 1),
        [Kind.HELD_QUERY, HOME],
        (C.FEED, HOME, PUT % HERE),
        step(C.HEAD, HOME, 2),
        [Kind.HELD_QUERY, HOME],
        (C.CLOSE, HOME, b""),
    ]
    nothing = [Kind.HELD_REPLY, HOME, 0, True]
    replies = [head_is(HOME, 1, 0), nothing, head_is(HOME, 2, 1), nothing]
    data = b"".join(map(packed, frames))
    for cut in range(1, len(data)):
        other.send_bytes(data[:cut])
        other.send_bytes(data[cut:])
        got = other.frames()
        assert [frame for frame in got if frame in replies] == replies
        # The reply leaves at the end of the round, after immediate frames, or not at all.
        reported = [frame for frame in got if frame not in replies]
        assert reported in ([], [(C.OUTPUT, HOME, b"INSERTED 1\r\n")])
        other.send((C.FEED, HOME + 1, b"delete 1\r\n"))
        assert other.frames() == [(C.OUTPUT, HOME + 1, b"DELETED\r\n")]
    data += data
    for byte in data:
        other.send_bytes(bytes([byte]))
    assert [frame for frame in other.frames() if frame in replies][:4] == replies


def test_a_claim_counts_when_it_is_taken_and_not_before(other: Other) -> None:
    other.send((C.FEED, HOME, PUT % HERE + b"\x02+%b\r\n" % HERE))
    begin = time.monotonic_ns()
    in_queue = other.shared.worker[US].in_queue
    other.send(step(C.WAIT, HOME, 1), step(C.CANCEL, HOME, 1), step(C.WAIT, HOME, 2))
    assert sum(in_queue.count) == 0
    time.sleep(0.01)
    end = time.monotonic_ns()
    other.send(step(C.TAKE, HOME, 2))
    assert other.frames()[-1] == (C.OUTPUT, HOME, b"RESERVED 1 1\r\nx\r\n")
    assert sum(in_queue.count) == 1
    assert in_queue.sum >= end - begin


BATCH = b"BATCH 2\r\nJOB 7 t 3\r\na\r\n\r\nJOB 8 %b 0\r\n\r\n" % (b"n" * 200)


def reserve_batch(other: Other) -> tuple[socket.socket, int]:
    """Connect a client here that reserves a batch there; return its socket and its session."""
    client, theirs = socket.socketpair()
    client.setblocking(False)
    other.core.adopt(theirs.detach())
    client.sendall(b"watch %b\r\nignore default\r\n" % THERE)
    other.run()
    fed = [frame for frame in other.frames() if frame[0] == C.FEED]
    if fed:
        other.send((C.OUTPUT, fed[0][1], b"WATCHING 2\r\n"))
    assert client.recv(100) == b"WATCHING 2\r\nWATCHING 1\r\n"
    client.sendall(b"reserve-batch 2 9\r\nfeatures-\r\n")
    other.run()
    kind, session, argument = other.frames()[-1]
    assert (kind, session, argument) == step(C.RESERVE, session, 1, 2 << 32)
    return client, session


def test_a_timeout_at_the_moment_of_the_reply_does_not_end_the_next_reserve(other: Other) -> None:
    client, session = reserve_batch(other)
    other.send((C.OUTPUT, session, BATCH))
    client.recv(1000)
    client.sendall(b"reserve-with-timeout 1\r\nreserve-with-timeout 100\r\n")
    other.run()
    assert other.frames() == [step(C.RESERVE, session, 2)]
    time.sleep(1.05)
    reply = b"RESERVED 1 1\r\nx\r\n"
    other.send((C.OUTPUT, session, reply))  # the timeout is due in this round, too
    assert other.frames() == [step(C.RESERVE, session, 3)]
    assert client.recv(1000) == reply
    other.send((C.OUTPUT, session, reply))
    assert client.recv(1000) == reply
    client.sendall(b"list-tube-used\r\n")
    other.run()
    assert client.recv(1000) == b"USING default\r\n"
    client.close()


def test_a_worker_that_ends_fails_commands_behind_a_query_of_an_idle_client(other: Other) -> None:
    client, session = reserve_batch(other)
    other.send((C.OUTPUT, session, BATCH))
    client.sendall(b"use %b\r\n" % THERE)
    other.run()
    assert client.recv(1000).endswith(b"USING %b\r\n" % THERE)
    other.frames()
    other.core.limit(Limits(idle_timeout_ns=20_000_000))
    time.sleep(0.05)
    other.run()
    (query,) = other.frames()
    assert query[:2] == (C.FEED, session) and query[2].endswith(b"#\r\n")
    client.sendall(b"put 0 0 9 1\r\nx\r\n")
    other.run()
    assert [frame[:2] for frame in other.frames()] == [(C.FEED, session)]
    other.socket.close()
    other.run()
    assert client.recv(1000) == b"INTERNAL_ERROR\r\n"
    client.close()


def test_a_batch_is_relayed_in_any_pieces(other: Other) -> None:
    for cut in range(1, len(BATCH)):
        client, session = reserve_batch(other)
        other.send((C.OUTPUT, session, BATCH[:cut]))
        other.send((C.OUTPUT, session, BATCH[cut:]))
        assert client.recv(1000) == BATCH + b"BAD_FORMAT\r\n"
        client.close()
        other.run()
        assert (C.CLOSE, session, b"") in other.frames()


def test_a_worker_that_ends_within_a_batch_ends_the_connection(other: Other) -> None:
    """Unless nothing of the batch has left: then the reserve goes on at its successor."""
    for cut in range(1, len(BATCH)):
        client, session = reserve_batch(other)
        other.send((C.OUTPUT, session, BATCH[:cut]))
        other.socket.close()
        other.run()
        begun = BATCH.index(b"\n") < cut
        assert other.shared.worker[US].connections == (not begun), cut
        other.connect()
        if not begun:
            assert step(C.RESERVE, session, 1, 2 << 32) in other.frames()
        client.close()
        other.run()
        other.frames()


def test_a_frame_of_many_messages(other: Other) -> None:
    names = [[n, b"x" * 200] for n in range(2000)]
    client = other.core.open()
    other.core.feed(client, b"list-tubes\r\n")
    other.run()
    assert other.frames() == [[Kind.TUBES_QUERY, client]]  # after a barrier
    data = packed([Kind.TUBES_REPLY, client, names])
    for start in range(0, len(data), MESSAGE_BYTES):
        other.send_bytes(data[start : start + MESSAGE_BYTES])
    assert other.core.output(client).count(b"\n- x") == len(names)


def test_a_frame_of_python_may_have_many_messages(other: Other) -> None:
    tubes = [b"%b%d" % (b"x" * 190, n) for n in range(3000)]
    ours = [tube for tube in tubes if shard_of(tube, 2) == US]
    client = other.core.open()
    for tube in ours:
        other.core.feed(client, b"watch %b\r\n" % tube)
    other.core.output(client)
    other.send([Kind.TUBES_QUERY, HOME], (C.FEED, HOME, PUT % HERE))
    listed, put = other.frames()
    assert [name for _, name in listed[2]] == [b"default", *ours]
    assert put == (C.OUTPUT, HOME, b"INSERTED 1\r\n")


def test_bytes_of_a_session_go_in_pieces(other: Other) -> None:
    client = other.core.open()
    body = os.urandom(300_000)
    line = b"put 0 0 9 %d\r\n" % len(body)
    other.core.feed(client, b"use %b\r\n%b%b\r\n" % (THERE, line, body))
    other.run()
    counted, *fed = other.frames()
    assert counted[0] == C.COUNT and counted[2].endswith(THERE)
    assert all(frame[:2] == (C.FEED, client) for frame in fed)
    assert max(len(frame[2]) for frame in fed) <= FRAME_BYTES
    echo = b"\x03USING %b\r\n" % THERE
    sent = b"".join(frame[2] for frame in fed)
    assert sent == echo + b"\x01%b 1 %b%b\r\n" % (THERE, line, body)


def test_a_worker_that_does_not_read_stops_commands_for_it(other: Other) -> None:
    client = other.core.open()
    size, puts = 50_000, 400
    body = b"y" * size
    for _ in range(8):  # each may have a MiB under way
        session = other.core.open()
        other.core.feed(session, b"use %b\r\n" % THERE)
        for _ in range(puts // 8):
            other.core.feed(session, b"put 0 0 9 %d\r\n%b\r\n" % (size, body))
        other.run()
    sent = sum(len(frame[2]) for frame in other.frames() if frame[0] == C.FEED)
    assert size < sent < 8 * (1 << 20) + 3 * size * 8
    # The worker has read the kept commands, so new ones are sent.
    other.core.feed(client, b"use %b\r\nput 0 0 9 1\r\nx\r\n" % THERE)
    other.run()
    assert b"put 0 0 9 1\r\nx\r\n" in other.frames()[-1][2]


def test_a_busy_worker_gets_no_replies_until_it_reads(other: Other) -> None:
    """The output of proxies is kept, and then sent in order."""
    homes = range(HOME, HOME + 30)
    body = b"z" * 60_000
    other.send((C.FEED, HOME, b"\x01%b 1 put 0 0 9 %d\r\n" % (HERE, len(body))))
    for start in range(0, len(body), FRAME_BYTES):
        other.send((C.FEED, HOME, body[start : start + FRAME_BYTES]))
    other.send((C.FEED, HOME, b"\r\n"))
    assert other.frames() == [(C.OUTPUT, HOME, b"INSERTED 1\r\n")]
    for home in homes:
        other.send((C.FEED, home, b"peek 1\r\n" * 4 + b"delete 9\r\n"))
    got = dict.fromkeys(homes, b"")
    for kind, home, data in other.frames():
        assert kind == C.OUTPUT
        got[home] += data
    reply = (b"FOUND 1 60000\r\n" + body + b"\r\n") * 4 + b"NOT_FOUND\r\n"
    assert all(value == reply for value in got.values())


@pytest.mark.parametrize(
    "data",
    [
        packed([99, 1]),
        packed([Kind.HELD_QUERY]),
        packed((C.HEAD, HOME, bytes(15))),
        packed((C.HEAD_IS, HOME, bytes(31))),
        packed((C.PUBLISHED, 1, bytes(3))),
        packed((C.PUBLISHED, 1, bytes(4))),
        packed((C.FEED, 0, b"x")),
        packed((C.SYNC, 0, b"")),
        packed((C.COUNT, 1, bytes(15))),
        packed(count(b"-no name", 1, 1, 0, 1)),
        packed((C.CENSUS, 0, bytes(31))),
        packed((C.WAITED, HOME, bytes(8))),
        HEADER.pack(0, 99, HOME),
        HEADER.pack((1 << 30) + 1, C.FEED, HOME),
    ],
)
def test_invalid_frames_end_the_process(other: Other, data: bytes) -> None:
    with pytest.raises(ValueError, match=f"worker {THEM}"):
        other.send_bytes(data)


@given(data=st.binary(max_size=200), kind=st.sampled_from(C), number=st.integers(0, 3))
def test_content_that_is_not_expected(data: bytes, kind: C, number: int) -> None:
    """It is executed or rejected; in both cases nothing outside of it is read."""
    other = Other()
    try:
        other.send((kind, number, data))
    except (ValueError, TypeError, msgpack.UnpackException):
        pass
    finally:
        other.close()


def test_a_message_with_a_descriptor_has_one_frame(other: Other) -> None:
    frames = packed([Kind.HELD_QUERY, HOME]) * 2
    reader, writer = os.pipe()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [writer]))]
    other.socket.sendmsg([frames], rights)
    os.close(writer)
    with pytest.raises(ValueError, match=f"worker {THEM}"):
        other.run()
    assert os.read(reader, 1) == b""  # the other end is closed
    os.close(reader)


def test_a_descriptor_is_sent_alone_and_in_order(other: Other) -> None:
    frames = [[Kind.TUBES_QUERY, HOME + n] for n in range(3)]
    other.frames()
    reader, writer = os.pipe()
    for frame, fd in zip(frames, [-1, writer, -1], strict=True):
        other.core.send(THEM, pack(frame), fd=fd)
    other.core.flush()
    came = [socket.recv_fds(other.socket, MESSAGE_BYTES, 1)[:2] for _ in frames]
    assert [data for data, _ in came] == [packed(frame) for frame in frames]
    assert [len(fds) for _, fds in came] == [0, 1, 0]
    os.close(came[1][1][0])
    assert os.read(reader, 1) == b""  # the core has closed its own
    os.close(reader)


def test_descriptors_that_have_not_left_are_closed_with_their_worker(other: Other) -> None:
    full = pack([Kind.TUBES_REPLY, 1, b"x" * 10_000_000])
    other.core.send(THEM, full)
    reader, writer = os.pipe()
    other.core.send(THEM, pack([Kind.TUBES_QUERY, HOME]), fd=writer)
    other.run()
    other.socket.close()
    other.run()
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_nothing_is_sent_for_a_session_that_has_ended(other: Other) -> None:
    client = other.core.open()
    other.core.end(client)
    other.run()
    other.frames()
    other.core.send(THEM, pack([Kind.HELD_QUERY, client]), session=client)
    other.core.flush()
    assert other.frames() == []


def test_a_closed_worker_is_lost_once(other: Other) -> None:
    other.send(count(HERE, 1, 1, 0, 1), (C.FEED, HOME, PUT % HERE))
    other.send((C.FEED, HOME, b"reserve-job 1\r\n"))
    other.socket.close()
    other.run()
    client = other.core.open()
    other.core.feed(client, b"stats-tube %b\r\n" % HERE)
    stats = other.core.output(client)
    assert b"current-using: 0\ncurrent-watching: 0" in stats
    assert b"current-jobs-ready: 1" in stats
    other.core.feed(client, b"stats-tube %b\r\n" % THERE)
    assert other.core.output(client) == b"INTERNAL_ERROR\r\n"
    other.connect()
    other.send((C.FEED, HOME, b"delete 1\r\n"))
    assert other.frames() == [(C.OUTPUT, HOME, b"DELETED\r\n")]


def test_frames_for_a_lost_worker_do_not_reach_its_successor(other: Other) -> None:
    client = other.core.open()
    other.core.feed(client, b"use %b\r\nput 0 0 9 1\r\nx\r\n" % THERE)
    other.socket.close()
    other.connect()
    other.run()
    assert [frame[0] for frame in other.frames()] == [C.COUNT]
    assert other.core.output(client).endswith(b"INTERNAL_ERROR\r\n")


def test_the_end_of_a_session_is_reported_where_it_was_known(other: Other) -> None:
    client, silent = other.core.open(), other.core.open()
    other.core.feed(client, b"stats-tube %b\r\n" % THERE)
    other.run()
    assert other.frames() == [(C.FEED, client, b"stats-tube %b\r\n" % THERE)]
    other.core.end(client)
    other.core.end(silent)
    other.run()
    assert other.frames() == [(C.CLOSE, client, b"")]


@given(
    steps=st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 17, 33, 1000]), st.booleans()),
        max_size=200,
    )
)
def test_every_session_has_its_own_proxy_until_it_ends(
    steps: list[tuple[int, int, bool]],
) -> None:
    other = Other()
    proxies: dict[int, int] = {}
    for serial, slot, ends in steps:
        home = serial << 32 | slot
        if ends:
            other.send((C.CLOSE, home, b""))
            proxies.pop(home, None)
        else:
            proxies.setdefault(home, other.core.proxy(THEM, home))
    assert {home: other.core.proxy(THEM, home) for home in proxies} == proxies
    assert len(set(proxies.values())) == len(proxies)
    other.core.close()
    other.socket.close()


def test_a_failed_proxy_ends_its_session_at_home(other: Other) -> None:
    client = other.core.open()
    other.core.feed(client, b"stats-tube %b\r\n" % THERE)
    other.run()
    other.send((C.OUTPUT, client, b"OK 3\r\n---"), (C.ENDED, client, b""))
    assert other.frames()[-1] == (C.CLOSE, client, b"")
    other.send((C.OUTPUT, client, b"late"), (C.ENDED, client, b""))  # on its way meanwhile


def test_a_waiter_gets_its_job_before_the_putter_gets_its_reply() -> None:
    """So a later put to another worker cannot be served first."""
    putter, us, waiter = 0, 1, 2
    name = next(b"tube-%d" % i for i in range(20) if shard_of(b"tube-%d" % i, 3) == us)
    shared = new_shared()
    shared.workers = 3
    core = Core(CoreConfig(worker=us, workers=3, max_job_size=1 << 24), shared)
    router = UpcallHandler(core, 3)
    sockets = {}
    for shard in (putter, waiter):
        sockets[shard], theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sockets[shard].setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        router.add_peer(shard, theirs.detach())

    def run() -> None:
        while core.run(0, linger=False):
            router.handle_all()
        core.run(0, linger=False)

    run()
    for each in sockets.values():
        for kind in (*OFFERS, C.CENSUS):
            assert next(Unpacker().feed(each.recv(MESSAGE_BYTES)))[0] == kind
    sockets[waiter].send(
        packed((C.FEED, HOME, b"watch %b\r\n" % name)) + packed(step(C.WAIT, HOME, 5))
    )
    run()
    sockets[waiter].recv(MESSAGE_BYTES)
    sockets[putter].send(packed((C.FEED, HOME, PUT % name)))
    run()
    sent_at, reported = received(sockets[waiter])
    replied_at, reply = received(sockets[putter])
    assert reported[:2] == (C.WAITED, HOME) and reply[:2] == (C.OUTPUT, HOME)
    assert sent_at < replied_at
    core.close()
    for each in sockets.values():
        each.close()


def received(peer: socket.socket) -> tuple[int, Any]:
    """When the message was sent, nanoseconds, and its first frame."""
    data, ancillary, _, _ = peer.recvmsg(MESSAGE_BYTES, 64)
    seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
    return seconds * 10**9 + nanoseconds, next(Unpacker().feed(data))
