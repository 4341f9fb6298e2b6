"""delete, release, bury, touch, kick and peek: permissions and the job's new state."""

from __future__ import annotations

import pytest
from wire import Client, Connect, in_tube

NOT_FOUND = b"NOT_FOUND\r\n"
STATES = ["ready", "delayed", "buried", "reserved"]


def job_in_state(client: Client, state: str) -> int:
    """Put a job into the used tube and move it to this state; only this client can hold it."""
    job = client.put(pri=7, delay=100 if state == "delayed" else 0)
    if state == "buried":
        client.bury(job, pri=7)
    elif state == "reserved":
        assert client.ask(b"reserve-job %d\r\n" % job).startswith(b"RESERVED ")
    assert client.job_stats(job)["state"] == state
    return job


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("holder", [True, False])
@pytest.mark.parametrize(
    ("command", "reply", "good_states"),
    [
        (b"delete %d\r\n", b"DELETED\r\n", {"ready", "delayed", "buried", "reserved"}),
        (b"release %d 7 0\r\n", b"RELEASED\r\n", {"reserved"}),
        (b"bury %d 7\r\n", b"BURIED\r\n", {"reserved"}),
        (b"touch %d\r\n", b"TOUCHED\r\n", {"reserved"}),
        (b"kick-job %d\r\n", b"KICKED\r\n", {"delayed", "buried"}),
    ],
)
def test_the_permissions_for_a_job(
    connect: Connect,
    client: Client,
    state: str,
    holder: bool,
    command: bytes,
    reply: bytes,
    good_states: set[str],
) -> None:
    job = job_in_state(client, state)
    before = client.job_stats(job)
    actor = client if holder else connect()
    allowed = state in good_states and (holder or state != "reserved")
    assert actor.ask(command % job) == (reply if allowed else NOT_FOUND)
    if not allowed:
        assert client.job_stats(job) == before


def test_delete_removes_the_job(client: Client, tube: bytes) -> None:
    jobs = [job_in_state(client, state) for state in ("delayed", "buried", "reserved", "ready")]
    for job in jobs:
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        for command in (b"delete", b"peek", b"stats-job", b"kick-job", b"reserve-job", b"touch"):
            assert client.ask(b"%b %d\r\n" % (command, job)) == NOT_FOUND
    stats = client.stats(b"stats-tube " + tube)
    assert (stats["cmd-delete"], stats["total-jobs"]) == ("4", "4")
    assert all(value == "0" for key, value in stats.items() if key.startswith("current-jobs"))


def test_cmd_delete_counts_in_the_tube_of_the_job(
    connect: Connect, client: Client, tube: bytes
) -> None:
    job = client.put()
    other = in_tube(connect(), tube + b".other")
    assert other.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert other.ask(b"delete %d\r\n" % job) == NOT_FOUND
    assert client.stats(b"stats-tube " + tube)["cmd-delete"] == "1"
    assert client.stats(b"stats-tube %b.other" % tube)["cmd-delete"] == "0"


@pytest.mark.parametrize(("delay", "state"), [(0, "ready"), (100, "delayed")])
def test_release(client: Client, delay: int, state: str) -> None:
    job = client.put(pri=5, ttr=50)
    client.reserve()
    assert client.ask(b"release %d 2000 %d\r\n" % (job, delay)) == b"RELEASED\r\n"
    stats = client.job_stats(job)
    assert (stats["state"], stats["pri"], stats["delay"], stats["ttr"]) == (
        state,
        "2000",
        str(delay),
        "50",
    )
    assert (stats["releases"], stats["reserves"], stats["timeouts"]) == ("1", "1", "0")
    assert stats["time-left"] == ("0" if state == "ready" else "99")


def test_released_jobs_are_ordered_by_their_new_priority(client: Client) -> None:
    jobs = [client.put(pri=pri) for pri in (1, 2, 3)]
    for _ in jobs:
        client.reserve()
    for job, pri in zip(jobs, (6, 4, 5), strict=True):
        assert client.ask(b"release %d %d 0\r\n" % (job, pri)) == b"RELEASED\r\n"
    assert [client.reserve() for _ in jobs] == [jobs[1], jobs[2], jobs[0]]


def test_bury_keeps_the_new_priority_through_kick(client: Client) -> None:
    job = client.put(pri=5)
    client.reserve()
    assert client.ask(b"bury %d 9\r\n" % job) == b"BURIED\r\n"
    assert client.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert client.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
    stats = client.job_stats(job)
    keys = ("state", "pri", "buries", "kicks", "reserves", "time-left")
    assert [stats[key] for key in keys] == ["ready", "9", "1", "1", "1", "0"]


def test_kick_takes_buried_jobs_in_the_order_of_burying(client: Client) -> None:
    jobs = [client.put(pri=pri) for pri in (1, 2, 3, 4)]
    for job in (jobs[2], jobs[0], jobs[3], jobs[1]):
        client.bury(job, pri=job)
    for job in (jobs[2], jobs[0]):
        assert client.ask(b"peek-buried\r\n").startswith(b"FOUND %d " % job)
        assert client.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
        assert client.job_stats(job)["state"] == "ready"
    client.bury(jobs[2])
    assert client.ask(b"peek-buried\r\n").startswith(b"FOUND %d " % jobs[3])
    assert client.ask(b"kick 100\r\n") == b"KICKED 3\r\n"
    assert client.ask(b"kick 100\r\n") == b"KICKED 0\r\n"


def test_kick_touches_delayed_jobs_only_if_none_is_buried(client: Client) -> None:
    late, soon, later = (client.put(delay=delay) for delay in (300, 200, 400))
    client.bury(client.put())
    assert client.ask(b"kick 9\r\n") == b"KICKED 1\r\n"
    assert client.ask(b"peek-delayed\r\n").startswith(b"FOUND %d " % soon)
    assert client.ask(b"kick 2\r\n") == b"KICKED 2\r\n"
    assert client.ask(b"peek-delayed\r\n").startswith(b"FOUND %d " % later)
    stats = client.job_stats(late)
    assert (stats["state"], stats["kicks"], stats["delay"]) == ("ready", "1", "300")


def test_kick_looks_at_the_used_tube_and_kick_job_at_any(
    connect: Connect, client: Client, tube: bytes
) -> None:
    job = client.put(delay=100)
    other = in_tube(connect(), tube + b".other")
    assert other.ask(b"watch %b\r\n" % tube) == b"WATCHING 2\r\n"
    assert other.ask(b"kick 1\r\n") == b"KICKED 0\r\n"
    assert other.ask(b"kick-job %d\r\n" % job) == b"KICKED\r\n"
    assert other.ask(b"kick-job %d\r\n" % job) == NOT_FOUND
    assert client.job_stats(job)["kicks"] == "1"


def test_peek_shows_a_job_in_any_state_to_anyone(connect: Connect, client: Client) -> None:
    other = connect()
    for state in STATES:
        job = job_in_state(client, state)
        before = client.job_stats(job)
        assert other.ask(b"peek %d\r\n" % job) == b"FOUND %d 1\r\nx\r\n" % job
        assert client.job_stats(job) == before


def test_peek_shows_the_next_job_of_each_kind_in_the_used_tube(
    connect: Connect, client: Client, tube: bytes
) -> None:
    kinds = [b"peek-ready\r\n", b"peek-delayed\r\n", b"peek-buried\r\n"]
    assert [client.ask(kind) for kind in kinds] == [NOT_FOUND] * 3
    ready = [client.put(pri=pri) for pri in (2, 1, 1)][1]
    delayed = [client.put(delay=delay) for delay in (300, 200)][1]
    buried = [client.put(pri=0) for _ in range(2)][1]
    client.bury(buried)
    client.bury(buried - 1)
    heads = [b"FOUND %d 1\r\nx\r\n" % job for job in (ready, delayed, buried)]
    assert [client.ask(kind) for kind in kinds] == heads
    watcher = in_tube(connect(), tube + b".other")
    assert watcher.ask(b"watch %b\r\n" % tube) == b"WATCHING 2\r\n"
    assert [watcher.ask(kind) for kind in kinds] == [NOT_FOUND] * 3
