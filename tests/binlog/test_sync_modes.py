"""-f 0, -f MS and -F: count the syncs by system calls."""

from __future__ import annotations

import select
import time
from pathlib import Path

import pytest
from binlog.disk import wait_until
from binlog.sockets import Crowd
from core import fault_injection
from core.fault_injection import Call
from core.rig import MILLISECOND, SECOND, Rig, put_line

from beanstalkd_py.core.clocks import Now, read_clocks

FILE = 4096


def datasyncs() -> int:
    return fault_injection.count(Call.DATASYNC)


def test_f_0_one_sync_for_all_of_a_round(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        before = datasyncs(), fault_injection.count(Call.WRITE)
        client.ask(put_line(b"x") * 100)
        assert (datasyncs(), fault_injection.count(Call.WRITE)) == (before[0] + 1, before[1] + 1)


def test_f_0_no_sync_without_writes(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        client.put()
        before = datasyncs(), fault_injection.count(Call.WRITE)
        client.reserve()
        client.ask(b"touch 1\r\npeek 1\r\nstats-job 1\r\nuse a\r\nwatch b\r\npause-tube a 1\r\n")
        rig.advance(10**12)
        assert (datasyncs(), fault_injection.count(Call.WRITE)) == before


def test_f_0_a_file_that_rolls_over_is_synced_before_the_reply(folder: Path) -> None:
    """Fault 6: sync both files of a round that fills one, and the folder of a new one."""
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        client.put(b"x" * 2000)
        before = datasyncs()
        client.ask(put_line(b"x" * 1500) + put_line(b"x" * 1500))
        assert client.job(3)["file"] == "2"
        assert datasyncs() == before + 2


def test_f_0_a_new_file_and_its_name_are_on_disk_before_it_is_used(folder: Path) -> None:
    with Rig(folder, file_size=FILE):
        wait_until(lambda: (folder / "binlog.2").exists())
        # For each file: its zeros, and the folder with its name.
        before = fault_injection.count(Call.SYNC)
        assert before >= 4


def test_f_ms_syncs_at_most_once_per_interval(folder: Path) -> None:
    with Rig(folder, sync_interval_ns=50 * MILLISECOND) as rig:
        client = rig.client()
        rig.advance(50 * MILLISECOND)
        before = rig.counters.syncs
        for _ in range(1000):
            client.put()
            rig.advance(MILLISECOND)
        assert 1000 // 51 <= rig.counters.syncs - before <= 1000 // 50 + 1


def test_f_ms_replies_do_not_wait(folder: Path) -> None:
    with Rig(folder, sync_interval_ns=10**15) as rig:
        client = rig.client()
        before = datasyncs()
        assert client.put() == 1
        assert client.body(1) == b"x"
        assert datasyncs() == before


def test_f_ms_an_idle_server_syncs_the_last_entries(folder: Path) -> None:
    """Fault 6: the core's descriptor becomes readable after the interval."""
    interval = 0.3
    with Rig(folder, sync_interval_ns=round(interval * SECOND), now=read_clocks()) as rig:
        crowd = Crowd(rig, ["idle"])
        for _ in range(3):
            sync_soon(rig, crowd, interval)
        crowd.close()


def sync_soon(rig: Rig, crowd: Crowd, interval: float) -> None:
    """Run a step, then wait: its entries are synced within the interval or a little later."""
    before = rig.counters.syncs
    while rig.counters.syncs == before:  # until an interval has ended
        crowd.run_steps(crowd.actors[0].steps + 1)
    after = rig.counters.syncs
    crowd.run_steps(crowd.actors[0].steps + 1)
    assert rig.counters.syncs == after
    start = time.monotonic()
    while rig.counters.syncs == after:
        readable = select.select([rig.core.fd], [], [], 10 * interval)[0]
        assert readable, "the descriptor did not become readable"
        rig.core.run(MILLISECOND, linger=False)
    assert time.monotonic() - start < 5 * interval


def test_F_never_syncs(folder: Path) -> None:
    before = datasyncs(), fault_injection.count(Call.SYNC)
    with Rig(folder, file_size=FILE, sync_interval_ns=-1) as rig:
        client = rig.client()
        for _ in range(50):
            client.put(b"x" * 300)
            rig.advance(10**12)
        rig.stop()
    assert (datasyncs(), fault_injection.count(Call.SYNC)) == before


@pytest.mark.parametrize("interval", [0, 10**15, -1], ids=["f0", "f", "F"])
def test_entries_are_written_before_the_reply_in_every_mode(folder: Path, interval: int) -> None:
    """The kernel must have every acknowledged change of a killed process."""
    with Rig(folder, sync_interval_ns=interval) as rig:
        client = rig.client()
        for number in range(20):
            client.put(b"body %d" % number)
            assert b"body %d\r\n" % number in (folder / "binlog.1").read_bytes()


def test_a_stop_syncs_all_entries(folder: Path) -> None:
    with Rig(folder, sync_interval_ns=10**15) as rig:
        rig.client().put()
        before = datasyncs()
        rig.stop()
        assert datasyncs() == before + 2, "not the last file and the one with its length entry"


def test_the_wall_clock_does_not_decide_when_to_sync(folder: Path) -> None:
    with Rig(folder, sync_interval_ns=10**9) as rig:
        client = rig.client()
        rig.advance(10**9)
        client.put()
        rig.advance(10**9)
        client.put()
        before = rig.counters.syncs
        rig.now = Now(rig.now.mono, rig.now.wall + 10**15)
        client.put()
        assert rig.counters.syncs == before
