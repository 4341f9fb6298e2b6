"""expires: jobs that nobody has reserved in time are deleted."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from core.policies.test_puts import actions
from core.policies.test_throttles import Leave, close, release, time_out
from core.rig import MILLISECOND, SECOND, Rig
from core.workers.cluster import Cluster
from core.workers.played_worker import HERE, HOME, PUT, US, C, Other, count, step
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from servers import reference

from beanstalkd_py.core.tube_policy import MOVE, TubePolicy

LONG = 10**6


def expiring(seconds: int) -> list[TubePolicy]:
    return [TubePolicy("*", expires=seconds)]


def test_ready_and_delayed_jobs_are_deleted_in_time() -> None:
    with Rig() as rig:
        rig.core.set_policies(expiring(10), rig.now)
        client = rig.client()
        ready, delayed = client.put(), client.put(delay=LONG)
        rig.advance(3 * SECOND)
        later = client.put()
        assert rig.advance(7 * SECOND - 1) == rig.now.mono + 1
        assert client.body(ready) is not None
        rig.advance(1)
        assert client.body(ready) is None
        assert client.body(delayed) is None
        assert client.body(later) is not None
        assert rig.tick() == rig.now.mono + 3 * SECOND
        rig.advance(3 * SECOND)
        assert client.body(later) is None
        assert actions(rig)["expired"] == 3


def test_times_are_rounded_up_to_seconds() -> None:
    with Rig() as rig:
        rig.core.set_policies(expiring(1), rig.now)
        rig.advance(SECOND // 2)
        client = rig.client()
        number = client.put()
        rig.advance(SECOND)
        assert client.body(number) is not None
        rig.advance(SECOND // 2)
        assert client.body(number) is None


@pytest.mark.parametrize("come_back", [release, time_out, close])
def test_a_reserved_job_is_deleted_when_it_comes_back(come_back: Leave) -> None:
    with Rig() as rig:
        policy = TubePolicy("*", expires=10, max_reserves=1, then=MOVE + "dead")
        rig.core.set_policies([policy], rig.now)
        client, other = rig.client(), rig.client()
        number = client.put(ttr=30)
        assert client.reserve() == number
        rig.advance(20 * SECOND)
        assert client.job(number)["state"] == "reserved"
        come_back(client, number)
        assert other.body(number) is None
        assert actions(rig)["expired"] == 1
        assert actions(rig)["moved"] == 0


def test_a_claimed_job_that_is_put_back_expires() -> None:
    other = Other()
    other.core.set_policies(expiring(1))
    other.send(count(HERE, 1, 1, 0, 5), (C.FEED, HOME, PUT % HERE))
    end = time.time_ns() // SECOND + 2
    while time.time_ns() < end * SECOND - 100 * MILLISECOND:
        time.sleep(0.01)
    other.send((C.FEED, HOME, b"\x02+%b\r\n" % HERE), step(C.WAIT, HOME, 1))
    assert C.WAITED in [frame[0] for frame in other.frames()]
    while time.time_ns() < end * SECOND + 10 * MILLISECOND:
        time.sleep(0.01)
    other.run()
    other.send(step(C.CANCEL, HOME, 1))
    time.sleep(0.3)
    other.run()
    counters = other.shared.worker[US]
    assert (counters.ready, counters.reserved) == (0, 0)
    other.close()


def test_a_job_that_came_back_in_time_expires() -> None:
    with Rig() as rig:
        rig.core.set_policies(expiring(10), rig.now)
        client = rig.client()
        number = client.put()
        client.reserve()
        release(client, number)
        rig.advance(10 * SECOND)
        assert client.body(number) is None


def test_a_buried_job_stays() -> None:
    with Rig() as rig:
        rig.core.set_policies(expiring(10), rig.now)
        client = rig.client()
        number = client.put()
        client.bury(number)
        rig.advance(100 * SECOND)
        assert client.job(number)["state"] == "buried"
        client.do(b"kick-job %d" % number, b"KICKED")
        assert client.reserve() == number


def test_many_at_once_and_a_tube_that_ends() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("short-lived", expires=10)], rig.now)
        client = rig.client()
        client.ask(b"use short-lived\r\n")
        kept = [client.put() for _ in range(2500)][::50]
        client.ask(b"use default\r\n")
        rig.advance(10 * SECOND)
        assert rig.counters.ready == 1500
        for _ in range(2):
            rig.advance(SECOND)
        assert rig.counters.ready == 0
        assert {client.body(number) for number in kept} == {None}
        assert client.ask(b"stats-tube short-lived\r\n") == b"NOT_FOUND\r\n"


def test_many_tubes_at_once() -> None:
    """Other clients wait for the expiries of one tick, whatever the number of tubes."""
    with Rig() as rig:
        rig.core.set_policies(expiring(10), rig.now)
        client = rig.client()
        for number in range(50):
            client.ask(b"use tube-%d\r\n" % number)
            for _ in range(60):
                client.put()
        rig.advance(10 * SECOND)
        for left in (2000, 1000, 0):
            assert rig.counters.ready == left
            rig.advance(MILLISECOND)
        assert actions(rig)["expired"] == 3000


def test_many_entries_of_jobs_that_stay() -> None:
    with Rig() as rig:
        rig.core.set_policies(expiring(10), rig.now)
        client = rig.client()
        client.put(pri=9)
        rig.advance(SECOND)
        for _ in range(1500):
            client.bury(client.put(pri=1))
        rig.advance(SECOND)
        last = client.put()
        rig.advance(10 * SECOND)
        assert client.body(last) is not None
        rig.advance(MILLISECOND)
        assert client.body(last) is None
        assert rig.counters.buried == 1500


@pytest.mark.parametrize("limit", [10, 10**6])
def test_a_wall_clock_that_is_set_forward(limit: int) -> None:
    """Or a suspended machine: the monotonic clock does not go on."""
    with Rig() as rig:
        rig.core.set_policies(expiring(limit), rig.now)
        client = rig.client()
        old = client.put()
        rig.advance(1, wall_step=2 * limit * SECOND)
        rig.advance(60 * SECOND)
        assert client.body(old) is None


def test_entries_of_deleted_jobs_are_dropped() -> None:
    with Rig() as rig:
        rig.core.set_policies(expiring(1000), rig.now)
        client = rig.client()
        first = client.put()
        for _ in range(1000):
            client.do(b"delete %d" % client.put(), b"DELETED")
        rig.advance(1000 * SECOND)
        assert client.body(first) is None
        assert actions(rig)["expired"] == 1


def test_a_change_of_policies() -> None:
    with Rig() as rig:
        client = rig.client()
        rig.core.set_policies([], rig.now)
        number = client.put()
        rig.core.set_policies(expiring(100), rig.now)
        rig.advance(50 * SECOND)
        rig.core.set_policies(expiring(60), rig.now)
        rig.advance(9 * SECOND)
        assert client.body(number) is not None
        rig.advance(SECOND)
        assert client.body(number) is None
        number = client.put()
        rig.core.set_policies([], rig.now)
        rig.advance(1000 * SECOND)
        assert client.body(number) is not None


def test_the_time_of_a_stop_counts(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.core.set_policies(expiring(10), rig.now)
        client = rig.client()
        first = client.put(b"1")
        rig.advance(5 * SECOND)
        second = client.put(b"2")
        rig.stop()
    now = rig.now._replace(mono=1, wall=rig.now.wall + 6 * SECOND)
    with Rig(tmp_path, now=now) as rig:
        rig.core.set_policies(expiring(10), rig.now)
        rig.tick()
        client = rig.client()
        assert client.body(first) is None
        assert client.body(second) == b"2"
        rig.stop()
    with reference("-b", tmp_path) as server, server.connect() as there:
        assert there.ask(b"peek %d\r\n" % second) == b"FOUND %d 1\r\n2\r\n" % second
        assert there.ask(b"peek %d\r\n" % first) == b"NOT_FOUND\r\n"


def test_several_workers() -> None:
    with Cluster(2) as cluster:
        for core in cluster.cores:
            assert core is not None
            core.set_policies(expiring(1))
        client = cluster.client(0)
        numbers = [client.put(tube=cluster.tube_on(shard)) for shard in (0, 1)]
        client.do(b"watch " + cluster.tube_on(1), b"WATCHING 2")
        time.sleep(2.1)
        cluster.settle()
        for number in numbers:
            assert client.ask(b"peek %d\r\n" % number) == b"NOT_FOUND\r\n"
        assert client.reserve() is None


# --- a model ------------------------------------------------------------------------------------


@dataclass
class Job:
    born: int
    state: str = "ready"
    missed: bool = False
    """Its second passed while it was buried."""


class Expiry(RuleBasedStateMachine):
    """One client, whole seconds, restarts."""

    @initialize(expires=st.sampled_from([0, 3, 10]))
    def start(self, expires: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.rig = Rig(self.folder)
        self.expires = expires
        self.jobs: dict[int, Job] = {}
        self.open()

    def open(self) -> None:
        self.rig.core.set_policies([TubePolicy("*", expires=self.expires)], self.rig.now)
        self.rig.tick()
        self.client = self.rig.client()

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.close()
            shutil.rmtree(self.folder)

    def second(self) -> int:
        return self.rig.now.wall // SECOND

    def is_over(self, job: Job) -> bool:
        return self.expires > 0 and job.born + self.expires <= self.second()

    def expire(self, restarted: bool = False) -> None:
        """`restarted`: kicked jobs have their time again."""
        for number, job in list(self.jobs.items()):
            if not self.is_over(job):
                job.missed = False
            elif job.state in ("ready", "delayed") and (restarted or not job.missed):
                del self.jobs[number]
            elif job.state == "buried":
                job.missed = not restarted or job.missed

    @rule(delay=st.sampled_from([0, LONG]))
    def put(self, delay: int) -> None:
        number = self.client.put(delay=delay, ttr=LONG)
        self.jobs[number] = Job(self.second(), "delayed" if delay else "ready")

    @rule(number=st.integers(0, 9), verb=st.sampled_from(["reserve", "bury", "release", "kick"]))
    def command(self, number: int, verb: str) -> None:
        if not self.jobs:
            return
        number = sorted(self.jobs)[number % len(self.jobs)]
        job = self.jobs[number]
        if verb == "reserve" and job.state != "reserved":
            assert self.client.ask(b"reserve-job %d\r\n" % number).startswith(b"RESERVED")
            job.state = "reserved"
        elif verb == "bury" and job.state == "reserved":
            self.client.do(b"bury %d 0" % number, b"BURIED")
            job.state = "buried"
            job.missed = self.is_over(job)
        elif verb == "release" and job.state == "reserved":
            self.client.do(b"release %d 0 0" % number, b"RELEASED")
            job.state = "ready"
            if self.is_over(job):
                del self.jobs[number]
        elif verb == "kick" and job.state == "buried":
            self.client.do(b"kick-job %d" % number, b"KICKED")
            job.state = "ready"

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.rig.advance(seconds * SECOND)
        self.expire()

    @rule(expires=st.sampled_from([0, 3, 10]))
    def change(self, expires: int) -> None:
        if expires == self.expires:
            return
        self.expires = expires
        self.rig.core.set_policies([TubePolicy("*", expires=expires)], self.rig.now)
        self.rig.tick()
        self.expire(restarted=True)

    @rule()
    def restart(self) -> None:
        for number, job in list(self.jobs.items()):
            if job.state == "reserved":
                self.command(sorted(self.jobs).index(number), "release")
        self.rig.stop()
        self.rig = Rig(self.folder, now=self.rig.now)
        self.open()
        self.expire(restarted=True)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "rig"):
            return
        states = {number: self.client.job(number)["state"] for number in self.jobs}
        assert states == {number: job.state for number, job in self.jobs.items()}
        counters = self.rig.counters
        count = counters.ready + counters.delayed + counters.buried + counters.reserved
        assert count == len(self.jobs)


Expiry.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestExpiry = Expiry.TestCase
