"""One worker's place, with processes that do no more than answer or not."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator

import gevent
import pytest

from beanstalkd_py import errors
from beanstalkd_py.server.parent.worker_supervisor import WorkerSupervisor
from beanstalkd_py.server.process.channel import Channel, channel_pair
from beanstalkd_py.server.process.launch import ChildProcess

INTERVAL_S = 0.05
LIMIT_S = 0.3

WORKER = """
import socket, sys
from beanstalkd_py.server.process.channel import Channel
channel = Channel(socket.socket(fileno=int(sys.argv[1])))
how = sys.argv[2]
if how == "fails":
    channel.send("failed", 10, "no folder")
    sys.exit(10)
channel.send("ready")
while (message := channel.receive()) not in (None, ["stop"]):
    if message == ["ping"] and how == "answers":
        channel.send("pong")
"""


class Owner:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def worker_ready(self, keeper: WorkerSupervisor) -> None:
        self.heard.append("ready")

    def worker_ended(self, keeper: WorkerSupervisor) -> None:
        self.heard.append("ended")

    def worker_started(self, keeper: WorkerSupervisor) -> None:
        self.heard.append("started")

    def worker_answered(self, keeper: WorkerSupervisor) -> None:
        pass  # every second

    def wait_for(self, *expected: str) -> None:
        with gevent.Timeout(10):
            while self.heard[: len(expected)] != list(expected):
                gevent.sleep(0.01)


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with gevent.Timeout(30):
        yield


def started(how: str) -> ChildProcess:
    ours, theirs = channel_pair()
    connections, _ = socket.socketpair()
    os.set_inheritable(theirs.fileno(), True)
    command = [sys.executable, "-c", WORKER, str(theirs.fileno()), how]
    pid = os.posix_spawn(sys.executable, command, os.environ)
    theirs.close()
    ours.setblocking(False)
    return ChildProcess(0, pid, Channel(ours), connections)


def keeper_of(owner: Owner, *lives: str, again: bool = True) -> WorkerSupervisor:
    """A place whose processes behave like this, one after the other."""
    todo = list(lives)

    def start(_: int) -> ChildProcess:
        how = todo.pop(0)
        if how == "refused":
            raise errors.WorkerError("no processes left", 1)
        return started(how)

    return WorkerSupervisor(owner, start(0), start if again else None, INTERVAL_S, LIMIT_S)


def test_whoever_answers_lives_until_it_is_told_to_stop() -> None:
    owner = Owner()
    keeper = keeper_of(owner, "answers")
    task = gevent.spawn(keeper.run)
    owner.wait_for("ready")
    gevent.sleep(3 * LIMIT_S)
    assert owner.heard == ["ready"]
    keeper.stop()
    assert task.get() == 0
    assert owner.heard == ["ready", "ended"]


def test_whoever_does_not_answer_is_replaced() -> None:
    owner = Owner()
    keeper = keeper_of(owner, "hangs", "answers")
    task = gevent.spawn(keeper.run)
    owner.wait_for("ready", "ended", "started", "ready")
    gevent.sleep(2 * LIMIT_S)
    keeper.stop()
    assert task.get() == 0
    assert owner.heard == ["ready", "ended", "started", "ready", "ended"]


@pytest.mark.slow
def test_a_failure_after_a_good_start_is_tried_again() -> None:
    owner = Owner()
    keeper = keeper_of(owner, "hangs", "fails", "refused", "fails", "answers")
    task = gevent.spawn(keeper.run)
    once = ["started", "ended"]
    owner.wait_for("ready", "ended", *once, *once, "started", "ready")
    keeper.stop()
    assert task.get() == 0


def test_a_failure_at_the_first_start_is_the_end() -> None:
    owner = Owner()
    assert keeper_of(owner, "fails", "answers").run() == 10
    assert owner.heard == ["ended"]


def test_a_worker_that_is_not_to_be_replaced_is_not_asked_either() -> None:
    owner = Owner()
    keeper = keeper_of(owner, "hangs", again=False)
    task = gevent.spawn(keeper.run)
    owner.wait_for("ready")
    gevent.sleep(2 * LIMIT_S)
    assert not task.ready()
    assert keeper.process is not None
    os.kill(keeper.process.pid, signal.SIGKILL)
    assert task.get() == 128 + signal.SIGKILL


@pytest.mark.slow
def test_a_stop_ends_the_pause_before_the_next_process() -> None:
    owner = Owner()
    keeper = keeper_of(owner, "hangs", *["fails"] * 9)
    task = gevent.spawn(keeper.run)
    owner.wait_for("ready", *["ended", "started"] * 5, "ended")
    with gevent.Timeout(1):
        keeper.stop()
        assert task.get() == 0
    assert owner.heard[-1] == "ended"
