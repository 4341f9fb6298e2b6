"""Every refused put is counted once, by its reason; for a full disk see binlog/faults."""

from __future__ import annotations

from typing import Any

import pytest
from core.rig import Rig, put_line
from core.workers.cluster import Cluster

from beanstalkd_py.core.limits import Limits
from beanstalkd_py.server.metrics.server_metrics import REFUSED

OUT_OF_MEMORY = b"OUT_OF_MEMORY\r\n"


def refused(counters: Any) -> dict[str, int]:
    """The reasons that have been counted."""
    counts = {reason: int(counters.refused_puts[i]) for i, reason in enumerate(REFUSED)}
    assert len(counts) == len(counters.refused_puts)
    return {reason: count for reason, count in counts.items() if count}


def test_invalid_puts_are_counted_by_reason() -> None:
    with Rig(max_job_size=100) as rig:
        client = rig.client()
        client.put(b"x" * 100)
        assert refused(rig.counters) == {}
        assert client.ask(put_line(b"x" * 101)) == b"JOB_TOO_BIG\r\n"
        assert client.ask(b"put 0 0 9 1\r\nxyz").startswith(b"EXPECTED_CRLF\r\n")
        client.ask(b"\r\n")
        for line in (b"put a 0 9 1\r\n", b"put 0 0 9 1 \r\n", b"put 0 0 9 1\0\r\n"):
            assert client.ask(line) == b"BAD_FORMAT\r\n"
        assert client.ask(b"use -x\r\n") == b"BAD_FORMAT\r\n"
        assert refused(rig.counters) == {"job_too_big": 1, "expected_crlf": 1, "bad_format": 3}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_line_that_is_too_long(workers: int) -> None:
    """For any division into pieces; lines that are no puts are not counted."""
    with Cluster(workers) as cluster:
        client = cluster.client(0)
        for count, line in enumerate((b"put 0 0 9 1" + b" " * 300, b"put " + b"1" * 5000), 1):
            for piece in (line[:100], line[100:224], line[224:250], line[250:]):
                client.send(piece)
            assert client.ask(b"\r\n") == b"BAD_FORMAT\r\n"
            assert refused(cluster.shared.worker[0]) == {"bad_format": count}
        assert client.ask(b"use put " + b"x" * 300 + b"\r\n") == b"BAD_FORMAT\r\n"
        assert refused(cluster.shared.worker[0]) == {"bad_format": 2}


def test_limits_and_drain() -> None:
    with Rig(limits=Limits(memory=1000)) as rig:
        client = rig.client()
        assert client.ask(put_line(b"x" * 900)) == OUT_OF_MEMORY
        rig.shared.draining = 1
        assert client.ask(put_line(b"x")) == b"DRAINING\r\n"
        assert refused(rig.counters) == {"memory_limit": 1, "draining": 1}


def test_a_put_to_another_worker_is_counted_once() -> None:
    with Cluster(2) as cluster:
        client = cluster.client(0)
        there = cluster.tube_on(1)
        client.do(b"use " + there, b"USING " + there)
        client.put()
        counters = [cluster.shared.worker[i] for i in range(2)]
        assert client.ask(b"put 0 0 9 1\r\nxyz").startswith(b"EXPECTED_CRLF\r\n")
        client.ask(b"\r\n")
        cluster.shared.draining = 1
        assert client.ask(put_line(b"x")) == b"DRAINING\r\n"
        cluster.shared.draining = 0
        assert [refused(one) for one in counters] == [{"expected_crlf": 1, "draining": 1}, {}]
        cluster.kill(1)
        cluster.settle()
        assert client.ask(put_line(b"x")) == b"INTERNAL_ERROR\r\n"
        wanted = {"expected_crlf": 1, "draining": 1, "worker_down": 1}
        assert [refused(one) for one in counters] == [wanted, {}]
