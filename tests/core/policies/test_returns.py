"""max-reserves: jobs that come back too often are buried, deleted or moved."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from core import fault_injection
from core.fault_injection import Call
from core.policies.test_puts import actions
from core.rig import SECOND, Rig, RigClient
from core.workers.cluster import Cluster, ClusterClient
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from listing import all_jobs
from servers import reference
from wire import stats_of

from beanstalkd_py.core.placement import shard_of
from beanstalkd_py.core.tube_policy import BURY, DELETE, MOVE, TubePolicy

TTR = 100
LONG = 10**6
KEPT = ("pri", "reserves", "timeouts", "releases", "buries", "kicks", "ttr")


def release(client: RigClient) -> None:
    client.do(b"release %d 5 0" % client.reserve(), b"RELEASED")


def time_out(client: RigClient) -> None:
    client.reserve()
    client.rig.advance((TTR + 1) * SECOND)


def close(client: RigClient) -> None:
    other = client.rig.client()
    other.reserve()
    other.close()


@pytest.mark.parametrize("come_back", [release, time_out, close])
def test_a_job_is_buried(come_back: Callable[[RigClient], None]) -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", max_reserves=3)])
        client = rig.client()
        number = client.put()
        for state in ("ready", "ready", "buried"):
            come_back(client)
            assert client.job(number)["state"] == state
        client.do(b"kick-job %d" % number, b"KICKED")
        for state in ("ready", "ready", "buried"):
            come_back(client)
            assert client.job(number)["state"] == state
        assert client.job(number)["reserves"] == "6"
        assert actions(rig)["buried"] == 2


@pytest.mark.parametrize("come_back", [release, time_out, close])
def test_a_job_is_deleted(come_back: Callable[[RigClient], None]) -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", max_reserves=2, then=DELETE)])
        client = rig.client()
        number, other = client.put(pri=1), client.put(pri=2**30)
        come_back(client)
        assert client.body(number) is not None
        come_back(client)
        assert client.body(number) is None
        assert client.body(other) is not None
        assert client.stats(b"stats-tube default")["cmd-delete"] == "0"
        assert actions(rig)["deleted"] == 1


@pytest.mark.parametrize("come_back", [release, time_out, close])
def test_a_job_is_moved(come_back: Callable[[RigClient], None], tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.core.set_policies([TubePolicy("default", max_reserves=1, then=MOVE + "dead")])
        client, waiter = rig.client(), rig.client()
        number = client.put(b"body", pri=7, delay=0)
        rig.advance(10 * SECOND)
        come_back(client)
        assert client.body(number) is None
        waiter.use(b"dead")
        moved = int(waiter.ask(b"peek-ready\r\n").split()[1])
        assert waiter.body(moved) == b"body"
        stats = waiter.job(moved)
        assert (stats["tube"], stats["state"], stats["reserves"]) == ('"dead"', "ready", "1")
        assert int(stats["age"]) >= 10
        assert actions(rig)["moved"] == 1
        assert client.put() == moved + 1
        rig.stop()
    with reference("-b", tmp_path) as server, server.connect() as there:
        assert there.ask(b"peek %d\r\n" % moved) == b"FOUND %d 4\r\nbody\r\n" % moved
        assert there.ask(b"peek %d\r\n" % number) == b"NOT_FOUND\r\n"


def test_a_waiting_client_gets_a_moved_job() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("default", max_reserves=1, then=MOVE + "dead")])
        client, waiter = rig.client(), rig.client()
        waiter.use(b"dead")
        waiter.send(b"reserve\r\n")
        client.put(b"body")
        release(client)
        assert waiter.read().endswith(b"body\r\n")


@pytest.mark.parametrize(
    ("then", "where"), [(BURY, (1, 0)), (DELETE, (0, 0)), (MOVE + "dead", (0, 1))]
)
def test_a_release_is_not_delayed_at_the_limit(then: str, where: tuple[int, int]) -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("default", max_reserves=1, then=then)])
        client = rig.client()
        client.put()
        client.do(b"release %d 5 1000" % client.reserve(), b"RELEASED")
        assert (rig.counters.buried, rig.counters.ready) == where
        assert rig.counters.delayed == 0


def test_a_job_in_its_own_dead_letter_tube_is_buried() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", max_reserves=1, then=MOVE + "default")])
        client = rig.client()
        number = client.put()
        release(client)
        assert client.job(number)["state"] == "buried"


def test_a_tube_of_another_worker_gets_no_jobs() -> None:
    with Cluster(2) as cluster:
        here, there = cluster.tube_on(0), cluster.tube_on(1)
        for core in cluster.cores:
            assert core is not None
            core.set_policies([TubePolicy("*", max_reserves=1, then=MOVE + there.decode())])
        client = cluster.client(0)
        client.ask(b"watch %b\r\n" % here)
        number = client.put(tube=here)
        client.do(b"release %d 0 0" % (client.reserve() or 0), b"RELEASED")
        assert client.job(number)["state"] == "buried"


def test_counts_survive_a_restart_and_are_never_added(tmp_path: Path) -> None:
    policies = [TubePolicy("*", max_reserves=3)]
    with Rig(tmp_path) as rig:
        rig.core.set_policies(policies)
        client = rig.client()
        number = client.put()
        time_out(client)
        close(client)
        client.reserve()
        rig.stop()
    with Rig(tmp_path, now=rig.now) as rig:
        rig.core.set_policies(policies)
        client = rig.client()
        assert client.job(number)["reserves"] == "2"
        assert client.job(number)["state"] == "ready"
        time_out(client)
        assert client.job(number)["state"] == "buried"


def test_a_body_in_the_binlog_is_moved(tmp_path: Path) -> None:
    bodies = [b"%d" % number * 1000 for number in range(9)]
    with Rig(tmp_path, body_memory=2000) as rig:
        rig.core.set_policies([TubePolicy("default", max_reserves=1, then=MOVE + "dead")])
        client, other = rig.client(), rig.client()
        numbers = [client.put(body) for body in bodies]
        for number in numbers:
            other.ask(b"reserve-job %d\r\n" % number)
        other.close()
        client.use(b"dead")
        rows = all_jobs(client, b"dead")  # type: ignore[arg-type]
        assert [client.body(int(row["id"])) for row in rows] == bodies
    with Rig(tmp_path, now=rig.now) as rig:
        client = rig.client()
        assert [client.body(int(row["id"])) for row in rows] == bodies
        assert client.stats(b"stats-tube dead")["current-jobs-ready"] == "9"


def test_a_job_whose_body_cannot_be_read_is_buried(tmp_path: Path) -> None:
    with Rig(tmp_path, body_memory=1) as rig:
        rig.core.set_policies([TubePolicy("default", max_reserves=1, then=MOVE + "dead")])
        client, other = rig.client(), rig.client()
        client.put(b"first" * 100)
        number = client.put(b"second" * 100)
        assert other.ask(b"reserve-job %d\r\n" % number).startswith(b"RESERVED ")
        client.ask(b"peek-ready\r\n")
        fault_injection.fail(Call.READ, error=errno.EIO, lasting=True)
        other.close()
        fault_injection.heal()
        assert client.job(number)["state"] == "buried"
        assert client.ask(b"stats-tube dead\r\n") == b"NOT_FOUND\r\n"
        assert client.body(number) == b"second" * 100


# --- a model ------------------------------------------------------------------------------------


@dataclass
class Job:
    id: int
    tube: bytes
    state: str = "ready"
    reserves: int = 0
    durable_reserves: int = 0
    kicks: int = 0
    holder: int = -1


limits = st.sampled_from([0, 1, 2, 3])
thens = st.sampled_from([BURY, DELETE, "near", "far", "self"])


class Returns(RuleBasedStateMachine):
    """Jobs by their bodies, which a move keeps."""

    CLIENTS = 3

    @initialize(
        workers=st.sampled_from([1, 2, 3]), policies=st.tuples(*[st.tuples(limits, thens)] * 3)
    )
    def start(self, workers: int, policies: tuple[tuple[int, str], ...]) -> None:
        self.folder: Path | None = None
        self.cluster: Cluster | None = None
        self.rig: Rig | None = None
        self.jobs: dict[bytes, Job] = {}
        self.count = 0
        self.workers = workers
        if workers > 1:
            cluster = self.cluster = Cluster(workers)
            self.tubes = [cluster.tube_on(shard, n) for n in (0, 1) for shard in range(workers)]
        else:
            self.folder = Path(tempfile.mkdtemp())
            self.rig = Rig(self.folder)
            self.tubes = [b"tube-%d" % number for number in range(4)]
        self.policies = {
            tube.decode(): TubePolicy(
                tube.decode(), max_reserves=limit, then=self.action(index, then)
            )
            for index, (tube, (limit, then)) in enumerate(zip(self.tubes, policies, strict=False))
        }
        self.open_all()

    def action(self, index: int, then: str) -> str:
        """`near` is a tube of the same worker, `far` one of the next worker, if there are any."""
        steps = {"near": self.workers, "far": 1, "self": 0}
        if then not in steps:
            return then
        return MOVE + self.tubes[(index + steps[then]) % len(self.tubes)].decode()

    def open_all(self) -> None:
        if self.rig is not None:
            self.rig.core.set_policies(list(self.policies.values()))
            self.clients: list[RigClient | ClusterClient] = [
                self.rig.client() for _ in range(self.CLIENTS)
            ]
        if self.cluster is not None:
            for core in self.cluster.cores:
                assert core is not None
                core.set_policies(list(self.policies.values()))
            self.clients = [self.open(index) for index in range(self.CLIENTS)]

    def open(self, index: int) -> RigClient | ClusterClient:
        if self.rig is not None:
            return self.rig.client()
        assert self.cluster is not None
        return self.cluster.client(index % self.workers)

    def teardown(self) -> None:
        if getattr(self, "cluster", None):
            self.cluster.__exit__(None, None, None)
        if getattr(self, "rig", None):
            self.rig.close()
        if getattr(self, "folder", None):
            shutil.rmtree(self.folder)

    def pick(self, number: int, **wanted: object) -> list[tuple[bytes, Job]]:
        """Return one job with these fields, or an empty list."""
        found = [
            (body, job)
            for body, job in self.jobs.items()
            if all(getattr(job, name) == value for name, value in wanted.items())
        ]
        return [found[number % len(found)]] if found else []

    def comes_back(self, body: bytes, job: Job, state: str = "ready") -> None:
        job.holder = -1
        job.durable_reserves = job.reserves
        policy = self.policies.get(job.tube.decode(), TubePolicy(""))
        if not policy.max_reserves or job.reserves < policy.max_reserves * (1 + job.kicks):
            job.state = state
            if not policy.max_reserves and state == "ready":
                job.durable_reserves = 0  # only a release has an entry
            return
        job.state = "buried"
        if policy.then == DELETE:
            del self.jobs[body]
        elif policy.then.startswith(MOVE):
            target = policy.then.removeprefix(MOVE).encode()
            same = shard_of(target, self.workers) == shard_of(job.tube, self.workers)
            if same and target != job.tube:
                job.tube, job.state, job.id = target, "ready", 0

    @rule(which=st.integers(0, 2), tube=st.integers(0, 3))
    def put(self, which: int, tube: int) -> None:
        self.count += 1
        body = b"%d" % self.count
        name = self.tubes[tube]
        client = self.clients[which]
        client.ask(b"use %b\r\n" % name)
        self.jobs[body] = Job(client.put(body, ttr=TTR), name)

    @rule(which=st.integers(0, 2), number=st.integers(0, 99))
    def reserve(self, which: int, number: int) -> None:
        for _, job in self.pick(number, holder=-1):
            reply = self.clients[which].ask(b"reserve-job %d\r\n" % job.id)
            assert reply.startswith(b"RESERVED ")
            job.reserves += 1
            job.state, job.holder = "reserved", which

    @rule(number=st.integers(0, 99), delay=st.sampled_from([0, 0, LONG]))
    def release(self, number: int, delay: int) -> None:
        for body, job in self.pick(number, state="reserved"):
            client = self.clients[job.holder]
            assert client.ask(b"release %d 9 %d\r\n" % (job.id, delay)) == b"RELEASED\r\n"
            self.comes_back(body, job, "delayed" if delay else "ready")
            job.durable_reserves = job.reserves

    @rule(number=st.integers(0, 99), which=st.integers(0, 2))
    def kick(self, number: int, which: int) -> None:
        for _, job in self.pick(number, state="buried"):
            assert self.clients[which].ask(b"kick-job %d\r\n" % job.id) == b"KICKED\r\n"
            job.kicks += 1
            job.state = "ready"

    @rule(which=st.integers(0, 2))
    def close(self, which: int) -> None:
        self.clients[which].close()
        self.clients[which] = self.open(which)
        for body, job in list(self.jobs.items()):
            if job.holder == which:
                self.comes_back(body, job)

    @precondition(lambda self: self.rig is not None)
    @rule()
    def time_out(self) -> None:
        assert self.rig is not None
        self.rig.advance((TTR + 1) * SECOND)
        for body, job in list(self.jobs.items()):
            if job.holder >= 0:
                self.comes_back(body, job)

    @precondition(lambda self: self.rig is not None)
    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        assert self.rig is not None
        if kill:
            self.rig.close()
        else:
            self.rig.stop()
        self.rig = Rig(self.folder, now=self.rig.now)
        self.open_all()
        for job in self.jobs.values():
            stats = self.clients[0].job(job.id)
            reserves = int(stats["reserves"])
            assert reserves <= job.reserves
            assert kill or reserves >= job.durable_reserves
            # Without the policy a return has no entry, as in beanstalkd.
            policy = self.policies.get(job.tube.decode())
            if not kill and job.holder < 0 and policy and policy.max_reserves:
                assert stats["state"] == job.state
            job.reserves = job.durable_reserves = reserves
            job.state, job.holder = stats["state"], -1

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "clients"):
            return
        client = self.clients[0]
        found = {}
        for tube in self.tubes:
            for row in all_jobs(client, tube):  # type: ignore[arg-type]
                number = int(row["id"])
                body = client.ask(b"peek %d\r\n" % number).split(b"\r\n")[1]
                stats = stats_of(client.ask(b"stats-job %d\r\n" % number))
                kicks, reserves = int(stats["kicks"]), int(stats["reserves"])
                found[body] = (tube, stats["state"], reserves, kicks)
                if body in self.jobs and self.jobs[body].id == 0:
                    self.jobs[body].id = number
                    self.jobs[body].durable_reserves = reserves
                assert self.jobs[body].id == number
        wanted = {
            body: (job.tube, job.state, job.reserves, job.kicks) for body, job in self.jobs.items()
        }
        assert found == wanted


Returns.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestReturns = Returns.TestCase
