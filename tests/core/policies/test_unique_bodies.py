"""unique = "body": a put inserts nothing if a job of the tube has the same body."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from binlog.reader import read_folder
from core.policies.test_puts import actions
from core.policies.test_throttles import release
from core.rig import Rig, put_line
from core.workers.cluster import Cluster

from beanstalkd_py.core.tube_policy import BODY, MOVE, TubePolicy

POLICIES = [TubePolicy("a", unique=BODY)]


def test_equal_bodies_are_one_job() -> None:
    with Rig() as rig:
        rig.core.set_policies(POLICIES, rig.now)
        client = rig.client()
        client.use(b"a")
        first = client.put(b"same")
        assert client.put(b"same", pri=9, delay=9, ttr=9) == first
        assert client.put(b"other") != first
        assert client.put(b"") != client.put(b"\0")
        assert actions(rig)["duplicate"] == 1
        client.do(b"delete %d" % first, b"DELETED")
        assert client.put(b"same") > first


def test_only_in_its_tubes() -> None:
    with Rig() as rig:
        rig.core.set_policies(POLICIES, rig.now)
        client = rig.client()
        assert client.put(b"same") != client.put(b"same")
        client.use(b"a")
        first = client.put(b"same")
        assert client.put(b"same") == first


def test_an_explicit_key_replaces_that_of_the_body() -> None:
    with Rig() as rig:
        rig.core.set_policies(POLICIES, rig.now)
        client = rig.client()
        client.use(b"a")
        by_body = client.put(b"k")
        client.do(b"with unique=k", b"WITH")
        by_key = client.put(b"k")
        assert by_key != by_body
        client.do(b"with unique=k", b"WITH")
        assert client.put(b"other") == by_key
        client.do(b"with expires=100", b"WITH")
        assert client.put(b"k") == by_body


def test_a_moved_job_frees_its_key() -> None:
    with Rig() as rig:
        policy = TubePolicy("a", unique=BODY, max_reserves=1, then=MOVE + "a.dead")
        rig.core.set_policies([policy, TubePolicy("*", unique=BODY)], rig.now)
        client = rig.client()
        client.use(b"a")
        first = client.put(b"same")
        assert client.reserve() == first
        assert client.put(b"same") == first
        release(client, first)
        second = client.put(b"same")
        assert second > first
        client.use(b"a.dead")
        assert client.put(b"same") > second


def test_jobs_keep_their_keys_when_policies_change(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        client.use(b"a")
        before = client.put(b"same")
        rig.core.set_policies(POLICIES, rig.now)
        first = client.put(b"same")
        assert first != before
        rig.core.set_policies([], rig.now)
        assert client.put(b"same") > first
    with Rig(folder) as rig:
        rig.core.set_policies(POLICIES, rig.now)
        client = rig.client()
        client.use(b"a")
        assert client.put(b"same") == first


def test_a_policy_that_comes_while_a_body_arrives() -> None:
    with Rig() as rig:
        client = rig.client()
        client.use(b"a")
        data = put_line(b"same")
        client.send(data[:-3])
        rig.core.set_policies(POLICIES, rig.now)
        assert client.ask(data[-3:]) == b"INSERTED 1\r\n"
        client.send(data[:-3])
        rig.core.set_policies([], rig.now)
        assert client.ask(data[-3:]) == b"INSERTED 2\r\n"
        assert client.put(b"same") == 3


@pytest.mark.parametrize("body_memory", [0, 1 << 20])
def test_the_key_is_a_hash_of_tube_and_body(folder: Path, body_memory: int) -> None:
    bodies = [bytes(at % 251 for at in range(size)) for size in (*range(130), 1000, 65535)]
    with Rig(folder, file_size=1 << 20, body_memory=body_memory) as rig:
        rig.core.set_policies(POLICIES, rig.now)
        client = rig.client()
        client.use(b"a")
        for body in bodies:
            client.put(body)
    found = [entry.unique_key for entry in read_folder(folder) if entry.is_attribute_entry]
    assert found == [hashlib.blake2s(b"a\1" + body, digest_size=16).hexdigest() for body in bodies]


def test_tubes_of_other_workers() -> None:
    with Cluster(3) as cluster:
        for core in cluster.cores:
            assert core is not None
            core.set_policies([TubePolicy("*", unique=BODY)])
        tubes = [cluster.tube_on(shard) for shard in range(3)]
        jobs: dict[bytes, int] = {}
        for shard in range(3):
            client = cluster.client(shard)
            for tube in tubes:
                client.do(b"use " + tube, b"USING " + tube)
                job = client.put(b"same")
                assert jobs.setdefault(tube, job) == job
        assert len(set(jobs.values())) == 3
