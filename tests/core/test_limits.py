"""Limits of memory and tubes: rejected commands, unaffected commands, and counters."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from core.rig import Rig, put_line
from core.workers.cluster import Cluster, total
from wire import CRLF

from beanstalkd_py.core._core import lib
from beanstalkd_py.core.limits import Limits

REFUSED = b"OUT_OF_MEMORY\r\n"
JOB = 214  # bytes of a job of 100 bytes, as docs/operations/limits.md states
BODY = b"x" * 100


def test_puts_are_refused_beyond_the_limit_and_everything_else_goes_on() -> None:
    with Rig(limits=Limits(memory=3 * JOB)) as rig:
        client = rig.client()
        numbers = [client.put(BODY) for _ in range(3)]
        assert rig.counters.job_bytes == 3 * JOB
        assert client.ask(put_line(BODY)) == REFUSED
        assert client.ask(put_line(b"")) == REFUSED
        assert rig.counters.refused_puts[lib.BS_REFUSED_MEMORY_LIMIT] == 2
        assert client.reserve() == numbers[0]
        client.do(b"release %d 5 0" % numbers[0], b"RELEASED")
        client.bury(numbers[1])
        client.do(b"kick 9", b"KICKED 1")
        client.do(b"touch 7", b"NOT_FOUND")
        assert client.body(numbers[2]) == BODY
        client.do(b"delete %d" % numbers[2], b"DELETED")
        client.put(BODY)
        assert client.ask(put_line(BODY)) == REFUSED


def test_a_refused_body_is_no_command_and_takes_no_id() -> None:
    with Rig(limits=Limits(memory=JOB)) as rig:
        client = rig.client()
        number = client.put(BODY)
        body = b"delete %d\r\n" % number * 9
        assert client.ask(put_line(body) + b"list-tube-used\r\n") == REFUSED + b"USING default\r\n"
        client.do(b"delete %d" % number, b"DELETED")
        assert client.put(BODY) == number + 1


def test_jobs_that_are_still_arriving_count() -> None:
    with Rig(limits=Limits(memory=1000)) as rig:
        slow, quick = rig.client(), rig.client()
        slow.send(b"put 0 0 9 800\r\n")
        assert quick.ask(put_line(BODY)) == REFUSED
        slow.close()
        quick.put(BODY)


@pytest.mark.parametrize("size", [0, 1, 37, 99, 100, 101, 5000])
def test_the_counted_memory_is_that_of_malloc(size: int) -> None:
    with Rig(limits=Limits()) as rig:
        rig.client().put(b"x" * size)
        allocated = -(-(82 + size + 2 + 8) // 16) * 16
        assert rig.counters.job_bytes == allocated + 22


def test_nothing_is_left_when_all_jobs_have_gone(tmp_path: Path) -> None:
    """In all states of jobs, and after a restart."""
    dice = random.Random(7)
    with Rig(tmp_path, sync_interval_ns=-1) as rig:
        client = rig.client()
        numbers = [
            client.put(b"x" * dice.randrange(300), delay=dice.randrange(2)) for _ in range(99)
        ]
        for number in numbers[::3]:
            client.do(b"delete %d" % number, b"DELETED")
        client.ask(b"put 0 0 9 2\r\nxxxx")  # EXPECTED_CRLF
        before = rig.counters.job_bytes
        rig.stop()
    with Rig(tmp_path, sync_interval_ns=-1) as rig:
        assert rig.counters.job_bytes == before
        client = rig.client()
        for number in numbers:
            client.ask(b"delete %d\r\n" % number)
        assert rig.counters.job_bytes == 0


def test_a_binlog_with_more_than_the_limit_is_served(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        number = rig.client().put(BODY)
        rig.stop()
    with Rig(tmp_path, limits=Limits(memory=100)) as rig:
        client = rig.client()
        assert client.ask(put_line(b"")) == REFUSED
        assert client.reserve() == number
        client.do(b"delete %d" % number, b"DELETED")
        assert client.ask(put_line(BODY)) == REFUSED
        client.ask(b"")
        rig.core.limit(Limits(memory=JOB), rig.now)
        client.put(BODY)


def test_memory_of_all_workers_is_one_sum() -> None:
    with Cluster(2, limits=Limits(memory=2 * JOB)) as cluster:
        here, there = cluster.tube_on(0), cluster.tube_on(1)
        client = cluster.client(0)
        number = client.put(BODY, tube=there)
        client.put(BODY, tube=here)
        for tube in (here, there):
            for home in (0, 1):
                line = b"use %b\r\n" % tube + put_line(BODY)
                assert cluster.client(home).ask(line) == b"USING %b\r\n" % tube + REFUSED
        assert total(cluster, "job_bytes") == 2 * JOB
        client.do(b"delete %d" % number, b"DELETED")
        client.put(BODY, tube=here)
        assert total(cluster, "job_bytes") == 2 * JOB


# --- tubes --------------------------------------------------------------------------------------


def test_no_new_tubes_beyond_the_limit() -> None:
    with Rig(limits=Limits(tubes=3)) as rig:
        client = rig.client()
        client.do(b"use a", b"USING a")
        client.do(b"watch b", b"WATCHING 2")
        client.do(b"use c", b"OUT_OF_MEMORY")
        client.do(b"watch c", b"OUT_OF_MEMORY")
        assert rig.counters.refused_tubes == 2
        client.do(b"list-tube-used", b"USING a")
        client.do(b"use b", b"USING b")  # and a is no more
        client.do(b"watch c", b"WATCHING 3")
        client.do(b"watch a", b"OUT_OF_MEMORY")
        client.do(b"watch c", b"WATCHING 3")
        client.put()


@pytest.mark.parametrize("home", [0, 1])
def test_tubes_of_all_workers_are_one_sum_and_existing_ones_go_on(home: int) -> None:
    with Cluster(2, limits=Limits(tubes=3)) as cluster:
        here, there = cluster.tube_on(0), cluster.tube_on(1)
        first = cluster.client(0)
        first.put(tube=here)
        first.put(tube=there)
        client = cluster.client(home)
        for verb, done in ((b"use", b"USING %b"), (b"watch", b"WATCHING %d")):
            for shard in (0, 1):
                client.do(b"%b %b" % (verb, cluster.tube_on(shard, 1)), b"OUT_OF_MEMORY")
            client.do(b"%b %b" % (verb, here), done % (here if verb == b"use" else 2))
            client.do(b"%b %b" % (verb, there), done % (there if verb == b"use" else 3))
        assert client.reserve() is not None
        assert sorted(client.names(b"list-tubes")) == sorted(
            ["default", here.decode(), there.decode()]
        )


def test_rejections_keep_their_place_among_replies() -> None:
    with Cluster(2, limits=Limits(tubes=2)) as cluster:
        there = cluster.tube_on(1)
        client = cluster.client(0)
        client.put(tube=there)
        other = cluster.client(0)
        new = cluster.tube_on(1, 1)
        lines = [b"use " + there, b"peek-ready", b"use " + new, b"kick 1", b"watch " + there, b"x"]
        assert other.ask(CRLF.join([*lines, b""])) == (
            b"USING %b\r\nFOUND 1 1\r\nx\r\nOUT_OF_MEMORY\r\nKICKED 0\r\n"
            b"WATCHING 2\r\nUNKNOWN_COMMAND\r\n" % there
        )


def test_a_worker_that_dies_while_it_is_asked() -> None:
    with Cluster(2, limits=Limits(tubes=1)) as cluster:
        client = cluster.client(0)
        client.core.feed(client.session, b"use %b\r\nlist-tube-used\r\n" % cluster.tube_on(1))
        cluster.turn(0)
        cluster.kill(1)
        cluster.settle()
        assert client.read().endswith(b"USING default\r\n")
