"""The restart backoff, and the detection of hung workers."""

from __future__ import annotations

import time

import gevent
from processes import eventually

from beanstalkd_py.server.process.supervision import EARLY_EXITS, Heartbeat, RestartBackoff

INTERVAL_S = 0.02
LIMIT_S = 0.2


def test_pauses_double_up_to_ten_seconds() -> None:
    backoff = RestartBackoff()
    pauses = [backoff.delay_after(1) for _ in range(9)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_minute_of_uptime_resets_the_pauses() -> None:
    backoff = RestartBackoff()
    assert [backoff.delay_after(s) for s in (0, 59.9, 60, 0)] == [0.1, 0.2, 0.1, 0.2]


def test_several_early_exits_in_a_row_count_as_restarting() -> None:
    backoff = RestartBackoff()
    seen = []
    for _ in range(EARLY_EXITS):
        seen.append(backoff.keeps_restarting)
        backoff.delay_after(1)
    assert seen == [False] * EARLY_EXITS
    assert backoff.keeps_restarting
    backoff.delay_after(60)
    assert not backoff.keeps_restarting


def test_a_stable_process_stops_counting_as_restarting() -> None:
    backoff = RestartBackoff(stable_after_s=0.1)
    for _ in range(EARLY_EXITS):
        backoff.delay_after(0)
    assert backoff.keeps_restarting
    assert eventually(lambda: not backoff.keeps_restarting)


def beating(answer: bool) -> tuple[Heartbeat, list[float]]:
    asked: list[float] = []

    def ping() -> None:
        asked.append(time.monotonic())
        if answer:
            gevent.spawn(heart.answered)

    heart = Heartbeat(ping, INTERVAL_S, LIMIT_S)
    return heart, asked


def test_no_answer_within_the_limit_ends_the_heartbeat() -> None:
    heart, asked = beating(answer=False)
    began = time.monotonic()
    with gevent.Timeout(5):
        heart.run()
    assert time.monotonic() - began >= LIMIT_S
    assert len(asked) == 1, "pings are sent before the reply"


def test_an_answer_continues_the_heartbeat() -> None:
    heart, asked = beating(answer=True)
    task = gevent.spawn(heart.run)
    gevent.sleep(2 * LIMIT_S)
    assert not task.ready()
    assert len(asked) > 5
    task.kill()


def test_a_stopped_server_gives_its_workers_time_to_answer() -> None:
    heart, _ = beating(answer=True)
    task = gevent.spawn(heart.run)
    gevent.sleep(INTERVAL_S)
    time.sleep(2 * LIMIT_S)  # blocks the whole process, like SIGSTOP
    gevent.sleep(2 * INTERVAL_S)
    assert not task.ready()
    task.kill()
