"""The durable position: everything before it is on disk, and reading it needs no lock."""

from __future__ import annotations

import errno
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from binlog.disk import Snapshot, lay_out, take
from binlog.reader import HEADER, read_folder
from binlog.test_collection import FILE
from binlog.workload import Actor, run_steps
from core import fault_injection
from core.fault_injection import Call
from core.rig import SECOND, Rig, RigClient, put_line
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalkd_py import errors
from beanstalkd_py.core.shared_memory import BinlogPosition, durable_position, new_shared
from beanstalkd_py.server.process.shared_memory import SharedMemory, create_segment


def place_of(rig: Rig) -> BinlogPosition:
    place = durable_position(rig.counters)
    assert place is not None, "the position changed while it was read"
    return place


def end_of(folder: Path) -> BinlogPosition:
    """Return the end of the last entry, ignoring the small file that a stop leaves."""
    entries = read_folder(folder)
    while entries[-1].is_length_entry and entries[-1].offset == HEADER:
        entries.pop()
    last = entries[-1]
    return BinlogPosition(last.file, last.offset + last.size)


def before(place: BinlogPosition, contents: Snapshot) -> Snapshot:
    """Return the bytes before the position."""
    found = {}
    for name, data in contents.items():
        number = int(name.removeprefix("binlog."))
        if number <= place.file:
            found[name] = data if number < place.file else data[: place.offset]
    return found


def test_there_is_no_position_before_recovery(folder: Path) -> None:
    shared = new_shared()
    assert durable_position(shared.worker[0]) == BinlogPosition(0, 0)
    with Rig(folder, history=True, shared=shared) as rig:
        assert place_of(rig) == BinlogPosition(1, HEADER)


def test_every_sync_advances_it(folder: Path) -> None:
    with Rig(folder, sync_interval_ns=SECOND, history=True) as rig:
        client = rig.client()
        rig.advance(SECOND)
        client.put()
        first = end_of(folder)
        assert place_of(rig) == first, "the position moved without a sync"
        client.put()
        client.reserve()
        assert place_of(rig) == first
        rig.advance(SECOND)
        assert place_of(rig) == end_of(folder) > first


def test_entries_appended_during_a_sync_are_not_durable(folder: Path) -> None:
    """The sync thread syncs only the entries that existed when the sync was requested."""
    with Rig(folder, history=True) as rig:
        client = rig.client()
        client.put()
        client.reserve()
        noted = end_of(folder)
        rig.core.tick(rig.now)
        rig.now = rig.now._replace(mono=rig.now.mono + SECOND)
        rig.core.commit(rig.now)  # starts the sync of a deferred entry on the sync thread
        rig.core.feed(client.session, b"touch 1\r\n", rig.now)
        rig.core.commit(rig.now)
        assert place_of(rig) == noted < end_of(folder)


def test_without_syncs_it_is_the_written_end(folder: Path) -> None:
    with Rig(folder, file_size=FILE, sync_interval_ns=-1, history=True) as rig:
        client = rig.client()
        for _ in range(60):
            client.put(b"x" * 200)
            assert place_of(rig) == end_of(folder)


@pytest.mark.parametrize("interval", [0, 3600 * SECOND, -1], ids=["f0", "f", "F"])
def test_a_stop_makes_everything_durable_and_keeps_the_position(
    folder: Path, interval: int
) -> None:
    with Rig(folder, file_size=FILE, sync_interval_ns=interval, history=True) as rig:
        run_steps(Actor("stop"), rig.client(), 50)
        rig.client().ask(b"reserve-with-timeout 0\r\n")
        rig.stop()
        assert place_of(rig) == end_of(folder)


def test_it_survives_the_worker_and_never_decreases(folder: Path) -> None:
    shared = SharedMemory(create_segment())
    last = BinlogPosition(0, 0)
    for turn in range(4):
        with Rig(folder, file_size=FILE, history=True, shared=shared.pointer) as rig:
            place = durable_position(shared.counters(0))
            assert place is not None and place > last
            run_steps(Actor(f"turn {turn}"), rig.client(), 40)
            last = place_of(rig)
        shared.reset_worker(0, will_recover=turn % 2 == 0)
        assert durable_position(shared.counters(0)) == last


def test_the_next_worker_syncs_entries_of_a_killed_one(folder: Path) -> None:
    """Otherwise the next position would cover entries that a power cut can still lose."""
    with Rig(folder, file_size=FILE, sync_interval_ns=3600 * SECOND, history=True) as rig:
        run_steps(Actor("unsynced"), rig.client(), 60)
        last = end_of(folder)
        assert place_of(rig) < last
    read = len({entry.file for entry in read_folder(folder)})
    syncs = fault_injection.count(Call.DATASYNC) + fault_injection.count(Call.SYNC)
    with Rig(folder, file_size=FILE, history=True) as rig:
        assert (
            fault_injection.count(Call.DATASYNC) + fault_injection.count(Call.SYNC) >= syncs + read
        )
        assert place_of(rig) > last
    fault_injection.fail(Call.DATASYNC, error=errno.EIO, lasting=True)
    with pytest.raises(errors.CoreError):
        Rig(folder, file_size=FILE, history=True)


def client_with_a_job(rig: Rig) -> RigClient:
    """Reserve job 1 of a separate tube; touching it makes deferred entries."""
    client = rig.client()
    client.use(b"notes")
    assert client.put(ttr=10**6) == client.reserve() == 1
    return client


@pytest.mark.costly
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), interval=st.sampled_from([0, 2 * SECOND]))
def test_everything_before_it_is_always_on_disk(
    tmp_path_factory: pytest.TempPathFactory, seed: int, interval: int
) -> None:
    """Compare with the file contents at the request of the last successful sync."""
    dice = random.Random(seed)
    folder = tmp_path_factory.mktemp("binlog")
    with Rig(folder, file_size=FILE, sync_interval_ns=interval, history=True) as rig:
        holder, client = client_with_a_job(rig), rig.client()
        actor = Actor(f"seed {seed}", put_share=0.3)
        synced = take(folder)
        for _ in range(60):
            syncs = rig.counters.syncs
            if dice.random() < 0.7:
                run_steps(actor, client, 1)
            else:
                holder.do(b"touch 1", b"TOUCHED")
            rig.advance(dice.randrange(SECOND))
            if rig.counters.syncs > syncs:
                synced |= take(folder)
            safe = before(place_of(rig), take(folder))
            on_disk = {name: synced[name][: len(data)] for name, data in safe.items()}
            assert safe == on_disk


def test_a_failed_sync_does_not_advance_it(folder: Path) -> None:
    with Rig(folder, history=True) as rig:
        client = rig.client()
        client.put()
        place = place_of(rig)
        fault_injection.fail(Call.DATASYNC, error=errno.EIO)
        with pytest.raises(errors.BinlogWriteError):
            client.put()
        assert place_of(rig) == place


def test_a_power_cut_keeps_everything_before_it(folder: Path) -> None:
    """A start reads a folder with only these bytes completely."""
    with Rig(folder, file_size=FILE, sync_interval_ns=SECOND, history=True) as rig:
        actor = Actor("crash", put_share=0.3)
        for _ in range(80):
            run_steps(actor, rig.client(), 1)
            rig.advance(SECOND // 5)
        place, contents = place_of(rig), take(folder)
    lay_out(folder, before(place, contents))
    with Rig(folder, file_size=FILE, history=True) as rig:
        assert rig.warnings() == []


def test_a_concurrent_reader_gets_consistent_positions(folder: Path) -> None:
    """A mix of an old file and a new offset, or vice versa, would decrease at the next read."""
    found: list[BinlogPosition] = []
    ended = threading.Event()

    def look(counters: Any) -> None:
        while not ended.is_set():
            place = durable_position(counters)
            if place is not None and (not found or place != found[-1]):
                found.append(place)

    with Rig(folder, file_size=FILE, sync_interval_ns=-1, history=True) as rig:
        reader = threading.Thread(target=look, args=(rig.counters,))
        reader.start()
        client = rig.client()
        for _ in range(1500):
            client.ask(put_line(b"x" * 700) + b"reserve-with-timeout 0\r\n")
            rig.core.output(client.session)
        ended.set()
        reader.join()
        last = place_of(rig)
    assert len({place.file for place in found}) > 3
    looks = [place for place in found if place.offset > 0]
    assert looks == sorted(looks)
    assert found[-1] <= last
