"""Migration of a connection to the worker of its tube, which the client does not notice."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import eventually
from servers import Server, ours
from shards import TUBES, TWO, connect_at, worker_pids
from wire import Client

from beanstalkd_py.server.process.shared_memory import SharedMemory

WITHIN = 100
HERE, THERE = 0, 1
ESTABLISHED = "01"
SEVERAL = 4
# A worker reserves 64 descriptors for itself and 64 for the parent's next batch.
FEW_DESCRIPTORS = 300
MORE_THAN_FIT = 240


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with ours(*TWO) as running:
        yield running


def inode_of(server: Server, client: Client) -> str:
    """Return the inode of the socket at the server's end."""
    ends = f":{server.port:04X}", f":{client.port:04X}", ESTABLISHED
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if all(field.endswith(end) for field, end in zip(fields[1:4], ends, strict=True)):
            return fields[9]
    raise AssertionError("the server has closed the connection")


def has_socket(pid: int, inode: str) -> bool:
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(fd) == f"socket:[{inode}]":  # noqa: PTH115
                return True
        except FileNotFoundError:
            continue  # closed in between
    return False


def worker_of(server: Server, client: Client) -> int | None:
    """Return the worker that has the connection; None in transit."""
    inode = inode_of(server, client)
    having = [worker for worker, pid in enumerate(worker_pids(server)) if has_socket(pid, inode)]
    return having[0] if len(having) == 1 else None


def is_at(server: Server, client: Client, worker: int) -> bool:
    return eventually(lambda: worker_of(server, client) == worker)


PUT = (b"put 0 0 100 1\r\nx\r\n", b"INSERTED")
LOOK = (b"peek-ready\r\n", b"FOUND")
TUBE_STATS = (b"stats-tube %b\r\n" % TUBES[THERE], b"OK")


@pytest.mark.parametrize(("command", "reply"), [PUT, LOOK, TUBE_STATS])
def test_a_connection_migrates_within_a_hundred_commands(
    server: Server, command: bytes, reply: bytes
) -> None:
    with connect_at(server, HERE) as client:
        assert is_at(server, client, HERE)
        assert client.ask(b"use %b\r\n" % TUBES[THERE]).startswith(b"USING")
        client.put()
        for _ in range(WITHIN):
            assert client.ask(command).startswith(reply)
        assert is_at(server, client, THERE)
        for _ in range(WITHIN):
            assert client.ask(command).startswith(reply)
        assert is_at(server, client, THERE)
        assert client.ask(b"list-tube-used\r\n") == b"USING %b\r\n" % TUBES[THERE]


def test_the_options_of_the_next_put_migrate(server: Server) -> None:
    options = b"with delay-ms=90000 unique=of-migration\r\n"
    with connect_at(server, HERE) as client:
        # All are sent before the first reply, so the options are set when the last one comes.
        client.send(b"use %b\r\n" % TUBES[THERE] + PUT[0] * 40 + options)
        assert client.replies(42)[-1] == b"WITH\r\n"
        assert is_at(server, client, THERE)
        job = int(client.ask(PUT[0]).split()[1])
        assert client.job_stats(job)["state"] == "delayed"
        assert client.ask(options) == b"WITH\r\n"
        assert client.ask(PUT[0]) == b"INSERTED %d\r\n" % job


def test_a_consumer_migrates_between_two_workers(server: Server) -> None:
    tube = TUBES[THERE]
    with connect_at(server, HERE) as client, connect_at(server, THERE) as producer:
        producer.ask(b"use %b\r\n" % tube)
        client.send(b"watch %b\r\nignore default\r\n" % tube)
        assert client.replies(2) == [b"WATCHING 2\r\n", b"WATCHING 1\r\n"]
        for _ in range(WITHIN // 2):
            producer.put()
            assert client.ask(b"delete %d\r\n" % client.reserve()) == b"DELETED\r\n"
        assert is_at(server, client, THERE)
        assert client.ask(b"list-tubes-watched\r\n") == b"OK %d\r\n---\n- %b\n\r\n" % (
            len(tube) + 7,
            tube,
        )


@pytest.mark.parametrize("holding", [HERE, THERE])
def test_no_migration_while_a_job_is_reserved(server: Server, holding: int) -> None:
    with connect_at(server, HERE) as client:
        client.send(b"use %b\r\nwatch %b\r\n" % (TUBES[holding], TUBES[holding]))
        client.replies(2)
        job = client.put(b"held", pri=0)
        assert client.ask(b"reserve-job %d\r\n" % job) == b"RESERVED %d 4\r\nheld\r\n" % job
        client.ask(b"use %b\r\n" % TUBES[THERE])
        client.put()
        for _ in range(3 * WITHIN):
            assert client.ask(LOOK[0]).startswith(LOOK[1])
            assert client.ask(PUT[0]).startswith(PUT[1])
        assert is_at(server, client, HERE)
        assert client.ask(b"touch %d\r\n" % job) == b"TOUCHED\r\n"
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        for _ in range(WITHIN):
            assert client.ask(LOOK[0]).startswith(LOOK[1])
        assert is_at(server, client, THERE)


@pytest.mark.parametrize("cut", [1, 8, 14, 15, 20, 24, 25, 26])
def test_no_migration_within_a_put(server: Server, cut: int) -> None:
    """Wherever the put is cut, it arrives complete, like the following commands."""
    put = b"put 0 0 100 9\r\nin pieces\r\n"
    with connect_at(server, HERE) as client:
        client.send(b"use %b\r\n" % TUBES[THERE] + PUT[0] + LOOK[0] * 40 + put[:cut])
        assert client.reply() == b"USING %b\r\n" % TUBES[THERE]
        replies = client.replies(41)
        assert all(reply.startswith(b"FOUND") for reply in replies[1:])
        client.silent(0.02)
        client.send(put[cut:] + b"list-tube-used\r\n")
        job = int(client.reply().split()[1])
        assert client.reply() == b"USING %b\r\n" % TUBES[THERE]
        assert client.ask(b"peek %d\r\n" % job) == b"FOUND %d 9\r\nin pieces\r\n" % job
        for _ in range(WITHIN):
            assert client.ask(LOOK[0]).startswith(LOOK[1])
        assert is_at(server, client, THERE)


@pytest.mark.costly
def test_the_end_of_input_migrates_too(server: Server) -> None:
    with connect_at(server, HERE) as client:
        client.send(b"use %b\r\n" % TUBES[THERE] + PUT[0] * 200)
        client.half_close()
        text = client.read_to_end()
        assert text.count(b"INSERTED") == 200


# --- hundreds of commands in random pieces ------------------------------------------------------


def long_script(dice: random.Random) -> bytes:
    """Return commands of one client, mostly for the used tube, which changes sometimes."""
    data = b"".join(b"watch %b\r\n" % tube for tube in TUBES)
    jobs = 0
    for turn in range(24):
        data += b"use %b\r\n" % TUBES[turn % 2]
        for number in range(80):
            # Jobs of both tubes come last, because a migration needs many commands for one tube.
            kind = dice.randrange(12 if number > 60 else 9)
            if kind < 5:
                jobs += 1
                size = dice.choice([0, 3, 70, dice.randrange(3000)])
                ending = b"\r\n" if kind else b"no"
                data += b"put %d 0 1000 %d\r\n" % (dice.randrange(9), size)
                data += dice.randbytes(size) + ending
            elif kind < 9:
                data += dice.choice([b"peek-ready\r\n", b"peek-buried\r\n", b"kick 3\r\n"])
            else:
                some = dice.randrange(1, jobs + 2)
                data += dice.choice([b"peek %d\r\n", b"delete %d\r\n"]) % some
        data += dice.choice([b"list-tube-used\r\n", b"nosuch\r\n", b"x" * 300 + b"\r\n"])
        if turn % 3 == 2:
            data += b"reserve-with-timeout 0\r\n" * 3 + b"list-tubes-watched\r\n"
            data += b"".join(b"release %d 1 0\r\n" % job for job in range(1, jobs + 1))
    return data


def migrations(server: Server) -> int:
    """Return how often connections have moved, by the workers' counters."""
    for fd in Path(f"/proc/{server.pid}/fd").iterdir():
        if os.readlink(fd).startswith("/memfd:beanstalkd-py"):  # noqa: PTH115
            opened = os.open(fd, os.O_RDWR)
            try:
                shared = SharedMemory(opened)
            finally:
                os.close(opened)
            return sum(int(shared.counters(worker).moved_in) for worker in (HERE, THERE))
    raise AssertionError("the server shares no memory")


def send_in_pieces(client: Client, data: bytes, dice: random.Random) -> None:
    while data:
        size = dice.choice([1, 2, 7, 40, 300, 5000])
        client.send(data[:size])
        data = data[size:]
        if dice.random() < 0.3:
            time.sleep(dice.uniform(0, 0.003))


def read_all(client: Client, data: bytes, dice: random.Random) -> bytes:
    sender = threading.Thread(target=send_in_pieces, args=(client, data + b"quit\r\n", dice))
    sender.start()
    client.timeout_s = 30
    text = client.read_to_end()
    sender.join()
    return text


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_every_reply_to_a_long_pipeline_in_random_pieces(seed: int) -> None:
    """The replies equal those of a server with one worker."""
    data = long_script(random.Random(seed))
    with ours() as server, server.connect() as client:
        expected = read_all(client, data, random.Random(seed))
    with ours(*TWO) as server, connect_at(server, HERE) as client:
        found = read_all(client, data, random.Random(seed))
        assert migrations(server) >= SEVERAL
    different = [
        pair
        for pair in zip(
            re.split(rb"(?<=\r\n)", found), re.split(rb"(?<=\r\n)", expected), strict=False
        )
        if pair[0] != pair[1]
    ]
    assert not different, different[0]
    assert found == expected


@pytest.mark.slow
def test_a_worker_without_free_descriptors_adopts_no_connection() -> None:
    """Connections that cannot migrate stay and are served."""
    limits = {resource.RLIMIT_NOFILE: FEW_DESCRIPTORS}
    with ours(*TWO, limits=limits) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect_at(server, n % 2)) for n in range(MORE_THAN_FIT)]
        for client in clients:
            assert client.ask(b"use %b\r\n" % TUBES[0]) == b"USING %b\r\n" % TUBES[0]
            for _ in range(50):
                assert client.ask(b"peek-ready\r\n") == b"NOT_FOUND\r\n"
        for client in clients:
            assert client.put() > 0
        assert server.complaints() == ""
        held = [len([*Path(f"/proc/{pid}/fd").iterdir()]) for pid in worker_pids(server)]
        assert MORE_THAN_FIT / 2 + 32 < held[0] < FEW_DESCRIPTORS - 32
