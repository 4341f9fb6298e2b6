"""Bodies beyond memory: every reply equals that of a server with all bodies in memory."""

from __future__ import annotations

import contextlib
import errno
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from binlog.disk import wait_until
from binlog.workload import Actor, check, replies_in, run_steps
from core import fault_injection
from core.fault_injection import Call
from core.rig import SECOND, Rig, RigClient, put_line
from core.workers.played_worker import HERE, HOME, C, Other, step
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import reference
from wire import jobs_of

from beanstalkd_py import errors
from beanstalkd_py.binlog import reshard
from beanstalkd_py.binlog.layout import WHOLE, Layout
from beanstalkd_py.binlog.steps import Steps

FILE = 4096
SMALL = 2000
FILE_NUMBER = re.compile(rb"OK \d+|file: \d+\n")
"""Of stats-job, with the size of the reply; a thread makes the files."""
DATA = Path(__file__).with_name("data")


def body_of(job: int, size: int = 300) -> bytes:
    return b"%d " % job + random.Random(job).randbytes(size)


def fill(client: RigClient, jobs: int, size: int = 300) -> list[int]:
    first = client.put(body_of(1, size))
    return [first, *(client.put(body_of(job, size)) for job in range(2, jobs + 1))]


def open_files() -> list[str]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return found


def in_memory(rig: Rig) -> int:
    return int(rig.counters.body_bytes)


# --- the same replies ----------------------------------------------------------------------------

COMMANDS = [
    *(b"reserve-with-timeout 0\r\n" for _ in range(6)),
    *(b"peek-ready\r\n", b"peek-delayed\r\n", b"peek-buried\r\n", b"kick 3\r\n"),
]
ON_JOBS = [
    *(b"peek %d\r\n", b"reserve-job %d\r\n", b"kick-job %d\r\n", b"stats-job %d\r\n"),
    *(b"delete %d\r\n" for _ in range(5)),
    *(b"release %d 7 0\r\n", b"release %d 0 5\r\n", b"bury %d 3\r\n"),
]


def command(dice: random.Random, jobs: int) -> bytes:
    what = dice.random()
    if what < 0.35:
        size = dice.choice([0, 10, 300, 300, 300, dice.randrange(2500)])
        body = dice.randbytes(size)
        pri = dice.choice([0, 5, 5, 5, dice.randrange(1000)])
        return put_line(body, pri, dice.choice([0, 0, 0, 3]), dice.choice([2, 100]))
    if what < 0.45:
        return b"use %b\r\n" % dice.choice([b"default", b"mail"])
    if what < 0.7:
        return dice.choice(COMMANDS)
    return dice.choice(ON_JOBS) % dice.randrange(max(1, jobs - 60), jobs + 2)


def play(rig: Rig, client: RigClient, other: RigClient, seed: int, steps: int) -> Iterator[bytes]:
    """Yield the reply to each command, and all bodies now and then."""
    dice = random.Random(seed)
    for turn in range(steps):
        # Several commands in one round, so that some bodies are not in any file yet.
        lines = b"".join(
            command(dice, int(rig.shared.last_id)) for _ in range(dice.choice([1, 1, 4]))
        )
        yield FILE_NUMBER.sub(b"", dice.choice([client, client, other]).ask_much(lines))
        if dice.random() < 0.05:
            rig.advance(SECOND)
        if turn % 100 == 99:
            yield b"".join(
                other.ask(b"peek %d\r\n" % job) for job in range(1, int(rig.shared.last_id) + 1)
            )
        if turn % 150 == 149:
            rig.core.compact(110, 0)


def played(folder: Path, seed: int, body_memory: int, history: bool) -> tuple[list[bytes], int]:
    replies: list[bytes] = []
    now = None
    read = 0
    for run in range(3):
        options = {"now": now} if now else {}
        with Rig(
            folder,
            file_size=FILE,
            sync_interval_ns=-1,
            body_memory=body_memory,
            history=history,
            **options,  # type: ignore[arg-type]
        ) as rig:
            client, other = rig.client(), rig.client()
            for one in (client, other):
                one.ask(b"watch mail\r\n")
            replies += [b"".join(other.ask(b"peek %d\r\n" % job) for job in range(1, 999))]
            replies += play(rig, client, other, seed + run, 250)
            assert rig.warnings() == []
            if body_memory:
                assert in_memory(rig) <= max(body_memory, 2600)
            now = rig.now
            read += int(rig.counters.bodies_read)
            rig.stop()
    return replies, read


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("body_memory", [1, SMALL, 20_000])
def test_replies_are_those_of_a_server_with_all_bodies(
    tmp_path: Path, body_memory: int, history: bool
) -> None:
    for seed in (10, 20):
        folders = [tmp_path / f"{seed} {name}" for name in ("all", "some")]
        for folder in folders:
            folder.mkdir()
        expected, _ = played(folders[0], seed, 0, history)
        found, read = played(folders[1], seed, body_memory, history)
        assert found == expected
        assert read > 20


@given(seed=st.integers(0, 2**32), body_memory=st.integers(1, 5000))
@settings(max_examples=10)
def test_random_runs(tmp_path_factory: pytest.TempPathFactory, seed: int, body_memory: int) -> None:
    first, second = (tmp_path_factory.mktemp("binlog") for _ in range(2))
    assert played(first, seed, 0, False)[0] == played(second, seed, body_memory, False)[0]


# --- memory --------------------------------------------------------------------------------------


def test_memory_is_bounded_while_putting_taking_and_starting(folder: Path) -> None:
    limit = 20_000
    with Rig(folder, file_size=1 << 16, body_memory=limit) as rig:
        client = rig.client()
        record = 0
        for job in range(1, 1001):
            client.put(body_of(job))
            assert in_memory(rig) <= limit
            record = record or rig.counters.job_bytes - in_memory(rig)
            assert rig.counters.job_bytes - in_memory(rig) == job * record
        assert in_memory(rig) > limit / 2
        for job in range(1, 500):
            assert client.reserve() == job
            client.do(b"delete %d" % job, b"DELETED")
            assert in_memory(rig) <= limit
            assert job > 40 or rig.counters.bodies_awaited == 0  # the first are in memory
        assert rig.counters.bodies_read > 400
        assert rig.counters.bodies_awaited < rig.counters.bodies_read / 5  # most were read ahead
        wait_until(lambda: not (folder / "binlog.1").exists())
        assert not [file for file in open_files() if "deleted" in file and str(folder) in file]
    with Rig(folder, file_size=1 << 16, body_memory=limit) as rig:
        assert limit / 2 < in_memory(rig) <= limit
        client = rig.client()
        for job in range(500, 1001):
            reply = client.ask(b"reserve\r\n")
            assert reply.endswith(b"\r\n%b\r\n" % body_of(job))
            client.do(b"delete %d" % job, b"DELETED")
        assert in_memory(rig) == rig.counters.job_bytes == 0


def test_a_body_larger_than_the_limit_and_the_window(folder: Path) -> None:
    large = random.Random(1).randbytes(3_000_000)
    with Rig(folder, body_memory=1000, max_job_size=1 << 24) as rig:
        client = rig.client()
        client.put(b"first")
        client.put(large)
        client.put(b"last")
        assert in_memory(rig) <= 1000
        assert client.ask_much(b"peek 2\r\n").endswith(large + b"\r\n")
    with Rig(folder, body_memory=1000, max_job_size=1 << 24) as rig:
        client = rig.client()
        assert in_memory(rig) <= 1000
        assert client.ask_much(b"peek 2\r\n").endswith(large + b"\r\n")
        assert client.body(3) == b"last"
        assert in_memory(rig) <= 1000


def test_without_a_binlog_all_bodies_stay() -> None:
    with Rig(body_memory=1) as rig:
        client = rig.client()
        fill(client, 50)
        assert client.body(50) == body_of(50)
        assert in_memory(rig) == rig.counters.bodies_read == 0


def test_several_tubes_are_taken_alternately(folder: Path) -> None:
    names = [b"t%d" % n for n in range(10)]
    with Rig(folder, file_size=1 << 16, body_memory=20_000) as rig:
        clients = [rig.client() for _ in names]
        for client, name in zip(clients, names, strict=True):
            client.use(name)
        for job in range(1, 1001):
            clients[job % 10].put(body_of(job))
        for job in range(1, 1001):
            reply = clients[job % 10].ask(b"reserve\r\n")
            assert reply.endswith(b"\r\n%b\r\n" % body_of(job))
            clients[job % 10].do(b"delete %d" % job, b"DELETED")
        assert rig.counters.bodies_awaited < 300


def test_a_put_for_a_waiting_client(folder: Path) -> None:
    with Rig(folder, body_memory=1) as rig:
        worker, client = rig.client(), rig.client()
        for job in range(1, 20):
            worker.send(b"reserve\r\n")
            client.put(body_of(job))
            assert worker.read().endswith(b"\r\n%b\r\n" % body_of(job))
        assert rig.counters.bodies_read == 0


# --- files of others -----------------------------------------------------------------------------


def test_files_of_c_beanstalkd(folder: Path) -> None:
    large = b"x" * 300_000  # more than a start reads at once
    options = ("-b", folder, "-s", "40960", "-z", "500000")
    with reference(*options) as server, server.connect() as client:
        for job in range(1, 301):
            assert client.put(body_of(job)) == job
        assert client.put(large) == 301
    with Rig(folder, body_memory=SMALL) as rig:
        client = rig.client()
        for job in range(1, 301):
            assert client.body(job) == body_of(job)
        assert in_memory(rig) <= SMALL
        assert client.ask_much(b"peek 301\r\n").endswith(large + b"\r\n")
    changed = folder / "binlog.2"
    with Rig(folder, body_memory=1) as rig:
        client = rig.client()
        data = changed.read_bytes()
        job = next(job for job in range(1, 301) if body_of(job) in data)
        flip(changed, data.index(body_of(job)) + 100)
        assert client.ask(b"peek %d\r\n" % job) == b"INTERNAL_ERROR\r\n"  # it has no checksum
        assert client.body(job + 1) == body_of(job + 1)


@pytest.mark.parametrize("name", ["v5-1.4.6.binlog.1", "v7-lifecycle.binlog.1"])
def test_files_of_old_versions(folder: Path, name: str) -> None:
    def bodies(body_memory: int) -> list[bytes | None]:
        (folder / "binlog.1").write_bytes((DATA / name).read_bytes())
        with Rig(folder, body_memory=body_memory) as rig:
            client = rig.client()
            assert not rig.warnings()
            return [client.body(job) for job in range(1, 20)]

    expected = bodies(0)
    for path in folder.iterdir():
        path.unlink()
    assert any(expected) and bodies(1) == expected


# --- damage --------------------------------------------------------------------------------------


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))


def damage(folder: Path, job: int) -> str:
    """Flip a bit in the body of a job, or restore it; return the name of its file."""
    for path in sorted(folder.glob("binlog.*")):
        at = path.read_bytes().find(body_of(job)[:50])
        if at >= 0:
            flip(path, at + 60)
            return path.name
    raise AssertionError(f"job {job} is in no file")


def test_a_damaged_job_is_buried_and_others_are_served(folder: Path) -> None:
    with Rig(folder, file_size=FILE, body_memory=1) as rig:
        client = rig.client()
        fill(client, 40)
        name = damage(folder, 5)
        for job in (1, 2, 3, 4, 6, 7):
            reply = client.ask(b"reserve\r\n")
            assert reply.endswith(b"\r\n%b\r\n" % body_of(job))
        assert client.job(5)["state"] == "buried"
        assert client.job(5)["buries"] == "1"
        assert client.ask(b"peek-buried\r\n") == b"INTERNAL_ERROR\r\n"
        client.do(b"reserve-job 5", b"INTERNAL_ERROR")
        assert client.job(5)["state"] == "buried"
        client.do(b"kick-job 5", b"KICKED")
        assert client.reserve() == 8
        assert [line for line in rig.warnings() if "job 5 " in line] == rig.warnings()
        assert f"file will be kept as {name}.bad" in rig.warnings()[0]
        assert rig.counters.bodies_unreadable >= 1
        client.do(b"delete 5", b"DELETED")
        for job in range(1, 41):
            if job != 5:
                client.ask(b"delete %d\r\n" % job)
        client.put(b"last")
        wait_until(lambda: (folder / f"{name}.bad").exists())
        assert rig.counters.job_bytes > 0
        assert rig.counters.binlog_files < 4


def test_a_waiting_client_gets_the_next_job(folder: Path) -> None:
    with Rig(folder, file_size=FILE, body_memory=1) as rig:
        client, worker = rig.client(), rig.client()
        fill(client, 10)
        client.do(b"pause-tube default 5", b"PAUSED")
        worker.send(b"reserve\r\n")
        damage(folder, 1)
        damage(folder, 2)
        rig.advance(5 * SECOND)
        assert worker.read().endswith(b"\r\n%b\r\n" % body_of(3))
        assert rig.counters.buried == 2


def test_a_batch_reads_some_bodies_and_skips_damaged_ones(folder: Path) -> None:
    with Rig(folder, file_size=1 << 16, body_memory=1) as rig:
        client = rig.client()
        fill(client, 80)
        damage(folder, 2)
        expected = [job for job in range(1, 81) if job != 2]
        while expected:
            jobs = jobs_of(client.ask_much(b"reserve-batch 1000 0\r\n"))
            assert [job.id for job in jobs] == expected[: len(jobs)]
            assert all(job.body == body_of(job.id) for job in jobs)
            assert len(jobs) == min(
                len(expected), 32 if jobs[0].id == 1 else 33
            )  # with the damaged one
            expected = expected[len(jobs) :]
        assert client.job(2)["state"] == "buried"
        assert client.ask(b"reserve-batch 1000 0\r\n") == b"TIMED_OUT\r\n"


@pytest.mark.parametrize("where", range(0, 400, 7))
def test_any_flipped_bit_is_found(folder: Path, where: int) -> None:
    """In a job's entry: its body never comes back changed."""
    with Rig(folder, body_memory=1) as rig:
        client = rig.client()
        fill(client, 3)
        path = folder / "binlog.1"
        flip(path, path.read_bytes().index(body_of(2)) - 90 + where)
        for job in (1, 2, 3):
            reply = client.ask(b"peek %d\r\n" % job)
            right = b"FOUND %d %d\r\n%b\r\n" % (job, len(body_of(job)), body_of(job))
            assert reply in (right, b"INTERNAL_ERROR\r\n")
        assert rig.counters.bodies_unreadable == 1


def test_a_truncated_or_missing_file(folder: Path) -> None:
    with Rig(folder, file_size=FILE, body_memory=1) as rig:
        client = rig.client()
        fill(client, 40)
        data = (folder / "binlog.2").read_bytes()
        with (folder / "binlog.2").open("r+b") as file:
            file.truncate(1000)
        (folder / "binlog.3").unlink()
        lost = 0
        for job in range(1, 41):
            reply = client.ask(b"peek %d\r\n" % job)
            lost += reply == b"INTERNAL_ERROR\r\n"
            assert reply == b"INTERNAL_ERROR\r\n" or reply.endswith(body_of(job) + b"\r\n")
        assert lost >= 10 and data
        assert client.reserve() == 1


def test_compaction_goes_on_behind_a_damaged_job(folder: Path) -> None:
    with Rig(folder, file_size=FILE, body_memory=1) as rig:
        client = rig.client()
        fill(client, 8)
        damage(folder, 3)
        for _ in range(300):
            client.do(b"delete %d" % client.put(b"c" * 300), b"DELETED")
            rig.tick()
        assert rig.counters.binlog_oldest > 8
        assert rig.counters.binlog_files <= 5
        bodies = [client.ask(b"peek %d\r\n" % job) for job in range(1, 9)]
        assert [reply == b"INTERNAL_ERROR\r\n" for reply in bodies].count(True) == 1
        wait_until(lambda: bool(list(folder.glob("*.bad"))))


# --- failing calls -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error"),
    [(Call.OPEN, errno.EMFILE), (Call.OPEN, errno.ENOENT), (Call.READ, errno.EIO)],
)
def test_a_failing_call_delays_the_tube(folder: Path, call: Call, error: int) -> None:
    with Rig(folder, file_size=FILE, body_memory=400) as rig:
        client, worker = rig.client(), rig.client()
        worker.use(b"other")
        jobs = fill(client, 40)
        client.do(b"delete 1", b"DELETED")  # the only body in memory
        fault_injection.fail(call, error=error, lasting=True)
        client.do(b"peek 3", b"INTERNAL_ERROR")
        client.do(b"reserve-job 4", b"INTERNAL_ERROR")
        client.do(b"reserve-with-timeout 0", b"TIMED_OUT")
        worker.put(b"new")
        assert worker.ask(b"reserve\r\n").endswith(b"new\r\n")
        client.send(b"reserve\r\n")
        rig.advance(SECOND)
        assert rig.counters.ready == 39
        fault_injection.heal()
        assert len([line for line in rig.warnings() if "cannot read the body" in line]) == 1
        rig.advance(SECOND)
        assert client.read().endswith(b"\r\n%b\r\n" % body_of(2))
        for job in jobs[2:]:
            assert client.ask(b"reserve\r\n").endswith(b"\r\n%b\r\n" % body_of(job))


def test_an_io_error_loses_no_job(folder: Path) -> None:
    """Nor does compaction during it."""
    with Rig(folder, file_size=FILE, body_memory=1) as rig:
        client = rig.client()
        jobs = fill(client, 40)
        fault_injection.fail(Call.READ, error=errno.EIO, lasting=True)
        client.do(b"reserve-with-timeout 0", b"TIMED_OUT")
        client.do(b"peek 7", b"INTERNAL_ERROR")
        rig.core.compact(100, 0)
        rig.tick()
        fault_injection.heal()
        assert rig.counters.ready == len(jobs)
        rig.advance(SECOND)
        for job in jobs[:20]:
            assert client.ask(b"peek %d\r\n" % job).endswith(b"\r\n%b\r\n" % body_of(job))
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        for job in jobs:
            assert client.ask(b"reserve\r\n").endswith(b"\r\n%b\r\n" % body_of(job))
    assert not list(folder.glob("*.bad"))


def test_a_kick_ends_though_its_job_is_buried_again(folder: Path) -> None:
    with Rig(folder, file_size=FILE, body_memory=1) as rig:
        client, worker = rig.client(), rig.client()
        fill(client, 3)
        damage(folder, 2)
        assert [worker.reserve(), worker.reserve()] == [1, 3]
        worker.send(b"reserve\r\n")
        client.do(b"kick 4000000000", b"KICKED 1")
        assert client.job(2)["kicks"] == "1"


@pytest.mark.parametrize("call", [Call.WRITE, Call.DATASYNC])
@pytest.mark.parametrize("nth", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89])
def test_after_a_failed_write_nothing_is_judged(folder: Path, call: Call, nth: int) -> None:
    actor = Actor(f"{call} {nth}")
    with Rig(folder, file_size=FILE, body_memory=1) as rig:
        client = rig.client()
        fault_injection.fail(call, nth=nth, error=errno.EIO)
        with pytest.raises(errors.BinlogWriteError):
            run_steps(actor, client, 1000)
        assert rig.counters.bodies_unreadable == 0
    fault_injection.heal()
    with Rig(folder, file_size=FILE, body_memory=1) as rig:
        check([actor], rig)


def test_after_a_failed_write_within_a_round_nothing_is_judged(folder: Path) -> None:
    """The buffer continues with the next file, so its bytes are in none."""
    with Rig(folder, file_size=FILE, body_memory=1) as rig:
        client = rig.client()
        fill(client, 5)
        fault_injection.fail(Call.WRITE, error=errno.EIO, lasting=True)
        lines = b"".join(put_line(body_of(job)) for job in range(6, 41))
        lines += b"".join(b"peek %d\r\n" % job for job in range(1, 41))
        with pytest.raises(errors.BinlogWriteError):
            client.send(lines)
        assert rig.counters.bodies_unreadable == 0
        assert not [line for line in rig.warnings() if "damaged" in line]


def test_a_kill_loses_nothing(folder: Path) -> None:
    actors = [Actor(f"client {n}", put_share=0.2, unique=n == 0, moves=n == 1) for n in range(3)]
    for _ in range(5):
        with Rig(folder, file_size=FILE, body_memory=SMALL) as rig:
            check(actors, rig)
            clients = [rig.client() for _ in actors]
            for _ in range(100):
                for actor, client in zip(actors, clients, strict=True):
                    actor.take(replies_in(client.ask(actor.next())))
            assert rig.counters.records_migrated > 0
            assert rig.warnings() == []
            check(actors, rig)


def test_the_buffer_of_the_round_has_bodies(folder: Path) -> None:
    """Bodies that no file has yet, at the end of a file, and moved ones."""
    with Rig(folder, file_size=FILE, body_memory=1) as rig:
        client = rig.client()
        lines = b"".join(put_line(body_of(job)) for job in range(1, 31))
        peeks: Callable[[], bytes] = lambda: b"".join(  # noqa: E731
            b"peek %d\r\n" % job for job in range(1, 31)
        )
        got = client.ask_much(lines + peeks())
        expected = b"".join(b"INSERTED %d\r\n" % job for job in range(1, 31))
        found = b"".join(
            b"FOUND %d %d\r\n%b\r\n" % (job, len(body_of(job)), body_of(job))
            for job in range(1, 31)
        )
        assert got == expected + found
        assert rig.core.compact(100, 0)
        assert client.ask_much(peeks()) == found


# --- resharding ----------------------------------------------------------------------------------


def test_resharding_reads_bodies_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reshard, "BODY_MEMORY", 1)
    with Rig(folder, file_size=FILE) as rig:
        fill(rig.client(), 100)
        rig.stop()

    def damage_after_reading(step: str) -> None:
        if step == "transfer":
            damage(folder, 50)

    with pytest.raises(errors.BinlogFolderError, match="its jobs are where they were"):
        reshard.reshard(folder, Layout(2), FILE, Steps(damage_after_reading))
    damage(folder, 50)  # restores the bit
    assert reshard.reshard(folder, Layout(2), FILE) == 100
    assert reshard.reshard(folder, WHOLE, FILE) == 100
    with Rig(folder, file_size=FILE, body_memory=1) as rig:
        client = rig.client()
        assert [client.body(job) for job in range(1, 101)] == [
            body_of(job) for job in range(1, 101)
        ]


def test_resharding_with_equal_ids(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shard was served by itself, so that jobs have the same ids; one of each gets another."""
    monkeypatch.setattr(reshard, "BODY_MEMORY", 2)
    assert reshard.reshard(folder, Layout(2), FILE) == 0
    for shard in (0, 1):
        with Rig(folder / f"shard-00{shard}", file_size=FILE) as rig:
            for job in range(1, 21):
                rig.client().put(b"%d " % shard + body_of(job))
    assert reshard.reshard(folder, WHOLE, FILE) == 40
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        bodies = {client.body(job) for job in range(1, 41)}
    assert bodies == {b"%d " % shard + body_of(job) for shard in (0, 1) for job in range(1, 21)}


# --- claims --------------------------------------------------------------------------------------


def claimed(folder: Path) -> Other:
    """Return a worker whose first job is claimed, its body not in memory, and others."""
    other = Other(binlog_dir=str(folder), body_memory=1)
    puts = b"".join(PUT_ON % (HERE, job, len(body), body) for job, body in CLAIMED.items())
    other.send((C.FEED, HOME, puts + b"\x02+%b\r\n" % HERE))
    other.send(step(C.WAIT, HOME, 1))
    other.send((C.FEED, HOME, PUT_ON % (HERE, 6, 5, b"other")))  # drops the body
    other.frames()
    assert other.shared.worker[1].body_bytes == 0
    return other


PUT_ON = b"\x01%b %d put 0 0 60 %d\r\n%b\r\n"
CLAIMED = {2: body_of(2), 4: body_of(4)}


def reserved(other: Other, job: int) -> bool:
    """Whether the client got this job."""
    body = CLAIMED[job]
    expected = b"RESERVED %d %d\r\n%b\r\n" % (job, len(body), body)
    return (C.OUTPUT, HOME, expected) in other.frames()


def test_a_claim_reads_the_body_back(folder: Path) -> None:
    other = claimed(folder)
    other.send(step(C.TAKE, HOME, 1))
    assert reserved(other, 2)
    other.close()


def test_a_claimed_job_that_is_damaged_is_buried(folder: Path) -> None:
    other = claimed(folder)
    damage(folder, 2)
    other.send(step(C.TAKE, HOME, 1))
    assert C.LOST in [frame[0] for frame in other.frames()]
    assert (other.shared.worker[1].buried, other.shared.worker[1].reserved) == (1, 0)
    assert any("it is lost" in line for line in other.log)
    other.send(step(C.CLAIM, HOME, 2, 0))
    assert reserved(other, 4)
    other.close()


def test_a_claimed_job_that_cannot_be_read_now_is_put_back(folder: Path) -> None:
    other = claimed(folder)
    fault_injection.fail(Call.READ, error=errno.ENOMEM, lasting=True)
    other.send(step(C.TAKE, HOME, 1))
    assert C.LOST in [frame[0] for frame in other.frames()]
    assert (other.shared.worker[1].ready, other.shared.worker[1].reserved) == (3, 0)
    other.send(step(C.CLAIM, HOME, 2, 0))
    assert C.LOST in [frame[0] for frame in other.frames()]
    fault_injection.heal()
    other.send(step(C.WAIT, HOME, 3))
    time.sleep(1.1)  # the pause of the tube
    other.run()
    assert C.WAITED in [frame[0] for frame in other.frames()]
    other.send(step(C.TAKE, HOME, 3))
    assert reserved(other, 2)
    other.close()
