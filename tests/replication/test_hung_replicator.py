"""A replicator ends when it is stopped; one that hangs is killed, and the server ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time

import gevent
import pytest

from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process.channel import PONG, STATUS, STOP, Channel, channel_pair
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.messages import ProcessConfig
from beanstalkd_py.server.process.shared_memory import SharedMemory, create_segment
from beanstalkd_py.server.replicator.process import Descriptors, Replicator
from beanstalkd_py.server.replicator.replicator_supervisor import ReplicatorSupervisor


def test_a_silent_replicator_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicatorSupervisor, "heartbeat_limit_s", 0.6)
    monkeypatch.setattr(ReplicatorSupervisor, "heartbeat_interval_s", 0.05)
    ours, theirs = channel_pair()
    ours.setblocking(False)
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    theirs.set_inheritable(False)
    process = ChildProcess(0, pid, Channel(ours), socket.socket())
    ended: list[int] = []
    supervisor = ReplicatorSupervisor(process, ended.append, lambda: None)
    running = gevent.spawn(supervisor.run)
    begun = time.monotonic()
    for _ in range(10):  # it reports and answers for a second
        Channel(theirs).send(PONG)
        Channel(theirs).send(STATUS, {"primary": "a", "epoch": 1, "behind": 0, "unavailable": ""})
        gevent.sleep(0.1)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0) and supervisor.status.epoch == 1
    gevent.sleep(0.8)
    theirs.close()  # as the end of the process does
    assert running.get(timeout=10) == 128 + signal.SIGKILL
    assert ended == [128 + signal.SIGKILL]
    assert 1.5 < time.monotonic() - begun < 5


class StubbornReplicator(Replicator):
    """Has a task that ends at its second cancellation, as `asyncio.wait_for` may cause it."""

    async def _work(self) -> None:
        task = asyncio.create_task(self._swallow())
        await asyncio.wait([task])

    async def _swallow(self) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)


def test_a_stop_ends_tasks_that_swallow_a_cancellation() -> None:
    ours, theirs = channel_pair()
    config = ProcessConfig(os.getpid(), "", 0.0, 0, [], ServeOptions())
    shared = SharedMemory(create_segment())
    Channel(ours).send(STOP)
    begun = time.monotonic()
    with ours, theirs:
        asyncio.run(StubbornReplicator(Channel(theirs), shared, config, Descriptors()).run())
    assert time.monotonic() - begun < 10
