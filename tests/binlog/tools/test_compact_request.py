"""Compaction on request: the ratio it reaches, interruption at any moment, concurrent clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from binlog.workload import Actor, check, run_steps
from core.rig import Rig, put_line
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import Server, ours, reference
from small_disk import small_disk
from wire import inserted_id

from beanstalkd_py import errors
from beanstalkd_py.control.client import connect
from beanstalkd_py.core.step_results import CompactStep, StepOutcome

FILE = 4096
STEPS = 2000  # more than any compaction here takes


def step(rig: Rig, per_cent: int, last: int) -> CompactStep:
    done = rig.core.compact(per_cent, last, rig.now)
    rig.settle()
    return done


def compacted(rig: Rig, per_cent: int) -> CompactStep:
    done = CompactStep(StepOutcome.MORE, 0, 0, 0)
    for _ in range(STEPS):
        done = step(rig, per_cent, done.last)
        if done.outcome is StepOutcome.DONE:
            return done
        rig.advance(1_000_000)
    raise AssertionError(f"it does not end: {done}")


def files_in_use(rig: Rig) -> int:
    return int(rig.counters.binlog_current - rig.counters.binlog_oldest + 1)


@pytest.mark.slow
@settings(max_examples=30)
@given(
    name=st.text("abc", max_size=8),
    put_share=st.sampled_from([0.3, 0.6]),
    per_cent=st.sampled_from([100, 120, 200, 1000]),
    interval=st.sampled_from([0, 10**15, -1]),
    pauses=st.lists(st.integers(0, 10), max_size=20),
)
def test_compaction_at_any_time_changes_no_job(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    put_share: float,
    per_cent: int,
    interval: int,
    pauses: list[int],
) -> None:
    """Mix its steps with commands, kill the core, restart it, and finish the compaction."""
    folder = tmp_path_factory.mktemp("jobs")
    actor = Actor(name, put_share=put_share, plain_releases=False)
    with Rig(folder, file_size=FILE, sync_interval_ns=interval) as rig:
        client = rig.client()
        run_steps(actor, client, 100)
        last = 0
        for pause in pauses:
            last = step(rig, per_cent, last).last
            run_steps(actor, client, pause)
        now = rig.now
    with Rig(folder, file_size=FILE, sync_interval_ns=interval, now=now) as rig:
        check([actor], rig)
        done = compacted(rig, per_cent)
        if files_in_use(rig) > 1:
            assert done.total_bytes * 100 <= done.alive_bytes * per_cent
        check([actor], rig)
        now = rig.now
    with Rig(folder, file_size=FILE, now=now) as rig:
        check([actor], rig)
        assert rig.warnings() == []


def test_compaction_leaves_only_the_needed_bytes(tmp_path: Path) -> None:
    with Rig(tmp_path, file_size=FILE) as rig:
        client = rig.client()
        jobs = [client.put(b"x" * 100) for _ in range(300)]
        for job in jobs[:-3]:
            client.do(b"delete %d" % job, b"DELETED")
        done = compacted(rig, 100)
        assert files_in_use(rig) == 1
        assert done.total_bytes <= 1024
        for job in jobs[-3:]:
            client.do(b"delete %d" % job, b"DELETED")
        assert compacted(rig, 100).alive_bytes == 0
        assert files_in_use(rig) == 1


def test_a_compact_folder_is_not_changed(tmp_path: Path) -> None:
    with Rig(tmp_path, file_size=FILE) as rig:
        client = rig.client()
        for _ in range(300):
            client.put(b"x" * 100)
        before = rig.counters.records_migrated
        assert compacted(rig, 120).outcome is StepOutcome.DONE
        assert rig.counters.records_migrated == before


@pytest.mark.costly
def test_c_beanstalkd_reads_the_compacted_folder(tmp_path: Path) -> None:
    with ours("-b", tmp_path, "-s", "8192") as server, server.connect() as client:
        jobs = {
            inserted_id(client.ask(put_line(b"%d" % n * 50))): b"%d" % n * 50 for n in range(300)
        }
        for job in [job for job in jobs if job % 3]:
            assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
            del jobs[job]
        with connect(f"127.0.0.1:{server.port}") as control:
            assert control.ask("compact", ratio=1.0)["freed-bytes"] > 0
    with reference("-b", tmp_path) as server, server.connect() as client:
        for job, body in jobs.items():
            assert client.ask(b"peek %d\r\n" % job).endswith(body + b"\r\n")
        assert server.complaints() == ""


# --- a server -----------------------------------------------------------------------------------


@pytest.fixture(params=[1, 2])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "jobs"
    folder.mkdir()
    workers = f"--workers={request.param}"
    with ours("-b", folder, "-s", "65536", workers, "-f", "3600000") as running:
        yield running


def fill(server: Server) -> list[int]:
    """Put ten thousand jobs into ten tubes, and delete all but every tenth."""
    left = []
    with server.connect() as client:
        for number in range(10):
            client.ask(b"use tube-%d\r\n" % number)
            client.send(put_line(b"x" * 200) * 1000)
            jobs = [inserted_id(reply) for reply in client.replies(1000)]
            client.send(b"".join(b"delete %d\r\n" % job for job in jobs[100:]))
            assert set(client.replies(900)) == {b"DELETED\r\n"}
            left += jobs[:100]
    return left


def parts(server: Server, ratio: Any) -> list[dict[str, int]]:
    with connect(f"127.0.0.1:{server.port}") as control:
        return list(control.parts("compact", ratio=ratio))


@pytest.mark.slow
def test_every_worker_reaches_the_ratio_while_clients_are_served(server: Server) -> None:
    left = fill(server)
    ended = threading.Event()
    served = 0

    def serve() -> None:
        nonlocal served
        with server.connect() as client:
            while not ended.is_set():
                assert client.ask(b"delete %d\r\n" % inserted_id(client.ask(put_line(b"y"))))
                served += 1

    clients = threading.Thread(target=serve, daemon=True)
    clients.start()
    try:
        for ratio in (2, 1.05):
            last = {part["worker"]: part for part in parts(server, ratio)}
            assert all(one["bytes"] <= one["alive"] * 2 for one in last.values())
    finally:
        ended.set()
        clients.join()
    assert served > 0
    with server.connect() as client:
        for job in left:
            assert client.ask(b"peek %d\r\n" % job).startswith(b"FOUND")


@pytest.mark.costly
def test_invalid_ratios_are_rejected(server: Server) -> None:
    for ratio in (0.99, 100.1, float("nan"), "1.1", None, True, -1):
        with pytest.raises(errors.ControlError, match="ratio is"):
            parts(server, ratio)


def test_compaction_without_a_binlog() -> None:
    with ours() as server, connect(f"127.0.0.1:{server.port}") as control:
        assert control.ask("compact", ratio=1.0) == {"freed-bytes": 0}


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    """Compaction needs space to move jobs and reports its lack; jobs stay, and puts are refused."""
    with (
        small_disk(tmp_path / "disk") as disk,
        ours("-b", disk, "-s", "262144") as server,
        server.connect() as client,
        connect(f"127.0.0.1:{server.port}", timeout_s=60) as control,
    ):
        jobs = []
        while (reply := client.ask(put_line(b"x" * 10_000, ttr=1000))) != b"OUT_OF_MEMORY\r\n":
            jobs.append(inserted_id(reply))
        for job in jobs[::2]:
            client.ask(b"delete %d\r\n" % job)
        try:
            control.ask("compact", ratio=1.0)
        except errors.ControlError as error:
            assert "check for a full disk" in str(error)
        for job in jobs[1::2]:
            assert client.ask(b"peek %d\r\n" % job).startswith(b"FOUND")
