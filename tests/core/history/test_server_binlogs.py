"""Messages from folders of real servers equal those of an independent reader."""

from __future__ import annotations

import ctypes
import random
import shutil
import time
from pathlib import Path

import pytest
from binlog.reader import files, read_folder
from core.history.message_model import messages
from core.history.simulated_binlogs import MOST_BODY, JobMessage, key_of, read_all, topic_of, unpack
from core.rig import SECOND, Rig, put_line
from servers import reference
from wire import Client

from beanstalkd_py.core.job_history import JobHistories
from beanstalkd_py.history.store import Options, Sizes, Store

DATA = Path(__file__).parents[2] / "binlog" / "data"
FILE = 4096
SIZES = Sizes(segment_bytes=1 << 20, queue_file_units=100, index_slots=100, index_entries=400)
TUBES = (b"default", b"mail", b"t" * 200)


def keep(folder: Path, kept: Path) -> None:
    """Link each file to a second name, which remains when the server removes the file."""
    for path in files(folder):
        if not (kept / path.name).exists():
            (kept / path.name).hardlink_to(path)


def end_of(rig: Rig, kept: Path) -> tuple[int, int]:
    """Return the current file and its end; the files after it are preallocated."""
    current = int(rig.counters.binlog_current)
    return current, (kept / f"binlog.{current}").stat().st_size


def messages_of(kept: Path) -> list[JobMessage]:
    histories = JobHistories(topic_of, MOST_BODY)
    histories.add_folder(kept, key_of(0))
    last = files(kept)[-1]
    job_messages = read_all(histories, 0, int(last.suffix[1:]), last.stat().st_size)
    assert histories.faults() == []
    assert histories.stats.orphans == 0
    histories.close()
    return job_messages


def work(rig: Rig, dice: random.Random, steps: int, folder: Path, kept: Path) -> int:
    """Do the steps of one client; return how many jobs it deleted."""
    client = rig.client()
    live: list[int] = []
    deleted = 0
    for _ in range(steps):
        rig.advance(dice.randrange(3) * SECOND)
        if not live or dice.random() < 0.35:
            client.send(b"use %b\r\n" % dice.choice(TUBES))
            client.read()
            body = dice.randbytes(dice.randrange(120))
            live.append(client.put(body, dice.randrange(5), dice.choice((0, 0, 2, 9)), 50))
        else:
            job = dice.choice(live)
            line = dice.choice(
                (
                    b"delete %d\r\n" % job,
                    b"reserve-job %d\r\nbury %d %d\r\n" % (job, job, dice.randrange(9)),
                    b"reserve-job %d\r\nrelease %d 7 %d\r\n" % (job, job, dice.choice((0, 3))),
                    b"kick-job %d\r\n" % job,
                    b"reserve-job %d\r\n" % job,
                )
            )
            if b"DELETED" in client.ask(line):
                live.remove(job)
                deleted += 1
        keep(folder, kept)
    return deleted


@pytest.mark.parametrize("seed", range(6))
def test_jobs_of_the_core(tmp_path: Path, seed: int) -> None:
    folder, kept = tmp_path / "folder", tmp_path / "kept"
    folder.mkdir()
    kept.mkdir()
    with Rig(folder, file_size=FILE, sync_interval_ns=-1) as rig:
        deleted = work(rig, random.Random(seed), 250, folder, kept)
        job_messages = messages_of(kept)
    assert job_messages == messages(read_folder(kept), key_of(0))
    assert len(job_messages) == deleted > 20


def test_jobs_of_c_beanstalkd(tmp_path: Path) -> None:
    folder, kept = tmp_path / "folder", tmp_path / "kept"
    folder.mkdir()
    kept.mkdir()
    dice = random.Random(3)
    with reference("-b", folder, "-s", str(FILE), "-z", "65535") as server:
        with server.connect() as client:
            live: list[int] = []
            for _ in range(150):
                _step_of_c(client, dice, live)
                keep(folder, kept)
        server.kill()
    job_messages = messages_of(kept)
    assert job_messages == messages(read_folder(kept), key_of(0))
    assert len(job_messages) > 20
    assert any("@?" in one.properties["timeline"] for one in job_messages)


def _step_of_c(client: Client, dice: random.Random, live: list[int]) -> None:
    if not live or dice.random() < 0.4:
        client.send(put_line(dice.randbytes(dice.randrange(90)), 3, dice.choice((0, 60))))
        live.append(int(client.replies(1)[0].split()[1]))
        return
    job = dice.choice(live)
    what = dice.randrange(4)
    if what == 0:
        client.send(b"delete %d\r\n" % job)
        client.replies(1)
        live.remove(job)
        return
    line = (b"bury %d 1", b"release %d 5 30", b"release %d 6 0")[what - 1] % job
    client.send(b"reserve-job %d\r\n%b\r\n" % (job, line))
    client.replies(2)


@pytest.mark.parametrize("name", ["v5-1.4.6.binlog.1", "v7-lifecycle.binlog.1"])
def test_files_that_beanstalkd_itself_wrote(tmp_path: Path, name: str) -> None:
    shutil.copy(DATA / name, tmp_path / "binlog.1")
    job_messages = messages_of(tmp_path)
    assert job_messages == messages(read_folder(tmp_path), key_of(0))
    assert job_messages


def test_the_store_takes_them_and_gives_them_back(tmp_path: Path) -> None:
    folder, kept = tmp_path / "folder", tmp_path / "kept"
    folder.mkdir()
    kept.mkdir()
    with Rig(folder, file_size=FILE, sync_interval_ns=-1) as rig:
        work(rig, random.Random(1), 100, folder, kept)
    histories = JobHistories(topic_of, MOST_BODY)
    histories.add_folder(kept, key_of(0))
    last = files(kept)[-1]
    items = histories.read(0, int(last.suffix[1:]), last.stat().st_size, 1 << 20).items
    histories.close()
    job_messages = unpack(items)
    with Store.open(tmp_path / "store", Options(sizes=SIZES)) as store:
        store.append(items)
        stored = list(store.scan())
    assert len(job_messages) > 10
    assert [(m.topic.encode(), dict(m.properties), m.body, m.born_timestamp) for m in stored] == [
        (one.topic, one.properties, one.body, one.born) for one in job_messages
    ]


# --- what it costs --------------------------------------------------------------------------------

JOBS = 200_000


class _Memory(ctypes.Structure):
    """mallinfo2(3)."""

    _fields_ = (
        ("arena", ctypes.c_size_t),
        ("ordblks", ctypes.c_size_t),
        ("smblks", ctypes.c_size_t),
        ("hblks", ctypes.c_size_t),
        ("hblkhd", ctypes.c_size_t),
        ("usmblks", ctypes.c_size_t),
        ("fsmblks", ctypes.c_size_t),
        ("uordblks", ctypes.c_size_t),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    )


def allocated() -> int:
    """Return the bytes that malloc has allocated."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Memory
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd)


@pytest.mark.slow
def test_many_open_jobs_are_little_memory_and_reading_is_fast(tmp_path: Path) -> None:
    folder, kept = tmp_path / "folder", tmp_path / "kept"
    folder.mkdir()
    kept.mkdir()
    with Rig(folder, file_size=1 << 24, sync_interval_ns=-1) as rig:
        client = rig.client()
        for _ in range(JOBS // 1000):
            client.ask_much(put_line(b"x" * 100) * 1000)
            keep(folder, kept)
        histories = JobHistories(topic_of, 1 << 16)
        histories.add_folder(kept, "k")
        before = allocated()
        read_all(histories, 0, *end_of(rig, kept))
        assert histories.stats.open == JOBS
        assert (allocated() - before) / JOBS < 48
        for first in range(1, JOBS + 1, 1000):
            client.ask_much(b"".join(b"delete %d\r\n" % (first + i) for i in range(1000)))
            keep(folder, kept)
        began = time.process_time()
        finished, more = 0, True
        while more:
            progress = histories.read(0, *end_of(rig, kept), 1 << 20)
            finished, more = finished + progress.count, progress.more
        cost = (time.process_time() - began) / JOBS
        assert finished == JOBS
        assert histories.faults() == []
        assert cost < 10e-6, f"{cost * 1e6:.2f} us of CPU for each job"
    histories.close()
