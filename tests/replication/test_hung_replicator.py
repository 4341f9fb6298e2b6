"""A replicator that hangs is killed, and the server ends, so that it starts again as a standby."""

from __future__ import annotations

import os
import signal
import socket
import time

import gevent
import pytest

from beanstalkd_py.server.process.channel import PONG, STATUS, Channel, channel_pair
from beanstalkd_py.server.process.launch import ChildProcess
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
