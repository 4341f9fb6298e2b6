"""max-reserved and rate keep ready jobs back; release-backoff delays jobs that come back."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from core.policies.test_puts import actions
from core.rig import MILLISECOND, NEVER, SECOND, Rig, RigClient, put_line
from core.workers.cluster import Cluster, ClusterClient
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from wire import jobs_of

from beanstalkd_py.core.clocks import Now
from beanstalkd_py.core.tube_policy import Backoff, Rate, TubePolicy

TIMED_OUT = b"TIMED_OUT\r\n"
POLL = b"reserve-with-timeout 0\r\n"
TTR = 100

Leave = Callable[[RigClient, int], None]


def delete(client: RigClient, job: int) -> None:
    client.do(b"delete %d" % job, b"DELETED")


def release(client: RigClient, job: int) -> None:
    client.do(b"release %d 0 0" % job, b"RELEASED")


def release_later(client: RigClient, job: int) -> None:
    client.do(b"release %d 0 1000" % job, b"RELEASED")


def bury(client: RigClient, job: int) -> None:
    client.do(b"bury %d 0" % job, b"BURIED")


def close(client: RigClient, job: int) -> None:
    client.close()


def time_out(client: RigClient, job: int) -> None:
    client.rig.advance((TTR + 1) * SECOND)


@pytest.mark.parametrize("leave", [delete, release, release_later, bury, close, time_out])
@pytest.mark.parametrize("backoff", ["", "exponential:5s..9s"])
def test_a_waiting_client_gets_a_job_when_another_leaves(leave: Leave, backoff: str) -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", max_reserved=1, release_backoff=backoff)], rig.now)
        client, waiter, last = rig.client(), rig.client(), rig.client()
        first, _, _ = [client.put(ttr=TTR) for _ in range(3)]
        assert client.reserve() == first
        waiter.send(b"reserve\r\n")
        last.send(b"reserve\r\n")
        assert waiter.read() == b""
        assert last.ask(b"") == b""
        leave(client, first)
        assert waiter.read().startswith(b"RESERVED ")
        assert last.read() == b""
        assert actions(rig)["max_reserved"] >= 2


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("policy", "most"),
    [(TubePolicy("*", max_reserved=3), 3), (TubePolicy("*", rate="100/s"), 10)],
    ids=["max-reserved", "rate"],
)
def test_a_batch_keeps_the_limits(policy: TubePolicy, most: int, waits: bool) -> None:
    with Rig() as rig:
        rig.core.set_policies([policy], rig.now)
        client, consumer = rig.client(), rig.client()
        if waits:
            client.do(b"pause-tube default 100", b"PAUSED")
        jobs = [client.put() for _ in range(20)]
        consumer.send(b"reserve-batch 1000 %d\r\n" % (100 if waits else 0))
        if waits:
            client.do(b"pause-tube default 0", b"PAUSED")
            rig.advance(1)
        assert [job.id for job in jobs_of(consumer.read())] == jobs[:most]
        assert client.ask(b"reserve-batch 1000 0\r\n") == TIMED_OUT


def test_a_job_that_ends_for_its_reserves_makes_space() -> None:
    with Rig() as rig:
        policy = TubePolicy("*", max_reserved=1, max_reserves=1)
        rig.core.set_policies([policy], rig.now)
        client, waiter = rig.client(), rig.client()
        first, second = client.put(), client.put()
        assert client.reserve() == first
        waiter.send(b"reserve\r\n")
        release(client, first)
        assert waiter.read().startswith(b"RESERVED %d " % second)


def test_reserve_job_is_not_kept_back_but_counts() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", max_reserved=1)], rig.now)
        client = rig.client()
        first, second, third = (client.put() for _ in range(3))
        assert client.reserve() == first
        assert client.ask(b"reserve-job %d\r\n" % second).startswith(b"RESERVED")
        delete(client, first)
        assert client.ask(POLL) == TIMED_OUT
        delete(client, second)
        assert client.reserve() == third


def test_a_throttled_tube_counts_as_not_ready_for_deadline_soon() -> None:
    with Rig() as rig:
        client = rig.client()
        client.put(ttr=1)
        client.put(ttr=1)
        client.reserve()
        rig.core.set_policies([TubePolicy("*", max_reserved=1)], rig.now)
        assert client.ask(b"reserve-with-timeout 50\r\n") == b"DEADLINE_SOON\r\n"


def test_a_change_of_policies_serves_waiting_clients() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", max_reserved=1)], rig.now)
        client, waiter = rig.client(), rig.client()
        client.put()
        client.put()
        client.reserve()
        waiter.send(b"reserve\r\n")
        rig.core.set_policies([TubePolicy("*", max_reserved=1, rate="1/s")], rig.now)
        assert waiter.read() == b""
        rig.core.set_policies([TubePolicy("*", rate="1/s")], rig.now)
        rig.settle()
        assert waiter.read().startswith(b"RESERVED ")


def test_a_rate_that_is_unset_while_clients_wait_for_tokens() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", rate="1/h")], rig.now)
        client, waiter = rig.client(), rig.client()
        for tube in (b"default", b"other"):
            client.ask(b"use %b\r\n" % tube)
            for _ in range(3):
                client.put(ttr=1000)
            waiter.ask(b"watch %b\r\n" % tube)
        waiter.reserve()
        waiter.reserve()
        waiter.send(b"reserve\r\n")
        assert waiter.read() == b""
        rig.core.set_policies([TubePolicy("other", expires=500)], rig.now)
        rig.settle()
        assert waiter.read().startswith(b"RESERVED ")
        assert rig.advance(400 * SECOND) > rig.now.mono


def test_a_tube_keeps_its_rate_and_wakes_nobody_in_vain() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", rate="10/s")], rig.now)
        client = rig.client()
        numbers = [client.put(ttr=1000) for _ in range(4)]
        assert client.reserve() == numbers[0]
        assert client.ask(POLL) == TIMED_OUT
        client.send(b"reserve-with-timeout 50\r\n")
        token = rig.now.mono + 100 * MILLISECOND
        assert rig.tick() == token
        assert rig.advance(99 * MILLISECOND) == token
        assert client.read() == b""
        rig.advance(MILLISECOND)
        assert client.read().startswith(b"RESERVED %d " % numbers[1])
        assert rig.advance(99 * MILLISECOND) == rig.now.mono + MILLISECOND
        assert rig.advance(MILLISECOND) > rig.now.mono + 40 * SECOND
        assert client.reserve() == numbers[2]
        assert actions(rig)["rate"] == 3


def test_a_burst_is_a_tenth_of_the_rate() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", rate="100/s")], rig.now)
        client = rig.client()
        for _ in range(40):
            client.put(ttr=1000)
        for _ in range(10):
            client.reserve()
        assert client.ask(POLL) == TIMED_OUT
        rig.advance(30 * MILLISECOND)
        for _ in range(3):
            client.reserve()
        assert client.ask(POLL) == TIMED_OUT
        rig.advance(1000 * SECOND)
        for _ in range(10):
            client.reserve()
        assert client.ask(POLL) == TIMED_OUT


@pytest.mark.parametrize(("rate", "burst"), [("1/h", 1), ("30/s", 3)])
def test_a_tube_that_nobody_uses_keeps_its_rate(rate: str, burst: int) -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("paced", rate=rate)], rig.now)
        found = 0
        for _ in range(5):
            client = rig.client()
            client.use(b"paced")
            job = client.put()
            found += client.ask(POLL) != TIMED_OUT
            delete(client, job)
            client.close()
        assert found == burst
        other = rig.client()
        assert b"paced" in other.ask(b"list-tubes\r\n")
        rig.advance(3600 * SECOND)
        assert b"paced" not in other.ask(b"list-tubes\r\n")


def test_a_tube_that_nobody_uses_ends_with_its_rate() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("paced", rate="1/h")], rig.now)
        client, other = rig.client(), rig.client()
        client.use(b"paced")
        client.put()
        delete(client, client.reserve())
        client.close()
        rig.core.set_policies([], rig.now)
        rig.advance(1)
        assert b"paced" not in other.ask(b"list-tubes\r\n")


def test_a_cancelled_claim_returns_its_token() -> None:
    """A client that waits for two shards claims a job of each, and takes one."""
    with Cluster(2) as cluster:
        tubes = [cluster.tube_on(0), cluster.tube_on(1)]
        for core in cluster.cores:
            assert core is not None
            core.set_policies([TubePolicy("*", rate="1/h")])
        client, producer = cluster.client(0), [cluster.client(0), cluster.client(1)]
        for tube in tubes:
            client.ask(b"watch %b\r\n" % tube)
        client.send(b"reserve\r\n")
        for one, tube in zip(producer, tubes, strict=True):
            one.core.feed(one.session, b"use %b\r\n" % tube + put_line(b"x"))
        cluster.settle()
        assert client.read().startswith(b"RESERVED ")
        # The other tube has its token, the tube of the job has none.
        assert client.reserve() is not None
        assert client.reserve() is None
        producer[0].put()
        producer[1].put()
        assert client.reserve() is None


def test_a_reload_with_a_higher_rate_takes_effect() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", rate="1/h")], rig.now)
        client = rig.client()
        for _ in range(3):
            client.put(ttr=1000)
        first = client.reserve()
        assert client.ask(b"reserve-job %d\r\n" % (first + 1)).startswith(b"RESERVED ")
        rig.core.set_policies([TubePolicy("*", rate="1/s")], rig.now)
        client.send(b"reserve-with-timeout 100\r\n")
        rig.advance(SECOND - 1)
        assert client.read() == b""
        rig.advance(1)
        assert client.read().startswith(b"RESERVED %d " % (first + 2))


def test_many_reserves_of_jobs_by_their_ids_are_no_tokens() -> None:
    end = Now(mono=2**63 - 20_000 * SECOND, wall=1_700_000_000 * SECOND)
    with Rig(now=end) as rig:
        rig.core.set_policies([TubePolicy("*", rate="1/h")], rig.now)
        client = rig.client()
        number = client.put()
        for _ in range(10):
            assert client.ask(b"reserve-job %d\r\n" % number).startswith(b"RESERVED ")
            release(client, number)
            assert client.ask(POLL) == TIMED_OUT


def test_a_reserve_by_id_without_a_token_delays_no_token() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", rate="1/m")], rig.now)
        waiting, client = rig.client(), rig.client()
        number, other = client.put(), client.put()
        assert client.reserve() == number
        waiting.send(b"reserve\r\n")
        for _ in range(2):
            rig.advance(25 * SECOND)
            assert client.ask(b"reserve-job %d\r\n" % other).startswith(b"RESERVED ")
            release(client, other)
        assert waiting.read() == b""
        rig.advance(10 * SECOND)
        assert waiting.read().startswith(b"RESERVED %d " % other)


def test_a_backoff_doubles_up_to_its_greatest_delay() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", release_backoff="exponential:3s..10s")], rig.now)
        client = rig.client()
        number = client.put(ttr=1)
        for come_back, delay in ((release, 3), (time_out, 6), (release, 10), (time_out, 10)):
            assert client.reserve() == number
            come_back(client, number)
            assert client.job(number)["state"] == "delayed"
            assert client.job(number)["delay"] == str(delay)
            rig.advance(delay * SECOND)
        assert client.reserve() == number
        client.do(b"release %d 0 77" % number, b"RELEASED")
        assert client.job(number)["delay"] == "77"
        assert actions(rig)["backoff"] == 4


def test_a_lost_client_delays_nothing() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", release_backoff="exponential:3s..10s")], rig.now)
        client, other = rig.client(), rig.client()
        number = client.put()
        client.reserve()
        client.close()
        assert other.reserve() == number


@pytest.mark.parametrize("come_back", [release, time_out])
def test_a_restart_keeps_the_delay_and_the_count(tmp_path: Path, come_back: Leave) -> None:
    policies = [TubePolicy("*", release_backoff="exponential:30s..100s")]
    with Rig(tmp_path) as rig:
        rig.core.set_policies(policies, rig.now)
        client = rig.client()
        number = client.put(ttr=1)
        client.reserve()
        come_back(client, number)
        rig.stop()
    with Rig(tmp_path, now=rig.now) as rig:
        rig.core.set_policies(policies, rig.now)
        client = rig.client()
        assert client.job(number)["state"] == "delayed"
        rig.advance(30 * SECOND)
        assert client.reserve() == number
        release(client, number)
        assert client.job(number)["delay"] == "60"


@pytest.mark.parametrize("text", ["", "5s", "exponential:5s", "exponential:0s..1s", "x:1s..2s"])
def test_invalid_backoffs(text: str) -> None:
    with pytest.raises(ValueError, match="invalid backoff"):
        Backoff.parse(text)


@pytest.mark.parametrize("text", ["", "5", "5/", "0/s", "5/d", "1.5/s", "1000001/s", "-5/s"])
def test_invalid_rates(text: str) -> None:
    with pytest.raises(ValueError, match="invalid rate"):
        Rate.parse(text)


def test_rates_and_backoffs() -> None:
    assert Rate.parse("100/s") == (10**7, 10)
    assert Rate.parse("19/s") == (10**9 // 19, 1)
    assert Rate.parse("60/m") == (10**9, 1)
    assert Rate.parse("5/h") == (720 * 10**9, 1)
    assert Backoff.parse("exponential:1m..2h") == (60, 7200)


# --- a model ------------------------------------------------------------------------------------


class Throttles(RuleBasedStateMachine):
    """One tube with both limits; clients wait in order. The model has a bucket of tokens."""

    CLIENTS = 4

    @initialize(
        workers=st.sampled_from([1, 2]),
        max_reserved=st.sampled_from([0, 1, 2]),
        rate=st.sampled_from(["", "2/s", "30/s"]),
    )
    def start(self, workers: int, max_reserved: int, rate: str) -> None:
        self.rig: Rig | None = None
        self.cluster: Cluster | None = None
        self.max_reserved = max_reserved or 10**9
        self.tube = b"default"
        # With real clocks a token is there at once, or never.
        rate = rate if workers == 1 or not rate else "1/h"
        policy = TubePolicy("*", max_reserved=max_reserved, rate=rate)
        if workers == 1:
            self.rig = Rig()
            self.rig.core.set_policies([policy], self.rig.now)
            self.clients: list[RigClient | ClusterClient] = [
                self.rig.client() for _ in range(self.CLIENTS)
            ]
        else:
            cluster = self.cluster = Cluster(workers)
            for core in cluster.cores:
                assert core is not None
                core.set_policies([policy])
            self.tube = cluster.tube_on(1)
            self.clients = [cluster.client(home % workers) for home in range(self.CLIENTS)]
            for client in self.clients:
                client.ask(b"use %b\r\nwatch %b\r\n" % (self.tube, self.tube))
        interval, self.burst = Rate.parse(rate) if rate else (0, 1)
        self.per_ns = Fraction(1, interval) if interval else None
        self.tokens = Fraction(self.burst)
        self.ready: list[int] = []
        self.held: dict[int, int] = {}
        self.waiting: list[int] = []
        self.got: dict[int, int] = {}

    def teardown(self) -> None:
        if getattr(self, "cluster", None):
            self.cluster.__exit__(None, None, None)
        if getattr(self, "rig", None):
            self.rig.close()

    def is_open(self) -> bool:
        return len(self.held) < self.max_reserved and (self.per_ns is None or self.tokens >= 1)

    def serve(self) -> None:
        """Hand out jobs in the model, then compare the replies."""
        while self.waiting and self.ready and self.is_open():
            client, job = self.waiting.pop(0), min(self.ready)
            self.ready.remove(job)
            self.held[job] = client
            self.tokens -= 1
            self.got[client] = job
        for index, client in enumerate(self.clients):
            reply = client.read()
            if index in self.got:
                assert reply.startswith(b"RESERVED %d " % self.got.pop(index)), reply
            else:
                assert reply == b"", reply

    def idle(self, which: int) -> list[int]:
        free = [index for index in range(self.CLIENTS) if index not in self.waiting]
        return [free[which % len(free)]] if free else []

    @rule(which=st.integers(0, 3))
    def put(self, which: int) -> None:
        for index in self.idle(which):
            client = self.clients[index]
            client.send(put_line(b"x", ttr=10**6))
            reply = client.read()
            assert reply.startswith(b"INSERTED "), reply
            self.ready.append(int(reply.split()[1]))
            self.serve()

    @rule(which=st.integers(0, 3))
    def reserve(self, which: int) -> None:
        for index in self.idle(which):
            self.clients[index].send(b"reserve\r\n")
            self.waiting.append(index)
            self.serve()

    @rule(which=st.integers(0, 3))
    def poll(self, which: int) -> None:
        for index in self.idle(which):
            reply = self.clients[index].ask(POLL)
            if self.ready and self.is_open():
                job = min(self.ready)
                assert reply.startswith(b"RESERVED %d " % job), reply
                self.ready.remove(job)
                self.held[job] = index
                self.tokens -= 1
            else:
                assert reply == TIMED_OUT
            self.serve()

    @rule(
        number=st.integers(0, 99), verb=st.sampled_from([b"delete", b"release", b"bury", b"late"])
    )
    def end(self, number: int, verb: bytes) -> None:
        held = [job for job, index in self.held.items() if index not in self.waiting]
        if not held:
            return
        job = held[number % len(held)]
        client = self.clients[self.held.pop(job)]
        lines = {
            b"delete": b"delete %d\r\n",
            b"release": b"release %d 0 0\r\n",
            b"bury": b"bury %d 0\r\n",
            b"late": b"release %d 0 1000000\r\n",
        }
        reply = client.ask(lines[verb] % job)
        assert reply in (b"DELETED\r\n", b"RELEASED\r\n", b"BURIED\r\n")
        if verb == b"release":
            self.ready.append(job)
        self.serve()

    @rule(milliseconds=st.sampled_from([1, 33, 34, 100, 499, 500, 1000, 5000]))
    def wait(self, milliseconds: int) -> None:
        if self.rig is None:
            return
        nanoseconds = milliseconds * MILLISECOND
        if self.per_ns is not None:
            self.tokens = min(Fraction(self.burst), self.tokens + nanoseconds * self.per_ns)
        self.rig.advance(nanoseconds)
        self.serve()

    @invariant()
    def sleeps_until_the_next_token(self) -> None:
        """Without deadlines the only timer is that of a missing token."""
        if getattr(self, "rig", None) is None or self.held or self.per_ns is None:
            return
        assert self.rig is not None
        if self.tokens >= 1:
            assert self.rig.tick() >= self.rig.now.mono + 1000 * SECOND or self.rig.tick() == NEVER


Throttles.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestThrottles = Throttles.TestCase
