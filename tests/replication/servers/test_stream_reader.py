"""Reading a stream: batches of small and large messages, slow answers, a lost consumer, a purge."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from nats.aio.client import Client
from nats.errors import Error
from replication.servers.nats_cluster import NatsCluster

from beanstalkd_py.replication import stream_reader
from beanstalkd_py.replication.folder_copy import CopyState
from beanstalkd_py.replication.log import Log, LogOptions, LogUnavailableError
from beanstalkd_py.replication.piece import MOST_BYTES, Piece
from beanstalkd_py.replication.stream_reader import READ_BYTES, READ_MESSAGES, StreamReader
from beanstalkd_py.replication.target import Target, parse_target

pytestmark = pytest.mark.costly
SIZES = [100] * (READ_MESSAGES + 500) + [MOST_BYTES] * 80 + [100] * 50
APPENDED = 50


async def appended(log: Log) -> list[Piece]:
    """Append messages that are more than a read in number and in bytes."""
    await log.create(1)
    pieces: list[Piece] = []
    offset = 0
    for number, size in enumerate(SIZES):
        data = number.to_bytes(4, "big") * (size // 4)
        pieces.append(Piece(1, int(number == 0), 1, offset, data))
        offset += len(data)
    for begin in range(0, len(pieces), APPENDED):
        await log.append(0, pieces[begin : begin + APPENDED], begin)
    return pieces


@contextlib.asynccontextmanager
async def opened(target: Target) -> AsyncIterator[tuple[Log, Client]]:
    log = await Log.connect(target, LogOptions(replicas=1))  # none of which lags
    client = Client()
    await client.connect(list(target.servers))
    try:
        yield log, client
    finally:
        await log.close()
        await client.close()


async def read_rest(log: Log, state: CopyState) -> list[int]:
    """Read up to the last message; return how many messages each read has returned."""
    counts = []
    while state.sequence < len(SIZES):
        found = await log.read(0, state.sequence, len(SIZES), state)
        assert sum(len(piece.data) for _, piece in found) <= READ_BYTES
        for sequence, piece in found:
            assert sequence == state.sequence + 1
            state.add(piece, sequence)
        counts.append(len(found))
    return counts


def test_small_messages_are_read_many_at_once_and_large_ones_few(nats: NatsCluster) -> None:
    async def check() -> None:
        async with opened(parse_target(f"{nats.url}/sizes")) as (log, _):
            pieces = await appended(log)
            state = CopyState()
            counts = await read_rest(log, state)
            assert counts[0] == READ_MESSAGES
            # The second read has the rest of the small messages, and large ones up to its bytes.
            assert len(counts) <= 6, counts
            assert state.position == pieces[-1].end

    asyncio.run(check())


def test_a_lost_consumer_and_a_purge_are_no_end_of_the_stream(nats: NatsCluster) -> None:
    async def check() -> None:
        target = parse_target(f"{nats.url}/lost")
        async with opened(target) as (log, client):
            jetstream = client.jetstream()
            await appended(log)
            state = CopyState()
            for sequence, piece in await log.read(0, 0, 20, state):
                state.add(piece, sequence)
            (consumer,) = await jetstream.consumers_info(target.stream(0))
            await jetstream.delete_consumer(target.stream(0), consumer.name)
            with pytest.raises(LogUnavailableError, match="a consumer sends nothing"):
                await log.read(0, 20, len(SIZES), state)
            await log.purge(0, 31)
            with pytest.raises(LogUnavailableError, match="lost its place"):
                await log.read(0, 20, len(SIZES), state)
            for sequence, size in enumerate(SIZES[20:30], 21):
                state.add(Piece(1, 0, 1, state.position.offset, bytes(size)), sequence)
            await read_rest(log, state)

    asyncio.run(check())


def test_a_removed_consumer_is_replaced_before_a_read(
    nats: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS removes the consumer of a queue without new messages."""
    monkeypatch.setattr(stream_reader, "CONSUMER_S", 1.0)

    async def check() -> None:
        target = parse_target(f"{nats.url}/idle")
        async with opened(target) as (log, client):
            await appended(log)
            state = CopyState()
            await read_rest(log, state)
            while await client.jetstream().consumers_info(target.stream(0)):
                await asyncio.sleep(0.1)
            await log.append(0, [Piece(1, 0, 1, state.position.offset, b"x")], len(SIZES))
            ((sequence, _),) = await log.read(0, len(SIZES), len(SIZES) + 1, state)
            assert sequence == len(SIZES) + 1

    asyncio.run(asyncio.wait_for(check(), 30))


def test_messages_that_arrive_late_arrive_once(nats: NatsCluster) -> None:
    """Reads end before all messages of a request have arrived."""

    async def check() -> None:
        target = parse_target(f"{nats.url}/late")
        async with opened(target) as (log, client):
            pieces = await appended(log)
            names = target.stream(0), target.subject(0)
            reader = await StreamReader.create(client, client.jetstream(), *names, 0)
            found: list[bytes] = []
            reads = 0
            while len(found) < len(SIZES):
                reads += 1
                await asyncio.sleep(0)
                with contextlib.suppress(Error):
                    arrived = await reader.read(len(SIZES) - len(found), 0.002)
                    found += [message.data for message in arrived]
                    assert reader.after == len(found)
            assert reads > 5
            assert found == [piece.encode() for piece in pieces]

    asyncio.run(asyncio.wait_for(check(), 30))
