"""Workers in processes of their own: signals, and processes and servers that are killed."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from client.workers import (
    LIMIT_S,
    Program,
    connect,
    program,
    restarting,
)
from processes import alive, children, eventually
from servers import Server

from beanstalkd_py.client import Client

RUN_S = 8.0
# Handlers: their lines are `start ID` and `end ID`.
WAITS = "log('start', delivery.id); time.sleep(0.5); log('end', delivery.id)"
HANGS = "log('start', delivery.id); time.sleep(1000)"
COUNTS = pytest.mark.parametrize("count", [0, 2], ids=["in-threads", "in-processes"])


def started(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith("start ")]


def ended(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith("end ")]


def connected(count: int) -> Callable[[list[str]], bool]:
    return lambda lines: sum(line.startswith("Connected") for line in lines) >= count


@COUNTS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_handlers_finish(
    any_server: Server, name: str, folder: Path, count: int, number: signal.Signals
) -> None:
    with connect(any_server, name) as client:
        jobs = [client.put("x") for _ in range(3)]
        with program(folder, any_server.port, name, WAITS, f"processes={count}") as worker:
            worker.wait_for(lambda lines: len(started(lines)) == max(count, 1))
            assert worker.end(number) == 0
            assert sorted(ended(worker.lines())) == sorted(started(worker.lines()))
            assert len(ended(worker.lines())) == max(count, 1)
            assert "Stopped" in worker.lines()[-1]
        assert client.stats_tube(name)["current-jobs-ready"] == len(jobs) - max(count, 1)


@COUNTS
def test_a_signal_to_the_whole_group_lets_handlers_finish(
    server: Server, name: str, folder: Path, count: int
) -> None:
    """As from Ctrl-C in a terminal."""
    with connect(server, name) as client:
        client.put("x")
        with program(folder, server.port, name, WAITS, f"processes={count}") as worker:
            worker.wait_for(started)
            os.killpg(worker.process.pid, signal.SIGINT)
            assert worker.process.wait(LIMIT_S) == 0
            assert len(ended(worker.lines())) == 1


def test_children_that_get_the_signal_later_let_handlers_finish(
    server: Server, name: str, folder: Path
) -> None:
    """As from a service manager, which sends it to all processes."""
    with connect(server, name) as client:
        client.put("x")
        with program(folder, server.port, name, WAITS, "processes=1") as worker:
            worker.wait_for(started)
            (child,) = children(worker.process.pid)
            worker.process.terminate()
            time.sleep(0.1)
            os.kill(child, signal.SIGTERM)
            assert worker.process.wait(LIMIT_S) == 0
            assert len(ended(worker.lines())) == 1


@COUNTS
def test_a_second_signal_makes_running_jobs_ready(
    any_server: Server, name: str, folder: Path, count: int
) -> None:
    with connect(any_server, name) as client:
        job = client.put("x")
        with program(folder, any_server.port, name, HANGS, f"processes={count}") as worker:
            worker.wait_for(started)
            worker.process.terminate()
            time.sleep(0.2)
            assert worker.process.poll() is None
            assert worker.end() == 0
        assert client.reserve(timeout=2).id == job


@COUNTS
def test_running_jobs_are_ready_after_the_grace(
    server: Server, name: str, folder: Path, count: int
) -> None:
    arguments = f"processes={count}, grace=0.3"
    with connect(server, name) as client:
        job = client.put("x")
        with program(folder, server.port, name, HANGS, arguments) as worker:
            worker.wait_for(started)
            assert worker.end() == 0
        assert client.reserve(timeout=2).id == job


def test_a_killed_process_is_replaced_and_its_job_runs_again(
    any_server: Server, name: str, folder: Path
) -> None:
    with program(folder, any_server.port, name, WAITS, "processes=2") as worker:
        worker.wait_for(connected(2))
        before = set(children(worker.process.pid))
        with connect(any_server, name) as client:
            job = client.put("x")
            worker.wait_for(started)
            running = next(line for line in worker.lines() if line.startswith("Started"))
            victim = int(running.split()[1])
            os.kill(victim, signal.SIGKILL)
            worker.wait_for(lambda lines: ended(lines) == [str(job)])
        worker.wait_for(connected(3))
        after = set(children(worker.process.pid))
        assert len(after) == 2
        assert len(after & before) == 1
        assert f"ProcessEnded {worker.process.pid}" in worker.lines()


def test_a_child_that_is_stopped_alone_finishes_its_job(
    server: Server, name: str, folder: Path
) -> None:
    with (
        connect(server, name) as client,
        program(folder, server.port, name, WAITS, "processes=1") as worker,
    ):
        client.put("x")
        worker.wait_for(started)
        (child,) = children(worker.process.pid)
        os.kill(child, signal.SIGTERM)
        worker.wait_for(lambda lines: len(ended(lines)) == 1)
        worker.wait_for(connected(2))
        assert client.stats_tube(name)["cmd-delete"] == 1


def test_a_signal_to_a_child_that_starts_does_not_stop_the_worker(
    server: Server, name: str, folder: Path
) -> None:
    """The child has the signal handlers of its parent until it has its own."""
    prelude = """
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
"""
    arguments = "processes=1, reconnect=Backoff(first=0.01)"
    with program(folder, server.port, name, WAITS, arguments, prelude) as worker:
        worker.wait_for(lambda lines: sum("ProcessEnded" in line for line in lines) >= 3)
        assert worker.process.poll() is None
        assert worker.end() == 0


def test_a_failed_fork_is_tried_again(server: Server, name: str, folder: Path) -> None:
    prelude = """
fork, failures = os.fork, iter(range(50))
def failing_fork():
    if next(failures, None) is not None:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = failing_fork
"""
    arguments = "processes=2, reconnect=Backoff(first=0.01, most=0.02)"
    with program(folder, server.port, name, WAITS, arguments, prelude) as worker:
        worker.wait_for(connected(2))
        assert worker.lines().count(f"ProcessNotStarted {worker.process.pid}") == 50
        assert len(children(worker.process.pid)) == 2
        assert len(list(Path(f"/proc/{worker.process.pid}/fd").iterdir())) < 50, "pipes have leaked"
        assert worker.end() == 0


@pytest.mark.costly
def test_children_end_with_a_parent_that_is_killed(server: Server, name: str, folder: Path) -> None:
    with connect(server, name) as client:
        client.put("x")
        with program(folder, server.port, name, WAITS, "processes=2") as worker:
            worker.wait_for(started)
            found = children(worker.process.pid)
            assert len(found) == 2
            worker.process.kill()
            assert eventually(lambda: not any(map(alive, found)), LIMIT_S)
            assert len(ended(worker.lines())) == 1


@pytest.fixture(params=["--workers=1", "--workers=2"])
def workers(request: pytest.FixtureRequest) -> str:
    argument: str = request.param
    return argument


def kill_child(worker: Program, chance: random.Random) -> None:
    found = children(worker.process.pid)
    if found:
        os.kill(chance.choice(found), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_job_is_done_while_processes_and_the_server_are_killed(
    folder: Path, tmp_path: Path, name: str, workers: str
) -> None:
    """A job that was acknowledged is done at least once, whatever dies and starts again."""
    chance = random.Random(1)
    arguments = "processes=3, threads=2, reconnect=Backoff(first=0.02, most=0.1)"
    acknowledged: set[str] = set()
    body = "time.sleep(0.005); log('end', delivery.body.decode())"
    with (
        restarting(folder, workers) as server,
        program(tmp_path, server.port, name, body, arguments) as worker,
    ):
        end_mono = time.monotonic() + RUN_S
        for number in itertools.count():
            if time.monotonic() > end_mono:
                break
            with connect(server.server, name) as client:
                for index in range(100):
                    client.put(text := f"{number}.{index}", ttr=2)
                    acknowledged.add(text)
            time.sleep(chance.random() / 3)
            kill_child(worker, chance)
            if chance.random() < 0.3:
                server.kill()
                server.start()
        worker.wait_for(lambda lines: acknowledged <= set(ended(lines)), 60)
        with connect(server.server, name) as client:
            assert eventually(lambda: client.stats_tube(name)["current-jobs-reserved"] == 0)
            assert client.stats_tube(name)["current-jobs-ready"] == 0
        assert worker.end() == 0
        lines = worker.lines()
    assert len(acknowledged) >= 500
    assert len(ended(lines)) > len(acknowledged), "no job was lost and done again"
    assert sum(line.startswith("ProcessEnded") for line in lines) >= 5
    assert sum(line.startswith("Disconnected") for line in lines) >= 5


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_each_key_is_one_job_while_processes_and_the_server_are_killed(
    folder: Path, tmp_path: Path, name: str, workers: str
) -> None:
    """Puts are repeated until they are answered; a handler that looks for its key acts once."""
    chance = random.Random(2)
    arguments = "processes=3, threads=2, reconnect=Backoff(first=0.02, most=0.1)"
    (tmp_path / "acted").mkdir()
    body = (
        "time.sleep(0.005); key = delivery.body.decode(); log('end', key, delivery.id); "
        f"os.close(os.open({str(tmp_path / 'acted')!r} + '/' + key, os.O_CREAT | os.O_WRONLY)); "
    )
    repeated: dict[str, int] = {}
    with (
        restarting(folder, workers) as server,
        program(tmp_path, server.port, name, body, arguments) as worker,
    ):
        end = time.monotonic() + RUN_S
        producer = threading.Thread(target=put_until, args=(end, server.port, name, repeated))
        producer.start()
        while producer.is_alive():
            time.sleep(0.1 + chance.random() / 2)
            kill_child(worker, chance)
            if chance.random() < 0.6:
                server.kill()
                server.start()
        keys = set(repeated)
        worker.wait_for(lambda lines: keys <= set(ended(lines)), 60)
        assert worker.end() == 0
        lines = [line.split() for line in worker.lines() if line.startswith("end ")]
    assert len(keys) >= 200
    assert sum(repeated.values()) >= 3, "no put was repeated"
    assert len(lines) > len(keys), "no job was lost and done again"
    assert len({job for _, _, job in lines}) == len({(key, job) for _, key, job in lines})
    jobs = Counter(key for key, _ in {(key, job) for _, key, job in lines})
    assert set(jobs.values()) == {1}, "a key has had two jobs"


def put_until(end: float, port: int, tube: str, repeated: dict[str, int]) -> None:
    """Put a job for each key until the end; `repeated` has how often each put was repeated."""
    for number in itertools.count():
        key = f"key-{number}"
        for attempt in itertools.count():
            try:
                with Client(("127.0.0.1", port), use=tube) as client:
                    client.put(key, ttr=2, unique=key, window=3600)
            except OSError:
                time.sleep(0.01)
                continue
            repeated[key] = attempt
            break
        if time.monotonic() > end:
            return
