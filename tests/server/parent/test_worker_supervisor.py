"""WorkerSupervisor with fake processes that only answer pings, or do not."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator

import gevent
import pytest

from beanstalkd_py import errors
from beanstalkd_py.server.options import ServeOptions
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


class Observer:
    """Records events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def worker_ready(self, supervisor: WorkerSupervisor) -> None:
        self.events.append("ready")

    def worker_ended(self, supervisor: WorkerSupervisor) -> None:
        self.events.append("ended")

    def worker_started(self, supervisor: WorkerSupervisor) -> None:
        self.events.append("started")

    def worker_answered(self, supervisor: WorkerSupervisor) -> None:
        pass  # once per heartbeat

    def wait_for(self, *expected: str) -> None:
        with gevent.Timeout(10):
            while self.events[: len(expected)] != list(expected):
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


def supervisor_of(observer: Observer, *runs: str, again: bool = True) -> WorkerSupervisor:
    """Return a supervisor whose processes behave like this, in order."""
    todo = list(runs)

    def start(_: int) -> ChildProcess:
        how = todo.pop(0)
        if how == "refused":
            raise errors.WorkerError("no processes left", 1)
        return started(how)

    supervisor = WorkerSupervisor(observer, start(0), start if again else None)
    supervisor.heartbeat_interval_s, supervisor.heartbeat_limit_s = INTERVAL_S, LIMIT_S
    return supervisor


def test_a_worker_that_answers_runs_until_the_stop() -> None:
    observer = Observer()
    supervisor = supervisor_of(observer, "answers")
    task = gevent.spawn(supervisor.run)
    observer.wait_for("ready")
    gevent.sleep(3 * LIMIT_S)
    assert observer.events == ["ready"]
    supervisor.stop()
    assert task.get() == 0
    assert observer.events == ["ready", "ended"]


def test_a_worker_that_does_not_answer_is_restarted() -> None:
    observer = Observer()
    supervisor = supervisor_of(observer, "hangs", "answers")
    task = gevent.spawn(supervisor.run)
    observer.wait_for("ready", "ended", "started", "ready")
    gevent.sleep(2 * LIMIT_S)
    supervisor.stop()
    assert task.get() == 0
    assert observer.events == ["ready", "ended", "started", "ready", "ended"]


@pytest.mark.slow
def test_a_failed_restart_is_retried() -> None:
    observer = Observer()
    supervisor = supervisor_of(observer, "hangs", "fails", "refused", "fails", "answers")
    task = gevent.spawn(supervisor.run)
    once = ["started", "ended"]
    observer.wait_for("ready", "ended", *once, *once, "started", "ready")
    supervisor.stop()
    assert task.get() == 0


def test_a_failed_first_start_ends_the_server() -> None:
    observer = Observer()
    assert supervisor_of(observer, "fails", "answers").run() == 10
    assert observer.events == ["ended"]


def test_a_worker_without_restarts_gets_no_heartbeat() -> None:
    observer = Observer()
    supervisor = supervisor_of(observer, "hangs", again=False)
    task = gevent.spawn(supervisor.run)
    observer.wait_for("ready")
    gevent.sleep(2 * LIMIT_S)
    assert not task.ready()
    assert supervisor.process is not None
    os.kill(supervisor.process.pid, signal.SIGKILL)
    assert task.get() == 128 + signal.SIGKILL


@pytest.mark.slow
def test_a_stop_ends_the_restart_backoff() -> None:
    observer = Observer()
    supervisor = supervisor_of(observer, "hangs", *["fails"] * 9)
    task = gevent.spawn(supervisor.run)
    observer.wait_for("ready", *["ended", "started"] * 5, "ended")
    with gevent.Timeout(1):
        supervisor.stop()
        assert task.get() == 0
    assert observer.events[-1] == "ended"


def test_options_that_find_the_channel_full_are_sent_again() -> None:
    """The worker is busy while an operator changes options again and again."""
    supervisor = supervisor_of(Observer(), "answers")
    ours, theirs = channel_pair()
    ours.setblocking(False)
    worker = Channel(theirs)
    first, supervisor.process = supervisor.process, None
    assert first is not None
    supervisor.process = ChildProcess(0, first.pid, Channel(ours), first.connections)
    supervisor.ready = True
    last = 2000
    for number in range(1, last + 1):
        supervisor.change_options(ServeOptions(max_tubes=number))
    seen = []
    while not seen or seen[-1] != last:
        theirs.setblocking(False)
        try:
            message = worker.receive()
        except BlockingIOError:
            gevent.sleep(0.05)
            continue
        assert message is not None
        seen.append(message[1]["max_tubes"])
    assert len(seen) < last
    first.channel.send("stop")
    first.wait(5)
