"""max-jobs, max-bytes, default-ttr and max-delay."""

from __future__ import annotations

from pathlib import Path

import pytest
from core.rig import Rig, put_line
from core.workers.cluster import Cluster, ClusterClient
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from beanstalkd_py.core._core import lib
from beanstalkd_py.core.tube_policy import TubePolicy
from beanstalkd_py.server.metrics.server_metrics import POLICY_ACTIONS

REFUSED = b"OUT_OF_MEMORY\r\n"
LONG = 1000
UINT32_MAX = 2**32 - 1


def actions(rig: Rig) -> dict[str, int]:
    return dict(zip(POLICY_ACTIONS, rig.counters.policy_actions, strict=True))


def test_max_jobs() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("m*", max_jobs=2)])
        client = rig.client()
        client.use(b"mails")
        first, second = client.put(), client.put(delay=LONG)
        body = b"delete %d\r\n" % first * 3
        assert client.ask(put_line(body) + b"list-tube-used\r\n") == REFUSED + b"USING mails\r\n"
        assert rig.counters.refused_puts[lib.BS_REFUSED_TUBE_JOBS] == 1
        client.do(b"delete %d" % second, b"DELETED")
        assert client.put() == second + 1  # a refused put takes no id
        client.use(b"other")
        client.put()
        client.put()
        client.put()


def test_max_bytes_counts_bodies_without_line_ends() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("default", max_bytes=10)])
        client = rig.client()
        assert client.ask(put_line(b"x" * 11)) == REFUSED
        five = client.put(b"x" * 5)
        client.put(b"x" * 4)
        assert client.ask(put_line(b"xx")) == REFUSED
        client.put(b"x")
        assert client.ask(put_line(b"x")) == REFUSED
        client.put(b"")
        assert rig.counters.refused_puts[lib.BS_REFUSED_TUBE_BYTES] == 3
        client.do(b"delete %d" % five, b"DELETED")
        client.put(b"x" * 5)


def test_jobs_whose_bodies_are_arriving_count() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", max_jobs=1)])
        slow, quick = rig.client(), rig.client()
        slow.send(b"put 0 0 9 800\r\n")
        assert quick.ask(put_line(b"x")) == REFUSED
        slow.close()
        quick.put()


def test_everything_but_put_goes_on() -> None:
    with Rig() as rig:
        client = rig.client()
        numbers = [client.put() for _ in range(3)]
        rig.core.set_policies([TubePolicy("*", max_jobs=1, max_bytes=1)])
        assert client.reserve() == numbers[0]
        client.do(b"release %d 0 0" % numbers[0], b"RELEASED")
        client.bury(numbers[1])
        client.do(b"kick 9", b"KICKED 1")
        assert client.ask(put_line(b"")) == REFUSED


def test_default_ttr_replaces_zero() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", default_ttr=77)])
        client = rig.client()
        assert client.job(client.put(ttr=0))["ttr"] == "77"
        assert client.job(client.put(ttr=1))["ttr"] == "1"
        rig.core.set_policies([TubePolicy("*")])
        assert client.job(client.put(ttr=0))["ttr"] == "1"
        assert actions(rig)["default_ttr"] == 1


def test_max_delay_of_put_and_release() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", max_delay=50)])
        client = rig.client()
        number = client.put(delay=LONG)
        assert client.job(number)["delay"] == "50"
        assert client.job(client.put(delay=50))["delay"] == "50"
        client.do(b"kick-job %d" % number, b"KICKED")
        assert client.reserve() == number
        client.do(b"release %d 3 51" % number, b"RELEASED")
        assert client.job(number)["delay"] == "50"
        assert actions(rig)["max_delay"] == 2
        rig.core.set_policies([TubePolicy("*", max_delay=0)])
        assert client.job(client.put(delay=LONG))["state"] == "ready"


def test_limits_count_the_jobs_of_a_binlog(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        client = rig.client()
        client.put(b"x" * 6)
        client.put(b"x" * 3)
    with Rig(tmp_path) as rig:
        rig.core.set_policies([TubePolicy("*", max_bytes=10)])
        client = rig.client()
        assert client.ask(put_line(b"xx")) == REFUSED
        client.put(b"x")
        rig.core.set_policies([TubePolicy("*", max_jobs=3)])
        assert client.ask(put_line(b"x")) == REFUSED


@pytest.mark.parametrize("keep", ["lines", "bodies"])
def test_a_refused_put_to_another_worker_is_counted_there(keep: str) -> None:
    with Cluster(2) as cluster:
        for core in cluster.cores:
            assert core is not None
            core.set_policies([TubePolicy("*", max_jobs=1)])
        client = cluster.client(0)
        there = cluster.tube_on(1)
        client.do(b"use " + there, b"USING " + there)
        client.put()
        line = put_line(b"kick 1\r\n" if keep == "bodies" else b"x")
        assert client.ask(line * 2 + b"list-tube-used\r\n") == REFUSED * 2 + b"USING " + there + (
            b"\r\n"
        )
        counts = [cluster.shared.worker[i].refused_puts[lib.BS_REFUSED_TUBE_JOBS] for i in (0, 1)]
        assert counts == [0, 2]


policies = st.lists(
    st.builds(
        lambda *fields: TubePolicy(*fields),
        st.sampled_from(["default", "tube-*", "*", "*1", "tube-?"]),
        st.sampled_from([0, 1, 2, 3]),
        st.sampled_from([0, 4, 9]),
        st.sampled_from([0, 5]),
        st.sampled_from([UINT32_MAX, LONG, 1500]),
    ),
    max_size=4,
)
"""Patterns, max_jobs, max_bytes, default_ttr and max_delay."""


class Puts(RuleBasedStateMachine):
    """Puts and deletes in tubes of all workers, while the policies change."""

    @initialize(workers=st.sampled_from([1, 2, 3]))
    def start(self, workers: int) -> None:
        self.cluster = Cluster(workers)
        self.clients = [self.cluster.client(home) for home in range(workers)]
        self.tubes = [b"default", *(self.cluster.tube_on(shard) for shard in range(workers))]
        self.jobs: dict[int, tuple[bytes, int]] = {}
        self.policies: list[TubePolicy] = []

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.__exit__(None, None, None)

    @rule(policies=policies)
    def change(self, policies: list[TubePolicy]) -> None:
        self.policies = policies
        for core in self.cluster.cores:
            assert core is not None
            core.set_policies(policies)

    def policy_of(self, tube: bytes) -> TubePolicy:
        from fnmatch import fnmatchcase

        name = tube.decode()
        found = (one for one in self.policies if fnmatchcase(name, one.pattern))
        return next(found, TubePolicy(""))

    def client(self, which: int) -> ClusterClient:
        return self.clients[which % len(self.clients)]

    @rule(
        which=st.integers(0, 2),
        tube=st.integers(0, 3),
        size=st.integers(0, 5),
        delay=st.sampled_from([0, LONG, 2000]),
        ttr=st.sampled_from([0, 1, 9]),
    )
    def put(self, which: int, tube: int, size: int, delay: int, ttr: int) -> None:
        name = self.tubes[tube % len(self.tubes)]
        policy = self.policy_of(name)
        sizes = [size for other, size in self.jobs.values() if other == name]
        client = self.client(which)
        client.ask(b"use %b\r\n" % name)
        reply = client.ask(put_line(b"x" * size, delay=delay, ttr=ttr))
        full = policy.max_jobs and len(sizes) >= policy.max_jobs
        if full or (policy.max_bytes and sum(sizes) + size > policy.max_bytes):
            assert reply == REFUSED
            return
        assert reply.startswith(b"INSERTED ")
        number = int(reply.split()[1])
        self.jobs[number] = (name, size)
        stats = client.job(number)
        assert int(stats["delay"]) == min(delay, policy.max_delay)
        assert int(stats["ttr"]) == (ttr or policy.default_ttr or 1)

    @rule(which=st.integers(0, 2), tube=st.integers(0, 3))
    def delete_first(self, which: int, tube: int) -> None:
        name = self.tubes[tube % len(self.tubes)]
        number = next((one for one, (of, _) in self.jobs.items() if of == name), None)
        if number is not None:
            self.client(which).do(b"delete %d" % number, b"DELETED")
            del self.jobs[number]

    @rule(which=st.integers(0, 2), tube=st.integers(0, 3))
    def truncate(self, which: int, tube: int) -> None:
        name = self.tubes[tube % len(self.tubes)]
        self.client(which).ask(b"truncate %b\r\n" % name)
        self.jobs = {number: job for number, job in self.jobs.items() if job[0] != name}


Puts.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestPuts = Puts.TestCase
