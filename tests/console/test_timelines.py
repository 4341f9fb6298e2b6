"""The events of live jobs, from the binlog of the server that runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from console.consoles import Visitor, console
from processes import eventually
from servers import Server, ours, reference
from shards import TWO
from wire import in_tube

from beanstalkd_py.admin.address import parse_address
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.views import job_entries
from beanstalkd_py.console.views.job_entries import AGAIN_S

pytestmark = pytest.mark.costly


def work(server: Server, tube: bytes) -> tuple[int, list[float]]:
    """Return a job, and when each event happened."""
    times = []
    with in_tube(server.connect(), tube) as client:
        job = client.put(b"x", pri=5)
        for command, reply in (
            (b"reserve", b"RESERVED"),
            (b"touch %d", b"TOUCHED"),
            (b"release %d 7 30", b"RELEASED"),
            (b"kick-job %d", b"KICKED"),
            (b"reserve", b"RESERVED"),
            (b"bury %d 9", b"BURIED"),
        ):
            times.append(time.time())
            time.sleep(0.02)
            line = command % job if b"%" in command else command
            assert client.ask(line + b"\r\n").startswith(reply)
    return job, times


def timeline(visitor: Visitor, job: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = visitor.ok(f"s/0/jobs/{job}")["timeline"]
    return found


def timeline_with_times(visitor: Visitor, job: int) -> list[dict[str, Any]]:
    """Wait for it: a busy machine may take too long to read the binlog at first."""
    assert eventually(lambda: timeline(visitor, job)[0]["text"] == "pri=5", 2 * AGAIN_S + 5)
    return timeline(visitor, job)


@pytest.mark.parametrize("arguments", [(), TWO])
def test_events_of_a_live_job(folder: Path, arguments: tuple[str, ...], tube: bytes) -> None:
    with ours("-b", folder, *arguments) as server, console(server, args=("-b", folder)) as running:
        job, times = work(server, tube)
        found = timeline_with_times(running.visitor(), job)
    assert [(one["event"], one["text"]) for one in found] == [
        ("put", "pri=5"),
        ("release", "pri=7 delay=30"),
        ("kick", ""),
        ("bury", "pri=9"),
        ("reserve", "2 times, no time recorded"),
        ("buried", "now"),
    ]
    recorded = [one["at"] for one in found[:4]]
    assert [one["at"] for one in found[4:-1]] == [None]
    for at, before in zip(recorded, [times[0] - 1, times[2], times[3], times[5]], strict=True):
        assert before < at < before + 1.5
    assert recorded == sorted(recorded)


def test_a_history_makes_the_server_record_reserves(
    folder: Path, tmp_path: Path, tube: bytes
) -> None:
    options = ("-b", folder, "--history", tmp_path / "history")
    with ours(*options) as server, console(server, args=("-b", folder)) as running:
        job, times = work(server, tube)
        visitor = running.visitor()
        found = timeline_with_times(visitor, job)
        names = [one["event"] for one in found]
        assert [one for one in names if one != "touch"] == [
            *("put", "reserve", "release", "kick", "reserve", "bury", "buried")
        ]
        reserves = [one["at"] for one in found if one["event"] == "reserve"]
        assert times[0] < reserves[0] < times[1] and times[4] < reserves[1] < times[5]
        with server.connect() as client:
            client.ask(b"delete %d\r\n" % job)
        with console(server, args=("--history", tmp_path / "history")) as historic:

            def is_ended() -> bool:
                answer = historic.visitor().get(f"s/0/jobs/{job}")
                return answer.status == 200 and not answer.json["live"]

            assert eventually(is_ended, 20)
            ended = timeline(historic.visitor(), job)
    assert [one["event"] for one in ended[:-1]] == names[:-1]
    assert [one["at"] for one in ended[:-1]] == pytest.approx([one["at"] for one in found[:-1]])


def test_c_beanstalkd_records_no_times(folder: Path, tube: bytes) -> None:
    with reference("-b", folder) as server, console(server, args=("-b", folder)) as running:
        job, _ = work(server, tube)
        visitor = running.visitor()
        assert eventually(lambda: timeline(visitor, job)[1]["at"] is not None, 2 * AGAIN_S + 5)
        found = timeline(visitor, job)
    assert [one["event"] for one in found] == [
        *("put", "release", "kick", "bury", "reserve", "buried")
    ]
    # A delayed job has the end of its delay.
    assert [one["at"] is None for one in found] == [False, False, True, True, True, False]


def test_a_binlog_that_takes_too_long(
    folder: Path, tube: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of events are shown without times, and the files are read again later."""
    with ours("-b", folder) as server:
        job, _ = work(server, tube)
        with server.connect() as client:
            stats = client.job_stats(job)
        target = _target(server, folder)
        with monkeypatch.context() as patient:
            patient.setattr(job_entries, "READ_S", 60.0)
            assert len(job_entries.entries_of_job(target, job, stats)) == 4
        changed = {**stats, "pri": "other"}
        with monkeypatch.context() as slow:
            slow.setattr(job_entries, "READ_S", -1.0)
            assert job_entries.entries_of_job(target, job, changed) == []
        monkeypatch.setattr(job_entries, "READ_S", 60.0)
        assert job_entries.entries_of_job(target, job, changed) == []
        monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + AGAIN_S)
        assert len(job_entries.entries_of_job(target, job, changed)) == 4
        assert job_entries.entries_of_job(_target(server, folder / "no"), job, stats) == []


def _target(server: Server, binlog: Path) -> Target:
    return Target(parse_address(f"127.0.0.1:{server.port}"), binlog=binlog)
