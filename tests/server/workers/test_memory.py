"""A worker returns memory to the system after a peak of jobs."""

from __future__ import annotations

import pytest
from processes import children, eventually
from servers import ours
from wire import Client

from beanstalkd_py.server.process.memory_trim import MAX_WAIT_S, MIN_GAIN, MemoryTrimmer
from beanstalkd_py.server.process.proc_stats import process_usage

MIB = 1 << 20
JOBS, BODY = 50_000, 2_000
AT_A_TIME = 500


def put_and_delete(client: Client, first: int) -> None:
    """Put 100 MB of jobs, then delete all."""
    put = b"put 0 0 60 %d\r\n%b\r\n" % (BODY, b"x" * BODY)
    for _ in range(0, JOBS, AT_A_TIME):
        client.send(put * AT_A_TIME)
        assert all(reply.startswith(b"INSERTED ") for reply in client.replies(AT_A_TIME))
    for start in range(first, first + JOBS, AT_A_TIME):
        numbers = range(start, start + AT_A_TIME)
        client.send(b"".join(b"delete %d\r\n" % number for number in numbers))
        assert set(client.replies(AT_A_TIME)) == {b"DELETED\r\n"}


@pytest.mark.slow
def test_a_worker_returns_memory_after_a_peak() -> None:
    with ours() as server, server.connect(30) as client:
        (worker,) = children(server.pid)
        fresh = process_usage(worker).resident_bytes
        for peak in range(2):
            put_and_delete(client, 1 + peak * JOBS)
            assert eventually(lambda: process_usage(worker).resident_bytes < fresh + 10 * MIB, 20)


class Process:
    """A fake process for MemoryTrimmer."""

    def __init__(self) -> None:
        self.resident = 30 * MIB
        self.jobs = 0
        self.in_use = 30 * MIB
        self.trims = 0
        self.trimmer = MemoryTrimmer(lambda: self.jobs, lambda: self.resident, self._trim)

    def _trim(self) -> None:
        self.trims += 1
        self.resident = self.in_use + self.jobs


def test_memory_of_live_jobs_does_not_trigger_a_trim() -> None:
    process = Process()
    process.jobs, process.resident = 1000 * MIB, 1030 * MIB
    process.trimmer.decide(1, idle=True)
    assert process.trims == 0
    process.jobs = 10 * MIB
    process.trimmer.decide(2, idle=True)
    assert (process.trims, process.resident) == (1, 40 * MIB)


def test_a_small_overhead_is_not_trimmed() -> None:
    process = Process()
    process.resident += MIN_GAIN - 1
    process.trimmer.decide(1, idle=True)
    assert process.trims == 0


def test_a_busy_worker_is_trimmed_later() -> None:
    process = Process()
    process.resident += 100 * MIB
    for now in (0.0, 1.0, MAX_WAIT_S - 0.1):
        process.trimmer.decide(now, idle=False)
    assert process.trims == 0
    process.trimmer.decide(MAX_WAIT_S, idle=False)
    assert process.trims == 1


def test_a_trim_without_gain_is_not_repeated() -> None:
    process = Process()
    process.resident = process.in_use = 500 * MIB
    for now in range(20):
        process.trimmer.decide(now, idle=True)
    assert process.trims == 1
