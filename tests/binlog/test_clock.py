"""A clock that was set back or far ahead while the server was down."""

from __future__ import annotations

from pathlib import Path

import pytest
from binlog.reader import read_folder
from core.rig import SECOND, START, YEAR, Rig

from beanstalkd_py.binlog.compact import compact
from beanstalkd_py.binlog.folders import inspect_folder, locked_folder
from beanstalkd_py.binlog.layout import Layout
from beanstalkd_py.binlog.reshard import reshard
from beanstalkd_py.binlog.verify import verify
from beanstalkd_py.core.clocks import Now

LAST = 2**63 - 2  # nanoseconds; the year 2262


def at(years: float) -> Now:
    return Now(START.mono, min(START.wall + int(years * YEAR), LAST))


def fill(folder: Path) -> None:
    with Rig(folder, now=START) as rig:
        client = rig.client()
        client.put(b"delayed", delay=5000)
        client.put(b"long", delay=2**32 - 1)
        client.put(b"ready")
        client.bury(client.put(b"released", ttr=77))
        client.do(b"kick-job 4", b"KICKED")
        client.ask(b"reserve-job 4\r\n")
        client.do(b"release 4 0 900", b"RELEASED")


@pytest.mark.parametrize("back", [1 / YEAR, 60 * SECOND / YEAR, 0.001, 10])
def test_a_delay_never_gets_longer(folder: Path, back: float) -> None:
    fill(folder)
    with Rig(folder, now=at(-back)) as rig:
        client = rig.client()
        assert client.job(1)["time-left"] == "5000"
        assert client.job(2)["time-left"] == str(2**32 - 1)
        assert client.job(4)["time-left"] == "900"
        assert client.job(3)["age"] == "0"
        assert rig.warnings() == []
        rig.advance(5000 * SECOND)
        assert client.job(1)["state"] == "ready"


def test_a_running_delay_continues(folder: Path) -> None:
    fill(folder)
    with Rig(folder, now=Now(START.mono, START.wall + 3000 * SECOND)) as rig:
        assert rig.client().job(1)["time-left"] == "2000"


@pytest.mark.parametrize("years", [100, 200, 202.3, 230, 300])
def test_entries_written_far_in_the_future_can_be_read(folder: Path, years: float) -> None:
    """Up to the last representable time, also with the longest delay, and with the tools."""
    fill(folder)
    then = at(years)
    bodies = [b"delayed", b"long", b"ready", b"released", b"later", b"later delayed", b"buried"]
    for number in range(3):
        with Rig(folder, file_size=4096, now=then) as rig:
            client = rig.client()
            if number == 0:
                client.put(b"later")
                client.put(b"later delayed", delay=2**32 - 1)
                client.bury(client.put(b"buried"))
                client.bury(client.put(b"buried, too"))
            assert [client.body(job) for job in range(1, 8)] == bodies
            assert int(client.job(6)["time-left"]) <= 2**32 - 1
            assert rig.warnings() == []
        assert verify(inspect_folder(folder), lambda damage: None).clean
        if number == 1:
            with locked_folder(folder, writing=True) as found:
                compact(found, 4096)
    for entry in read_folder(folder):
        assert 0 <= entry.deadline_at <= LAST


def test_resharding_writes_only_readable_times(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder)
    now = Now(START.mono, LAST)
    monkeypatch.setattr("beanstalkd_py.binlog.reshard.read_clocks", lambda: now)
    assert reshard(folder, Layout(2), 4096) == 4
    assert reshard(folder, Layout(1), 4096) == 4
    with Rig(folder, now=now) as rig:
        client = rig.client()
        assert client.body(3) == b"ready"
        assert client.body(2) == b"long"
