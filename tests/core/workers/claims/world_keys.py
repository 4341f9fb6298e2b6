"""Keys of the worlds of world.py: equal for worlds with the same future.

Serials, tokens and numbers of claims rise for ever, and are only compared with each other. So a key
has their ranks among those that are still in use. It omits what nobody reads before it is set
again: what a client that is gone or has its reply noted for its last reserve.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from beanstalkd_py.core.clocks import NEVER

if TYPE_CHECKING:
    from core.workers.claims.world import Client, Frame, Shard, World

WITHOUT_TOKEN = frozenset({"ended", "close", "output", "decided", "asks"})

Ranks = list[dict[int, int]]
"""The rank of each token of each client."""


def key_of(world: World) -> Hashable:
    """Return the key of this world."""
    ranks = _ranks(world)
    return (
        tuple([_shard_key(shard, ranks) for shard in world.shards]),
        tuple([_client_key(world, n, ranks[n]) for n in range(len(world.clients))]),
        len(world.puts),
        tuple(world.mishaps.values()),
        world.time,
        tuple(map(tuple, world.up)),
        frozenset(world.broken),
        tuple([_frames_key(frames, ranks) for frames in world.channels.values()]),
        tuple(map(tuple, world.outgoing)),
        tuple([_frames_key(frames, ranks) for frames in world.upcalls]),
    )


def _ranks(world: World) -> Ranks:
    tokens = [{client.reserve.token} for client in world.clients]
    for frames in (*world.channels.values(), *world.upcalls):
        for frame in frames:
            if frame[0] not in WITHOUT_TOKEN:
                tokens[frame[1]].add(frame[2])
    for shard in world.shards:
        for client, claim in shard.claimed.items():
            tokens[client].add(claim.token)
        for client, token, _ in shard.waiting:
            tokens[client].add(token)
        for client, request in shard.deferred.items():
            tokens[client].add(request[1])
    return [{token: rank for rank, token in enumerate(sorted(used))} for used in tokens]


def _frames_key(frames: Iterable[Frame], ranks: Ranks) -> Hashable:
    return tuple(
        [
            frame
            if frame[0] in WITHOUT_TOKEN
            else (frame[0], frame[1], ranks[frame[1]][frame[2]], *frame[3:])
            for frame in frames
        ]
    )


def _shard_key(shard: Shard, ranks: Ranks) -> Hashable:
    numbers = sorted([claim.number for claim in shard.claimed.values()])
    return (
        tuple(shard.ready),
        tuple(sorted(shard.reserved.items())),
        tuple(
            [
                (bisect_right(numbers, claim.number), client, ranks[client][claim.token], claim.job)
                for client, claim in sorted(shard.claimed.items())
            ]
        ),
        tuple([(bisect_right(numbers, last), waiter) for last, waiter in shard.waiters]),
        tuple(
            [
                (client, kind, ranks[client][token], *rest)
                for client, (kind, token, *rest) in sorted(shard.deferred.items())
            ]
        ),
        tuple([(client, ranks[client][token], kind) for client, token, kind in shard.waiting]),
        frozenset(shard.soon),
    )


def _client_key(world: World, n: int, ranks: dict[int, int]) -> Hashable:
    client = world.clients[n]
    if client.gone:
        return None
    return (
        len(client.plan),
        frozenset(client.held),
        bool(world.mishaps.get("leave")) and frozenset(client.spoken),
        client.expected,
        client.known == client.serial,
        ranks[client.reserve.token],
        client.reserve.state_without_token(),
        client.asking and _notes_key(world, client),
    )


def _notes_key(world: World, client: Client) -> Hashable:
    """What decides whether a request or a reply is correct."""
    return (
        client.polls,
        client.was_soon,
        client.until != NEVER and client.watched & client.seen_empty,
        tuple(
            [
                (n, claimant)
                for n, numbers in sorted(client.pending_claims.items())
                for claimant, claim in sorted(world.shards[n].claimed.items())
                if claim.number in numbers
            ]
        ),
        tuple(sorted(client.heads.items())),
    )
