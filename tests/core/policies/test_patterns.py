"""A tube has the first policy whose pattern matches, also after a change of the policies."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from core.rig import Rig
from core.workers.cluster import Cluster
from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.core.tube_policy import TubePolicy
from beanstalkd_py.server.tube_policies import check_pattern

MOST = 200

# Few letters, so that many patterns match; long runs, so that prefixes have whole words.
letters = st.sampled_from(["a", "b", "ab", ".", "-", "aaaaaaaa", "abababab" * 3])
names = st.lists(letters, min_size=1, max_size=8).map("".join).filter(lambda it: it[0] != "-")
elements = st.one_of(
    letters, st.sampled_from(["*", "?", "[ab]", "[a-b]", "[!a]", "[-a]", "[!a-b.]", "[.-]"])
)
patterns = st.lists(elements, min_size=1, max_size=8).map("".join).filter(lambda it: it[0] != "-")


def expected(policies: list[str], name: str) -> str | None:
    return next((one for one in policies if fnmatchcase(name, one)), None)


@given(policies=st.lists(patterns, max_size=30), used=st.lists(names, min_size=1, max_size=20))
def test_the_first_that_matches(policies: list[str], used: list[str]) -> None:
    for one in policies:
        check_pattern(one)
    with Rig() as rig:
        client = rig.client()
        early = used[: len(used) // 2]
        for name in early:
            client.ask(b"watch %b\r\n" % name.encode())
        rig.core.set_policies([TubePolicy(one, max_jobs=1) for one in policies])
        for name in used:
            client.ask(b"watch %b\r\n" % name.encode())
            assert rig.core.policy_of(name.encode()) == expected(policies, name)
        rig.core.set_policies([])
        assert {rig.core.policy_of(name.encode()) for name in used} == {None}


@given(pattern=patterns, name=names)
def test_one_pattern(pattern: str, name: str) -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy(pattern)])
        rig.client().ask(b"use %b\r\n" % name.encode())
        # Of a tube that has no session any more there is nothing to see.
        client = rig.client()
        client.ask(b"use %b\r\n" % name.encode())
        found = rig.core.policy_of(name.encode())
        assert found == (pattern if fnmatchcase(name, pattern) else None)


def test_a_thousand_policies() -> None:
    policies = [f"tube-{i:03}.*" for i in range(999)]
    with Rig() as rig:
        rig.core.set_policies([TubePolicy(one) for one in [*policies, "*"]])
        client = rig.client()
        for i in range(999):
            name = b"tube-%03d.x" % i
            client.ask(b"watch %b\r\n" % name)
            assert rig.core.policy_of(name) == policies[i]
        client.ask(b"watch other\r\n")
        assert rig.core.policy_of(b"other") == "*"
        assert rig.core.policy_of(b"default") == "*"
        assert rig.core.policy_of(b"unknown") is None


def test_names_and_patterns_of_the_greatest_length() -> None:
    name = b"n" * MOST
    for pattern in ("n" * MOST, "n" * (MOST - 1) + "*", "n" * (MOST - 1) + "?", "*" * MOST):
        check_pattern(pattern)
        with Rig() as rig:
            rig.core.set_policies([TubePolicy("n" * (MOST - 1)), TubePolicy(pattern)])
            rig.client().ask(b"use %b\r\n" % name)
            assert rig.core.policy_of(name) == pattern


@pytest.mark.parametrize(
    "pattern", ["", "a b", "[", "[]", "[a", "[!]", "a]", "ä", "-a", "a\n", "a:b", "x" * 201]
)
def test_invalid_patterns(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        check_pattern(pattern)


def test_a_worker_has_the_policies_of_its_own_tubes_only() -> None:
    with Cluster(2) as cluster:
        for core in cluster.cores:
            assert core is not None
            core.set_policies([TubePolicy("*")])
        client = cluster.client(0)
        there = cluster.tube_on(1)
        client.do(b"use " + there, b"USING " + there)
        found = [core.policy_of(there) for core in cluster.cores if core is not None]
        assert found == [None, "*"]
