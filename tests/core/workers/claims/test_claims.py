"""Reserves over several shards, in every order in which messages can meet.

world.py asserts that a reserve has one reply, no job stays claimed for a client that is gone,
a client waits only while it cannot have a job, the best known head is claimed, and TIMED_OUT comes
neither too early, nor while a job was ready all the time, nor before all shards have no job.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.workers.claims.world import LATER, POLL, Event, Plan, World
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalkd_py.core.clocks import NEVER

BOTH = frozenset({0, 1})
ALL = frozenset({0, 1, 2})


Path = tuple[Event, ...]


def explore(plan: Plan, most: int = 1_000_000) -> int:
    """Explore all possible events; return the number of distinct worlds."""
    start = World(plan)
    seen = {start.key()}
    frontier: list[tuple[World, Path]] = [(start, ())]
    while frontier:
        world, path = frontier.pop()
        events = world.events()
        if not events:
            assert world.jobs() == world.last_job, f"a job is lost, or there twice, after {path}"
        for event in events:
            # Nobody needs this world any more after its last event.
            new = world if event is events[-1] else world.copy()
            new_path = (*path, event)
            try:
                new.do(event)
            except AssertionError as error:
                error.add_note(f"after {[*new_path]}")
                raise
            key = new.key()
            if key not in seen:
                seen.add(key)
                assert len(seen) <= most
                frontier.append((new, new_path))
    return len(seen)


PLANS = {
    "one client waits, two jobs come at once": Plan(
        2, [(0, BOTH, [NEVER, NEVER])], [(0, 5), (1, 5)]
    ),
    "two clients with the same home": Plan(2, [(0, BOTH, [NEVER])] * 2, [(0, 5), (1, 4)]),
    "two clients with two homes": Plan(
        2, [(0, BOTH, [NEVER]), (1, BOTH, [NEVER])], [(0, 5), (1, 4)]
    ),
    "time is up": Plan(2, [(0, BOTH, [LATER]), (1, BOTH, [POLL])], [(1, 5)]),
    "time is up for two": Plan(2, [(0, BOTH, [LATER]), (1, BOTH, [LATER])], [(1, 5)]),
    "a reserve without waiting, and a claimed job": Plan(
        2,
        [(0, BOTH, [NEVER]), (0, frozenset({1}), [POLL])],
        [(1, 5), (0, 5)],
    ),
    "a claimed job runs out of time": Plan(2, [(0, BOTH, [LATER, NEVER])], [(1, 5)], {"expire": 1}),
    "the end of a held job is near": Plan(
        2, [(0, BOTH, [NEVER, LATER])], [(1, 5), (0, 5)], {"soon": 1, "expire": 1}
    ),
    "a worker dies": Plan(2, [(0, BOTH, [LATER])], [(1, 5)], {"down": 1}, frozenset({1})),
    "the only worker concerned dies": Plan(
        2, [(0, frozenset({1}), [LATER, POLL])], [(1, 5)], {"down": 1}, frozenset({1})
    ),
    "another worker dies": Plan(
        3, [(0, frozenset({1}), [LATER, POLL])], [(1, 5)], {"down": 1}, frozenset({2})
    ),
    "a worker that was asked dies, and the other has a job": Plan(
        3, [(0, frozenset({1, 2}), [LATER])], [(2, 5)], {"down": 1}, frozenset({1})
    ),
    "the worker of a client dies": Plan(
        2,
        [(0, BOTH, [NEVER]), (1, BOTH, [NEVER])],
        [(0, 5)],
        {"down": 1},
        frozenset({1}),
    ),
}

LARGE_PLANS = {
    "one of three workers dies": Plan(
        3, [(0, frozenset({1, 2}), [LATER])], [(1, 5)], {"down": 1}, frozenset({1, 2})
    ),
    "a client leaves": Plan(
        2, [(0, BOTH, [NEVER]), (0, frozenset({1}), [LATER])], [(1, 5)], {"leave": 1}
    ),
    "one shard alone": Plan(
        2, [(0, frozenset({1}), [LATER, POLL]), (1, BOTH, [POLL])], [(1, 5), (1, 5)]
    ),
    "a reserve without waiting of two shards": Plan(
        3, [(0, BOTH, [NEVER]), (2, BOTH, [POLL])], [(1, 5), (0, 5)], {"leave": 1}
    ),
    "a claimed job runs out of time, two clients": Plan(
        2, [(0, BOTH, [LATER]), (1, BOTH, [NEVER])], [(1, 5)], {"expire": 1}
    ),
    "a client leaves, two jobs": Plan(
        2, [(0, BOTH, [NEVER]), (1, BOTH, [LATER])], [(0, 5), (1, 5)], {"leave": 1}
    ),
    "three shards": Plan(3, [(0, ALL, [LATER]), (1, ALL, [NEVER])], [(1, 5), (2, 4)]),
    "two clients, and a worker dies": Plan(
        2, [(0, BOTH, [LATER]), (0, BOTH, [POLL])], [(1, 5)], {"down": 1}, frozenset({1})
    ),
    "a worker dies twice": Plan(
        2, [(0, BOTH, [LATER, NEVER])], [(1, 5), (0, 5)], {"down": 2}, frozenset({1})
    ),
    "everything at once": Plan(
        2,
        [(0, BOTH, [LATER])],
        [(1, 5), (0, 5)],
        {"leave": 1, "down": 1, "expire": 1, "soon": 1},
        frozenset({1}),
    ),
}


@pytest.mark.parametrize("published", [False, True], ids=["asked", "published"])
@pytest.mark.parametrize("name", PLANS)
def test_every_order_of_events(name: str, published: bool) -> None:
    assert explore(replace(PLANS[name], published=published)) > 10


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("published", [False, True], ids=["asked", "published"])
@pytest.mark.parametrize("name", LARGE_PLANS)
def test_every_order_of_more_events(name: str, published: bool) -> None:
    assert explore(replace(LARGE_PLANS[name], published=published)) > 100


def plans(shards: int) -> st.SearchStrategy[Plan]:
    shard = st.integers(0, shards - 1)
    client = st.tuples(
        shard,
        st.frozensets(shard, min_size=1),
        st.lists(st.sampled_from([POLL, LATER, NEVER]), min_size=1, max_size=3),
    )
    mishaps = st.fixed_dictionaries(
        {name: st.integers(0, 2) for name in ("leave", "down", "expire", "soon")}
    )
    return st.builds(
        Plan,
        st.just(shards),
        st.lists(client, min_size=1, max_size=4),
        st.lists(st.tuples(shard, st.integers(0, 2)), max_size=6),
        mishaps,
        st.just(frozenset(range(shards))),
    )


@pytest.mark.slow
@given(
    plan=st.integers(2, 4).flatmap(plans),
    choices=st.lists(st.integers(0, 1 << 16), max_size=200),
)
@settings(max_examples=3 * settings.default.max_examples)  # type: ignore[union-attr]
def test_some_orders_of_many_events(plan: Plan, choices: list[int]) -> None:
    world = World(plan)
    for choice in choices:
        events = world.events()
        if not events:
            break
        world.do(events[choice % len(events)])
    world.settle()
    assert world.jobs() == world.last_job
    for client in world.clients:
        assert client.gone or not client.plan or client.asking
