"""with expires=: jobs that expire by their own attributes."""

from __future__ import annotations

from pathlib import Path

import pytest
from core.policies.test_puts import actions
from core.policies.test_throttles import Leave, close, release, time_out
from core.rig import SECOND, Rig, RigClient

from beanstalkd_py.core.tube_policy import MOVE, TubePolicy

LONG = 10**6


def put(client: RigClient, expires: int, **arguments: int) -> int:
    client.do(b"with expires=%d" % expires, b"WITH")
    return client.put(**arguments)


def test_ready_and_delayed_jobs_are_deleted_in_time() -> None:
    with Rig() as rig:
        client = rig.client()
        kept, ready, delayed = client.put(), put(client, 10), put(client, 10, delay=LONG)
        assert rig.advance(10 * SECOND - 1) == rig.now.mono + 1
        assert client.body(ready) is not None
        rig.advance(1)
        assert [client.body(job) for job in (kept, ready, delayed)] == [b"x", None, None]
        assert actions(rig)["job_expired"] == 2
        assert actions(rig)["expired"] == 0


@pytest.mark.parametrize("come_back", [release, time_out, close])
@pytest.mark.parametrize("policy", [None, TubePolicy("*", max_reserves=1, then=MOVE + "dead")])
def test_a_reserved_job_is_deleted_when_it_comes_back(
    come_back: Leave, policy: TubePolicy | None
) -> None:
    with Rig() as rig:
        rig.core.set_policies([policy] if policy else [], rig.now)
        client, other = rig.client(), rig.client()
        job = put(client, 10, ttr=30)
        assert client.reserve() == job
        rig.advance(20 * SECOND)
        assert client.job(job)["state"] == "reserved"
        come_back(client, job)
        assert other.body(job) is None
        assert (actions(rig)["job_expired"], actions(rig)["moved"]) == (1, 0)


def test_a_buried_job_stays() -> None:
    with Rig() as rig:
        client = rig.client()
        job = put(client, 10)
        client.bury(job)
        rig.advance(20 * SECOND)
        assert client.job(job)["state"] == "buried"


@pytest.mark.parametrize(("own", "by_policy"), [(10, 20), (20, 10), (10, 10)])
def test_of_a_job_with_both_the_earlier_counts(own: int, by_policy: int) -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", expires=by_policy)], rig.now)
        client = rig.client()
        job = put(client, own)
        rig.advance(10 * SECOND - 1)
        assert client.body(job) is not None
        rig.advance(1)
        assert client.body(job) is None
        counted = actions(rig)
        assert counted["job_expired"] == (own < by_policy)
        assert counted["expired"] == (own >= by_policy)


def test_new_policies_change_nothing_for_it() -> None:
    with Rig() as rig:
        client = rig.client()
        job = put(client, 10)
        for expires in (LONG, 0, 100):
            rig.core.set_policies([TubePolicy("*", expires=expires)], rig.now)
        rig.advance(10 * SECOND)
        assert client.body(job) is None


def test_a_job_that_a_policy_moves_has_no_attributes() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("a", max_reserves=1, then=MOVE + "dead")], rig.now)
        client = rig.client()
        client.use(b"a")
        put(client, 10)
        release(client, client.reserve())
        rig.advance(20 * SECOND)
        client.use(b"dead")
        assert client.stats(b"stats-tube dead")["current-jobs-ready"] == "1"


def test_both_options_together(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        client.do(b"with delay-ms=1500 expires=10", b"WITH")
        job = client.put()
        assert client.job(job)["time-left"] == "1"
        assert client.job(job)["delay"] == "2"
        rig.advance(1500 * 10**6 - 1)
        assert client.job(job)["state"] == "delayed"
        rig.advance(1)
        assert client.job(job)["state"] == "ready"
        rig.advance(9 * SECOND)
        assert client.body(job) is None


def test_a_delay_in_milliseconds_is_clamped_by_max_delay() -> None:
    with Rig() as rig:
        rig.core.set_policies([TubePolicy("*", max_delay=5)], rig.now)
        client = rig.client()
        for ms, left in ((4999, 4), (5000, 5), (5001, 5), (2**32 - 1, 5)):
            client.do(b"with delay-ms=%d" % ms, b"WITH")
            assert client.job(client.put())["time-left"] == str(left)
        assert actions(rig)["max_delay"] == 2
