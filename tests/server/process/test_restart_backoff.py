"""When a worker is started again, and when it counts as hung."""

from __future__ import annotations

import time

import gevent
from processes import eventually

from beanstalkd_py.server.process.restart_backoff import REPEATED, RestartBackoff
from beanstalkd_py.server.process.supervision import Heartbeat

INTERVAL_S = 0.02
LIMIT_S = 0.2


def test_pauses_double_up_to_ten_seconds() -> None:
    backoff = RestartBackoff()
    pauses = [backoff.pause_after(1) for _ in range(9)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_pauses_begin_anew_after_a_minute_of_life() -> None:
    backoff = RestartBackoff()
    assert [backoff.pause_after(s) for s in (0, 59.9, 60, 0)] == [0.1, 0.2, 0.1, 0.2]


def test_several_short_lives_in_a_row_are_repeated() -> None:
    backoff = RestartBackoff()
    seen = []
    for _ in range(REPEATED):
        seen.append(backoff.keeps_restarting)
        backoff.pause_after(1)
    assert seen == [False] * REPEATED
    assert backoff.keeps_restarting
    backoff.pause_after(60)
    assert not backoff.keeps_restarting


def test_a_good_life_after_short_ones_is_seen_while_it_lasts() -> None:
    backoff = RestartBackoff(first_s=0.0, longest_s=0.0, stable_after_s=0.1)
    for _ in range(REPEATED):
        backoff.pause_after(0)
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


def test_silence_for_the_limit_is_the_end() -> None:
    heart, asked = beating(answer=False)
    began = time.monotonic()
    with gevent.Timeout(5):
        heart.run()
    assert time.monotonic() - began >= LIMIT_S
    assert len(asked) == 1, "questions pile up"


def test_whoever_answers_is_asked_again() -> None:
    heart, asked = beating(answer=True)
    task = gevent.spawn(heart.run)
    gevent.sleep(2 * LIMIT_S)
    assert not task.ready()
    assert len(asked) > 5
    task.kill()


def test_a_server_that_was_stopped_gives_its_workers_time_to_answer() -> None:
    heart, _ = beating(answer=True)
    task = gevent.spawn(heart.run)
    gevent.sleep(INTERVAL_S)
    time.sleep(2 * LIMIT_S)  # the whole process, as SIGSTOP would
    gevent.sleep(2 * INTERVAL_S)
    assert not task.ready()
    task.kill()
