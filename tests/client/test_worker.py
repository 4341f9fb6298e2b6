"""A worker in threads: ends of jobs, retries, touches, stops, events."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import greenstalk
import pytest
import trustme
from client.workers import LIMIT_S, Events, connect, restarting, running, serving_unix
from processes import eventually
from server.tls.tls_servers import Files, serving
from servers import Server

from beanstalkd_py.client import (
    Backoff,
    BuryJob,
    Client,
    Connected,
    Delivery,
    Disconnected,
    Event,
    Finished,
    Outcome,
    ReleaseJob,
    Retry,
    Started,
    TooManyAttemptsError,
    Worker,
    log_event,
)
from beanstalkd_py.client.worker.keep_alive import KeepAlive, Touch

AT_ONCE = Backoff(first=0)


@pytest.fixture
def events() -> Events:
    return Events()


def make(server: Server, events: Events, **arguments: object) -> Worker:
    return Worker(("127.0.0.1", server.port), hooks=[events.append], **arguments)


def state_of(server: Server, tube: str, job: int) -> str | None:
    with connect(server, tube) as client:
        try:
            return client.stats_job(job)["state"]
        except greenstalk.NotFoundError:
            return None


def test_a_job_is_deleted_when_its_handler_returns(
    any_server: Server, name: str, events: Events
) -> None:
    worker = make(any_server, events)
    found: list[Delivery] = []
    worker.handler(name)(found.append)
    with connect(any_server, name) as client:
        job = client.put("héllo", priority=7, ttr=50)
        with running(worker):
            (finished,) = events.wait_for(Finished)
    assert found == [Delivery(job, name, "héllo".encode(), 7, 50, 1)]
    assert finished.outcome is Outcome.DELETED
    assert finished.delivery == found[0]
    assert finished.error is None
    assert [type(event) for event in events] == [Connected, Started, Finished]
    assert state_of(any_server, name, job) is None


def test_each_tube_has_its_handler(any_server: Server, name: str, events: Events) -> None:
    """The name of a tube may be a number."""
    worker = make(any_server, events)
    found: list[tuple[str, str]] = []
    tubes = (name, f"00{name[1:]}", "1_0")
    for tube in tubes:
        worker.handler(tube)(lambda delivery, tube=tube: found.append((tube, delivery.tube)))
    with connect(any_server, name) as client, running(worker):
        for tube in tubes:
            client.use(tube)
            client.put("x")
        client.use("default")
        other = client.put("x")
        events.wait_for(Finished, 3)
        assert sorted(found) == sorted((tube, tube) for tube in tubes)
        assert client.stats_job(other)["reserves"] == 0
        client.delete(other)


def test_a_failed_job_is_tried_again(any_server: Server, name: str, events: Events) -> None:
    worker = make(any_server, events)

    @worker.handler(name, retry=Retry(3, AT_ONCE))
    def handle(delivery: Delivery) -> None:
        if delivery.attempt < 3:
            raise ValueError(delivery.attempt)

    with connect(any_server, name) as client, running(worker):
        client.put("x", priority=9)
        found = events.wait_for(Finished, 3)
    assert events.outcomes() == [Outcome.RELEASED, Outcome.RELEASED, Outcome.DELETED]
    assert [one.delivery.attempt for one in found] == [1, 2, 3]
    assert [one.delivery.priority for one in found] == [9, 9, 9]
    assert [repr(one.error) for one in found] == ["ValueError(1)", "ValueError(2)", "None"]


def test_a_failed_job_is_delayed(any_server: Server, name: str, events: Events) -> None:
    worker = make(any_server, events, retry=Retry(backoff=Backoff(first=100, jitter=0)))
    worker.handler(name)(fail)
    with connect(any_server, name) as client, running(worker):
        job = client.put("x")
        (finished,) = events.wait_for(Finished)
        assert finished.delay == 100
        stats = client.stats_job(job)
        assert (stats["state"], stats["delay"]) == ("delayed", 100)


def fail(delivery: Delivery) -> None:
    raise ValueError("no")


def test_a_job_is_buried_after_its_attempts_and_again_after_a_kick(
    any_server: Server, name: str, events: Events
) -> None:
    worker = make(any_server, events, retry=Retry(2, AT_ONCE))
    worker.handler(name)(fail)
    with connect(any_server, name) as client, running(worker):
        job = client.put("x", priority=9)
        events.wait_for(Finished, 2)
        stats = client.stats_job(job)
        assert (stats["state"], stats["pri"]) == ("buried", 9)
        client.kick_job(job)
        events.wait_for(Finished, 4)
        assert client.stats_job(job)["state"] == "buried"
    assert events.outcomes() == [Outcome.RELEASED, Outcome.BURIED] * 2


def test_a_job_whose_last_attempt_ended_outside_of_the_handler_is_buried(
    any_server: Server, name: str, events: Events
) -> None:
    worker = make(any_server, events, retry=Retry(1))
    worker.handler(name)(fail)
    with connect(any_server, name) as client:
        job = client.put("x")
        with connect(any_server, name) as other:
            other.reserve(timeout=0)
        assert eventually(lambda: client.stats_job(job)["state"] == "ready")
        with running(worker):
            (finished,) = events.wait_for(Finished)
        assert client.stats_job(job)["state"] == "buried"
    assert finished.outcome is Outcome.BURIED
    assert isinstance(finished.error, TooManyAttemptsError)
    assert events.of(Started) == []


def test_a_handler_decides(any_server: Server, name: str, events: Events) -> None:
    worker = make(any_server, events, retry=Retry(5, AT_ONCE))

    @worker.handler(name)
    def handle(delivery: Delivery) -> None:
        if delivery.body == b"later":
            raise ReleaseJob(delay=100)
        raise BuryJob("never")

    with connect(any_server, name) as client, running(worker):
        later, never = client.put("later"), client.put("never")
        events.wait_for(Finished, 2)
        assert client.stats_job(later)["state"] == "delayed"
        assert client.stats_job(later)["delay"] == 100
        assert client.stats_job(never)["state"] == "buried"


def test_a_handler_that_exits_ends_no_thread(any_server: Server, name: str, events: Events) -> None:
    worker = make(any_server, events, retry=Retry(3, AT_ONCE))

    @worker.handler(name)
    def handle(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise SystemExit(1)

    with connect(any_server, name) as client, running(worker):
        client.put("x")
        events.wait_for(Finished, 2)
    assert events.outcomes() == [Outcome.RELEASED, Outcome.DELETED]


def test_a_job_is_touched_while_its_handler_runs(
    any_server: Server, name: str, events: Events
) -> None:
    worker = make(any_server, events)
    worker.handler(name)(lambda delivery: time.sleep(2.5))
    with connect(any_server, name) as client, running(worker):
        client.put("x", ttr=1)
        events.wait_for(Started)
        with pytest.raises(greenstalk.TimedOutError):
            client.reserve(timeout=2)
        (finished,) = events.wait_for(Finished)
    assert finished.outcome is Outcome.DELETED
    assert not finished.delivery.lost.is_set()


def test_threads_run_handlers_at_once(any_server: Server, name: str, events: Events) -> None:
    worker = make(any_server, events, threads=3)
    barrier = threading.Barrier(3)
    worker.handler(name)(lambda delivery: barrier.wait(LIMIT_S))
    with connect(any_server, name) as client, running(worker):
        for _ in range(6):
            client.put("x")
        events.wait_for(Finished, 6)
    assert events.outcomes() == [Outcome.DELETED] * 6


@pytest.mark.costly
def test_many_short_jobs_with_touches(server: Server, name: str, events: Events) -> None:
    """No touch gets between a command of the next job and its reply."""
    worker = make(server, events, threads=4)
    worker.handler(name)(lambda delivery: time.sleep(0.001 * (delivery.id % 3)))
    with connect(server, name) as client:
        for _ in range(2000):
            client.put("x", ttr=5)  # a busy machine may delay a thread for more than a second
        with running(worker):
            events.wait_for(Finished, 2000)
    assert set(events.outcomes()) == {Outcome.DELETED}
    assert len(events.of(Connected)) == 4


def record_touches(monkeypatch: pytest.MonkeyPatch) -> list[Touch]:
    """Return a list that gets the touch of each delivery."""
    touches: list[Touch] = []
    holding = KeepAlive.holding

    def recorded(
        keep_alive: KeepAlive, delivery: Delivery, touch: Touch
    ) -> AbstractContextManager[None]:
        touches.append(touch)
        return holding(keep_alive, delivery, touch)

    monkeypatch.setattr(KeepAlive, "holding", recorded)
    return touches


def test_a_touch_does_not_wait_for_the_end_of_its_job(
    server: Server, name: str, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a slow reply to a delete would delay the touches of all other jobs."""
    touches = record_touches(monkeypatch)
    delete = Client.delete
    deleting, may_delete = threading.Event(), threading.Event()

    def slow_delete(client: Client[bytes], job: greenstalk.Job[bytes]) -> None:
        deleting.set()
        assert may_delete.wait(LIMIT_S)
        delete(client, job)

    monkeypatch.setattr(Client, "delete", slow_delete)
    worker = make(server, events)
    worker.handler(name)(lambda delivery: None)
    with connect(server, name) as client, running(worker):
        client.put("x")
        assert deleting.wait(LIMIT_S)
        results: list[bool] = []
        touching = threading.Thread(target=lambda: results.append(touches[0]()))
        touching.start()
        touching.join(2)
        ended_in_time = not touching.is_alive()
        may_delete.set()
        events.wait_for(Finished)
        touching.join()
    assert ended_in_time
    assert results == [True]
    assert events.outcomes() == [Outcome.DELETED]


def test_a_touch_that_comes_too_late_is_not_sent(
    server: Server, name: str, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection waits in the next reserve then."""
    touches = record_touches(monkeypatch)
    worker = make(server, events)
    worker.handler(name)(lambda delivery: None)
    with connect(server, name) as client, running(worker):
        client.put("x")
        events.wait_for(Finished)
        late = threading.Thread(target=touches[0])
        late.start()
        client.put("y")
        events.wait_for(Finished, 2)
        late.join()
    assert events.outcomes() == [Outcome.DELETED] * 2
    assert len(events.of(Connected)) == 1


def test_a_stop_of_an_idle_worker_is_prompt(any_server: Server, name: str, events: Events) -> None:
    worker = make(any_server, events, threads=2)
    worker.handler(name)(fail)
    with running(worker):
        events.wait_for(Connected, 2)
        time.sleep(0.1)
        start = time.monotonic()
        worker.stop()
    assert time.monotonic() - start < 1
    assert events.of(Disconnected) == []


def test_a_stop_lets_the_handler_finish_and_reserves_nothing_more(
    any_server: Server, name: str, events: Events
) -> None:
    worker = make(any_server, events)
    may_end = threading.Event()
    worker.handler(name)(lambda delivery: may_end.wait(LIMIT_S))
    with connect(any_server, name) as client:
        first, second = client.put("x"), client.put("y")
        with running(worker):
            events.wait_for(Started)
            worker.stop()
            time.sleep(0.1)
            assert client.stats_job(first)["state"] == "reserved"
            may_end.set()
        assert state_of(any_server, name, first) is None
        assert client.stats_job(second)["state"] == "ready"
    assert events.outcomes() == [Outcome.DELETED]


def test_jobs_are_ready_after_the_grace(any_server: Server, name: str, events: Events) -> None:
    worker = make(any_server, events, grace=0.2)
    may_end = threading.Event()
    worker.handler(name)(lambda delivery: may_end.wait(LIMIT_S))
    with connect(any_server, name) as client:
        job = client.put("x")
        with running(worker):
            events.wait_for(Started)
        assert client.reserve(timeout=2).id == job
        may_end.set()
        (finished,) = events.wait_for(Finished)
    assert finished.outcome is Outcome.LOST
    assert finished.delivery.lost.is_set()


def test_a_stop_before_the_start(server: Server, name: str, events: Events) -> None:
    worker = make(server, events)
    worker.handler(name)(fail)
    worker.stop()
    worker.run()
    assert events.of(Started) == []


@pytest.mark.costly
def test_a_restart_of_the_server(folder: Path, name: str, events: Events) -> None:
    may_end = threading.Event()
    with restarting(folder) as server:
        arguments = {"reconnect": Backoff(first=0.05, most=0.2)}
        worker = Worker(("127.0.0.1", server.port), hooks=[events.append], **arguments)

        @worker.handler(name)
        def handle(delivery: Delivery) -> None:
            if not may_end.is_set():
                assert delivery.lost.wait(LIMIT_S)

        with running(worker):
            events.wait_for(Connected)
            with connect(server.server, name) as client:
                client.put("x", ttr=1)
            events.wait_for(Started)
            server.kill()
            (finished,) = events.wait_for(Finished)
            assert finished.outcome is Outcome.LOST
            assert len(events.wait_for(Disconnected, 2)) >= 2
            may_end.set()
            server.start()
            events.wait_for(Finished, 2)
        assert events.outcomes() == [Outcome.LOST, Outcome.DELETED]


@pytest.mark.parametrize("failing", ["keep-alive", "consumer-0", "consumer-1"])
def test_a_thread_that_cannot_start_ends_the_others(
    server: Server, name: str, events: Events, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def limited(thread: threading.Thread) -> None:
        if thread.name == failing:
            raise RuntimeError("can't start new thread")
        start(thread)
        started.append(thread)

    worker = make(server, events, threads=2)
    worker.handler(name)(fail)
    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(RuntimeError, match="can't start"):
        worker.run()
    assert len(started) == ["keep-alive", "consumer-0", "consumer-1"].index(failing)
    assert eventually(lambda: not any(thread.is_alive() for thread in started))


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_a_hook_that_fails_is_logged(
    server: Server,
    name: str,
    events: Events,
    caplog: pytest.LogCaptureFixture,
    kind: type[BaseException],
) -> None:
    def hook(event: Event) -> None:
        raise kind("a hook")

    worker = Worker(("127.0.0.1", server.port), hooks=[hook, events.append])
    worker.handler(name)(lambda delivery: None)
    with connect(server, name) as client, running(worker):
        client.put("x")
        events.wait_for(Finished)
    assert events.outcomes() == [Outcome.DELETED]
    assert "a hook" in caplog.text


def test_the_log(server: Server, name: str, caplog: pytest.LogCaptureFixture) -> None:
    events = Events()
    worker = Worker(
        ("127.0.0.1", server.port), hooks=[log_event, events.append], retry=Retry(2, AT_ONCE)
    )
    worker.handler(name)(fail)
    caplog.set_level(logging.DEBUG, "beanstalkd_py.worker")
    with connect(server, name) as client, running(worker):
        job = client.put("x")
        events.wait_for(Finished, 2)
    title = f"job {job} of tube {name}, attempt"
    found = [
        (record.levelname, record.getMessage().split(" after")[0]) for record in caplog.records
    ]
    assert found == [
        ("INFO", "connected"),
        ("DEBUG", f"{title} 1: started"),
        ("WARNING", f"{title} 1: released"),
        ("DEBUG", f"{title} 2: started"),
        ("ERROR", f"{title} 2: buried"),
    ]
    last = caplog.records[-1]
    assert (last.job, last.tube, last.attempt, last.outcome) == (job, name, 2, "buried")
    assert "ValueError: no" in caplog.text


def test_unix_sockets(tmp_path: Path, name: str, events: Events) -> None:
    with serving_unix(tmp_path / "socket") as path:
        worker = Worker(path, hooks=[events.append])
        worker.handler(name)(lambda delivery: None)
        with Client(path, use=name) as client, running(worker):
            client.put("x")
            events.wait_for(Finished)
    assert events.outcomes() == [Outcome.DELETED]


@pytest.mark.costly
def test_tls(tmp_path: Path, name: str, events: Events) -> None:
    with serving(Files(tmp_path, trustme.CA())) as both, connect(both.server, name) as client:
        client.put("x", ttr=1)
        worker = Worker(("localhost", both.port), hooks=[events.append], tls=both.files.context())
        worker.handler(name)(lambda delivery: time.sleep(0.5))
        with running(worker):
            events.wait_for(Finished)
        assert events.outcomes() == [Outcome.DELETED]


def test_wrong_arguments(name: str) -> None:
    address = ("127.0.0.1", 1)
    for arguments in ({"threads": 0}, {"processes": -1}):
        with pytest.raises(ValueError, match="worker"):
            Worker(address, **arguments)
    worker = Worker(address)
    with pytest.raises(ValueError, match="no handler"):
        worker.run()
    worker.handler(name)(fail)
    with pytest.raises(ValueError, match="has a handler"):
        worker.handler(name)(fail)


@pytest.mark.parametrize(
    ("failures", "delay"), [(1, 1), (2, 2), (5, 16), (12, 2048), (13, 3600), (10**9, 3600)]
)
def test_backoff(failures: int, delay: float) -> None:
    assert Backoff(jitter=0).delay(failures) == delay
    some = [Backoff(jitter=0.5).delay(failures) for _ in range(100)]
    assert delay / 2 <= min(some) < max(some) <= delay
