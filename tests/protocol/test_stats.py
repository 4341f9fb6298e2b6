"""The three statistics: the order of the keys, and the events that change each value."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
from processes import eventually
from wire import Client, Connect, in_tube, list_of, stats_of, wait_for

STATS = [
    "current-jobs-urgent",
    "current-jobs-ready",
    "current-jobs-reserved",
    "current-jobs-delayed",
    "current-jobs-buried",
    "cmd-put",
    "cmd-peek",
    "cmd-peek-ready",
    "cmd-peek-delayed",
    "cmd-peek-buried",
    "cmd-reserve",
    "cmd-reserve-with-timeout",
    "cmd-delete",
    "cmd-release",
    "cmd-use",
    "cmd-watch",
    "cmd-ignore",
    "cmd-bury",
    "cmd-kick",
    "cmd-touch",
    "cmd-stats",
    "cmd-stats-job",
    "cmd-stats-tube",
    "cmd-list-tubes",
    "cmd-list-tube-used",
    "cmd-list-tubes-watched",
    "cmd-pause-tube",
    "job-timeouts",
    "total-jobs",
    "max-job-size",
    "current-tubes",
    "current-connections",
    "current-producers",
    "current-workers",
    "current-waiting",
    "total-connections",
    "pid",
    "version",
    "rusage-utime",
    "rusage-stime",
    "uptime",
    "binlog-oldest-index",
    "binlog-current-index",
    "binlog-records-migrated",
    "binlog-records-written",
    "binlog-max-size",
    "draining",
    "id",
    "hostname",
    "os",
    "platform",
]
STATS_TUBE = [
    "name",
    "current-jobs-urgent",
    "current-jobs-ready",
    "current-jobs-reserved",
    "current-jobs-delayed",
    "current-jobs-buried",
    "total-jobs",
    "current-using",
    "current-watching",
    "current-waiting",
    "cmd-delete",
    "cmd-pause-tube",
    "pause",
    "pause-time-left",
]
STATS_JOB = [
    "id",
    "tube",
    "state",
    "pri",
    "age",
    "delay",
    "ttr",
    "time-left",
    "file",
    "reserves",
    "timeouts",
    "releases",
    "buries",
    "kicks",
]

FORMS = {
    "version": r'"\d+\.\d+"',
    "rusage-utime": r"\d+\.\d{6}",
    "rusage-stime": r"\d+\.\d{6}",
    "draining": r"true|false",
    "id": r"[0-9a-f]{16}",
    "hostname": r'"[^"]*"',
    "os": r'"[^"]*"',
    "platform": r'"[^"]*"',
}


def test_the_keys_of_stats(client: Client) -> None:
    """Clients read keys by name or by position; new ones may only be appended."""
    assert list(client.stats())[: len(STATS)] == STATS


def test_the_keys_of_stats_tube(client: Client, tube: bytes) -> None:
    assert list(client.stats(b"stats-tube " + tube))[: len(STATS_TUBE)] == STATS_TUBE


def test_the_keys_of_stats_job(client: Client) -> None:
    assert list(client.job_stats(client.put()))[: len(STATS_JOB)] == STATS_JOB


@pytest.mark.parametrize("key", STATS)
def test_the_form_of_the_values(client: Client, key: str) -> None:
    assert re.fullmatch(FORMS.get(key, r"\d+"), client.stats()[key])


def test_values_of_the_machine(client: Client) -> None:
    stats = client.stats()
    machine = os.uname()
    assert stats["hostname"] == f'"{socket.gethostname()}"'
    assert stats["os"] == f'"{machine.version}"'
    assert stats["platform"] == f'"{machine.machine}"'
    assert stats["max-job-size"] == "65535"
    assert stats["binlog-max-size"] == "10485760"
    assert stats["draining"] == "false"
    assert Path(f"/proc/{stats['pid']}").exists()


def test_names_of_tubes_are_quoted(client: Client, tube: bytes) -> None:
    quoted = f'"{tube.decode()}"'
    assert client.stats(b"stats-tube " + tube)["name"] == quoted
    assert client.job_stats(client.put())["tube"] == quoted


def test_a_new_job(client: Client) -> None:
    job = client.put(pri=77, delay=0, ttr=88)
    stats = client.job_stats(job)
    assert {key: stats[key] for key in STATS_JOB if key != "tube"} == {
        "id": str(job),
        "state": "ready",
        "pri": "77",
        "age": "0",
        "delay": "0",
        "ttr": "88",
        "time-left": "0",
        "file": "0",
        "reserves": "0",
        "timeouts": "0",
        "releases": "0",
        "buries": "0",
        "kicks": "0",
    }


def test_time_left_is_of_reserved_and_delayed_jobs(client: Client) -> None:
    """Rounded towards zero, so that the first second is missing at once."""
    job = client.put(delay=50, ttr=70)
    assert client.job_stats(job)["time-left"] == "49"
    client.ask(b"kick-job %d\r\n" % job)
    assert client.job_stats(job)["time-left"] == "0"
    client.reserve()
    assert client.job_stats(job)["time-left"] == "69"
    client.ask(b"bury %d 0\r\n" % job)
    assert client.job_stats(job)["time-left"] == "0"


def test_time_left_is_rounded_down_also_in_a_pipeline(client: Client) -> None:
    """Commands have distinct times, so some time has passed since the previous one."""
    job = client.put(ttr=70)
    client.send(b"reserve\r\nstats-job %d\r\ntouch %d\r\nstats-job %d\r\n" % (job, job, job))
    replies = client.replies(4)
    assert [stats_of(replies[place])["time-left"] for place in (1, 3)] == ["69", "69"]


def test_a_new_tube(client: Client, tube: bytes) -> None:
    name = tube + b".new"
    client.ask(b"use %b\r\n" % name)
    stats = client.stats(b"stats-tube " + name)
    assert {key: stats[key] for key in STATS_TUBE[1:]} == {
        key: "1" if key == "current-using" else "0" for key in STATS_TUBE[1:]
    }


@pytest.mark.parametrize("of_tube", [True, False])
def test_jobs_are_counted_by_state(client: Client, tube: bytes, of_tube: bool) -> None:
    """Urgent: ready, and of a priority below 1024."""

    def counts() -> list[int]:
        stats = client.stats(b"stats-tube " + tube if of_tube else b"stats")
        return [int(stats[f"current-jobs-{state}"]) for state in states] + [
            int(stats["total-jobs"])
        ]

    states = ("urgent", "ready", "reserved", "delayed", "buried")
    zero = counts()

    def since() -> list[int]:
        return [now - then for now, then in zip(counts(), zero, strict=True)]

    client.put(pri=1024)
    urgent = client.put(pri=1023)
    client.put(pri=0, delay=100)
    assert since() == [1, 2, 0, 1, 0, 3]
    client.ask(b"reserve-job %d\r\n" % urgent)
    assert since() == [0, 1, 1, 1, 0, 3]
    client.ask(b"release %d 1024 0\r\n" % urgent)
    assert since() == [0, 2, 0, 1, 0, 3]
    client.bury(urgent, pri=3)
    assert since() == [0, 1, 0, 1, 1, 3]
    client.ask(b"kick 1\r\n")
    assert since() == [1, 2, 0, 1, 0, 3]
    client.ask(b"kick 1\r\n")
    assert since() == [2, 3, 0, 0, 0, 3]
    client.ask(b"delete %d\r\n" % urgent)
    assert since() == [1, 2, 0, 0, 0, 3]


def test_connections_are_counted(connect: Connect, client: Client, tube: bytes) -> None:
    # Connections of earlier tests may be about to end.
    assert eventually(lambda: client.stats()["current-connections"] == "1")
    before = client.stats()
    other = in_tube(connect(), tube)
    other.put()
    other.reserve()
    other.send(b"reserve\r\n")
    wait_for(client, tube, "current-waiting", 1)
    after = client.stats()
    keys = ["connections", "producers", "workers", "waiting"]
    moved = [int(after[f"current-{key}"]) - int(before[f"current-{key}"]) for key in keys]
    assert moved == [1, 1, 1, 1]
    assert int(after["total-connections"]) - int(before["total-connections"]) == 1
    tube_stats = client.stats(b"stats-tube " + tube)
    assert [tube_stats[f"current-{key}"] for key in ("using", "watching", "waiting")] == [
        "2",
        "2",
        "1",
    ]
    other.close()
    wait_for(client, tube, "current-using", 1)
    after = client.stats()
    assert [after[f"current-{key}"] for key in keys] == [before[f"current-{key}"] for key in keys]


def test_tubes_are_counted(client: Client, tube: bytes) -> None:
    """With several workers a moment after they are listed: each counts its own."""

    def names() -> list[bytes]:
        return list_of(client.ask(b"list-tubes\r\n"))

    def all_are_counted() -> bool:
        return int(client.stats()["current-tubes"]) == len(names())

    name = tube + b".b"
    client.ask(b"watch %b\r\n" % name)
    assert name in names()
    assert eventually(all_are_counted)
    client.ask(b"ignore %b\r\n" % name)
    assert name not in names()
    assert eventually(all_are_counted)


def test_a_client_waiting_on_several_tubes_is_one_waiting_client(
    connect: Connect, client: Client, tube: bytes
) -> None:
    waiter = in_tube(connect(), tube)
    waiter.ask(b"watch %b.b\r\n" % tube)
    before = int(client.stats()["current-waiting"])
    waiter.send(b"reserve\r\n")
    wait_for(client, tube, "current-waiting", 1)
    wait_for(client, tube + b".b", "current-waiting", 1)
    assert int(client.stats()["current-waiting"]) == before + 1
