"""Archive binlogs into a store without processes: each job once, despite crashes.

The archiver is abandoned as by a kill or as by a power cut, which loses the unsynced part of the
store. The server is killed, stopped and restarted, and renames files to done files meanwhile.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from core.rig import MILLISECOND, Rig, RigClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import eventually

from beanstalkd_py.archiver.archive import Archive, archive_rest, position_of, sizes_of
from beanstalkd_py.archiver.archived_position import ARCHIVED, ArchivedPositions
from beanstalkd_py.archiver.shipped_files import record_shipped, remove_shipped
from beanstalkd_py.archiver.store_settings import StoreSettings
from beanstalkd_py.binlog.done_files import list_done_files, remove_files
from beanstalkd_py.core.clocks import Now
from beanstalkd_py.core.job_history import JobHistories
from beanstalkd_py.core.shared_memory import durable_position, new_shared
from beanstalkd_py.errors import (
    BinlogFolderError,
    StoreDamagedError,
    StoreFailedError,
    StoreFullError,
    StoreUsageError,
)
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.options import Options, Sizes
from beanstalkd_py.history.store import Store, StoreReader
from beanstalkd_py.history.verify import verify
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.parent.shard_folders import archive_before_reshard

FILE_BYTES = 4096
SIZES = Sizes(
    segment_bytes=1 << 20, queue_file_units=50, index_slots=50, index_entries=200, property_crc=True
)
TUBES = (b"mails", b"pictures.large")
DEFERRAL = 500 * MILLISECOND
"""The longest time until a reserve gets a deferred entry."""


class World:
    """A server core, an archive of its folder, and the expected contents of the store."""

    def __init__(self, top: Path) -> None:
        self.binlog, self.history = top / "binlog", top / "history"
        self.binlog.mkdir()
        self.shared = new_shared()
        self.ended: dict[int, tuple[bytes, bytes, range]] = {}
        self.live: dict[int, tuple[bytes, bytes]] = {}
        self.reserves: Counter[int] = Counter()
        self.unrecorded: Counter[int] = Counter()
        self.lost: Counter[int] = Counter()
        self.start()
        self.open()

    # --- the server

    def start(self, now: Now | None = None) -> None:
        extra = {} if now is None else {"now": now}
        self.rig = Rig(self.binlog, file_size=FILE_BYTES, history=True, shared=self.shared, **extra)
        self.client: RigClient = self.rig.client()
        self.client.ask(b"".join(b"watch %b\r\n" % tube for tube in TUBES))

    def restart(self, *, killed: bool) -> None:
        """Restart, which releases reserved jobs; a kill may lose the latest reserves."""
        now = self.rig.now
        (self.rig.close if killed else self.rig.stop)()
        if killed:
            self.lost += self.unrecorded
        self.unrecorded.clear()
        self.start(now)

    def put(self, number: int, size: int) -> None:
        tube = TUBES[number % len(TUBES)]
        body = (b"%d " % number).ljust(size, b"x")
        reply = self.client.ask(b"use %b\r\nput 0 0 100 %d\r\n%b\r\n" % (tube, len(body), body))
        self.live[int(reply.split()[-1])] = (tube, body)

    def reserve(self) -> None:
        reply = self.client.ask(b"reserve-with-timeout 0\r\n")
        if found := re.match(rb"RESERVED (\d+)", reply):
            self.reserves[int(found[1])] += 1
            self.unrecorded[int(found[1])] += 1

    def release(self, number: int) -> None:
        if self.live:
            job = sorted(self.live)[number % len(self.live)]
            if self.client.ask(b"release %d 0 0\r\n" % job) == b"RELEASED\r\n":
                del self.unrecorded[job]

    def advance(self, nanoseconds: int) -> None:
        self.rig.advance(nanoseconds)
        if nanoseconds >= DEFERRAL:
            self.unrecorded.clear()

    def delete(self, number: int) -> None:
        if self.live:
            job = sorted(self.live)[number % len(self.live)]
            assert self.client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
            reserves = self.reserves[job]
            reported = range(reserves - self.lost[job], reserves + 1)
            self.ended[job] = (*self.live.pop(job), reported)

    # --- the archiver

    def open(self) -> None:
        options = Options(sizes=SIZES, background=False, retention=None)
        self.store = Store.open(self.history, options)
        self.archive = Archive(self.store, [self.binlog], self.safe)

    def safe(self, index: int) -> tuple[int, int]:
        place = durable_position(self.rig.counters)
        assert place is not None
        return place

    def step(self) -> None:
        while self.archive.step():
            pass

    def release_files(self, *, thorough: bool) -> None:
        self.archive.release_files(thorough)

    def crash(self, *, power: bool) -> None:
        """Abandon the archiver; a power cut also loses the unsynced part of the store."""
        flushed, end = self.store.log.flushed, self.store.log.end
        self.archive.close()
        self.store.abandon()
        if power and flushed < end:
            path = self.history / "commitlog" / "00000000000000000000"
            with path.open("r+b") as log:
                log.seek(flushed)
                log.write(bytes(end - flushed))
        self.open()

    def check(self) -> None:
        """Check that each finished job is stored once, and that no done file is left."""
        self.step()
        self.release_files(thorough=True)
        reported = list(self.store.scan())
        assert Counter(int(m.properties["KEYS"]) for m in reported) == Counter(self.ended.keys())
        for message in reported:
            tube, body, reserves = self.ended[int(message.properties["KEYS"])]
            assert (message.properties["TUBE"].encode(), message.body) == (tube, body)
            assert int(message.properties["reserves"]) in reserves
            assert kinds(message)[0] == "put" and kinds(message)[-1] == "delete"
            assert kinds(message).count("reserve") == int(message.properties["reserves"])
        assert eventually(self.no_done_files)
        self.store.dispatch()
        assert not list(verify(self.store).faults)

    def no_done_files(self) -> bool:
        """Retry, because a thread of the server renames files."""
        self.release_files(thorough=True)
        return not list_done_files(self.binlog)

    def close(self) -> None:
        self.archive.close()
        self.store.close()
        self.rig.close()


def kinds(message: Stored) -> list[str]:
    return re.findall(r"(?:^|;)([a-z]+)@\d{19}", message.properties["timeline"])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


NUMBER = st.integers(0, 1000)
STEP = st.one_of(
    st.tuples(st.just("put"), NUMBER, st.integers(5, 1500)),
    st.tuples(st.sampled_from(["release", "delete", "delete"]), NUMBER),
    st.tuples(st.sampled_from(["reserve", "reserve", "turn"])),
    st.tuples(st.just("advance"), st.sampled_from([MILLISECOND, DEFERRAL])),
    st.tuples(st.sampled_from(["settle", "crash", "restart"]), st.booleans()),
)


@pytest.mark.costly
@settings(
    suppress_health_check=list(HealthCheck),
    max_examples=max(1, settings.default.max_examples * 3 // 5),  # type: ignore[union-attr]
)
@given(st.lists(STEP, max_size=120))
def test_every_finished_job_is_archived_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    for step in steps:
        match step:
            case ["put", int(number), int(size)]:
                world.put(number, size)
            case ["release", int(number)]:
                world.release(number)
            case ["delete", int(number)]:
                world.delete(number)
            case ["reserve"]:
                world.reserve()
            case ["turn"]:
                world.step()
            case ["advance", int(nanoseconds)]:
                world.advance(nanoseconds)
            case ["settle", bool(thorough)]:
                world.release_files(thorough=thorough)
            case ["crash", bool(power)]:
                world.crash(power=power)
            case ["restart", bool(killed)]:
                world.restart(killed=killed)
    world.check()
    world.close()


def test_removed_done_files_keep_their_events_in_the_history(world: World) -> None:
    """The job outlives its reserve entries' files and the archiver that has read them."""
    world.put(0, 100)
    (job,) = world.live
    for _ in range(100):
        world.reserve()
        world.client.ask(b"release %d 0 0\r\n" % job)
        world.put(1, 500)
        world.delete(1)
        world.step()
        world.release_files(thorough=False)
    oldest = min(int(path.suffix[1:]) for path in world.binlog.glob("binlog.*[0-9]"))
    assert oldest > 10
    world.crash(power=True)
    world.delete(0)
    world.check()


def test_a_full_store_loses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        world.put(number, 300)

    def refuse(*_: object) -> None:
        raise StoreFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "append", refuse)
        for number in range(40):
            world.delete(number)
            with pytest.raises(StoreFullError):
                world.step()
            world.release_files(thorough=True)
    assert eventually(lambda: bool(list_done_files(world.binlog)))
    world.check()


def test_done_files_are_kept_until_they_were_shipped(world: World) -> None:
    def finish_jobs() -> list[int]:
        for number in range(30):
            world.put(number, 500)
            world.delete(number)
        return release()

    def release() -> list[int]:
        world.step()
        world.release_files(thorough=True)
        return [each.number for each in list_done_files(world.binlog)]

    finish_jobs()
    # A file may be handed over after the step.
    assert eventually(lambda: len(release()) <= 1)
    record_shipped(world.binlog, {})
    kept = finish_jobs()
    assert len(kept) > 3 and kept == list(range(kept[0], kept[-1] + 1))
    identity = (world.binlog / "history.id").read_text().strip()
    record_shipped(world.binlog, {identity: kept[2]})
    assert finish_jobs()[0] == kept[3]
    (world.binlog / "shipped").write_text('{"cut')
    world.crash(power=True)
    assert finish_jobs()[0] == kept[3]
    record_shipped(world.binlog, {"of another folder": 10**6})
    assert finish_jobs()[0] == kept[3]
    assert remove_shipped(world.binlog) and not remove_shipped(world.binlog)
    finish_jobs()
    assert eventually(lambda: len(release()) <= 1)
    world.check()


def test_a_damaged_archived_position_is_reported(world: World) -> None:
    world.put(0, 3000)
    world.delete(0)
    world.put(1, 3000)
    world.step()
    world.release_files(thorough=True)
    path = world.history / ARCHIVED
    good = path.read_bytes()
    assert ArchivedPositions.load(world.history).read
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(StoreDamagedError, match="archived"):
            ArchivedPositions.load(world.history)
        path.write_bytes(good[:at])
        with pytest.raises(StoreDamagedError):
            ArchivedPositions.load(world.history)
    path.write_bytes(good)


@pytest.mark.parametrize("left", ["", "history.id"])
def test_a_new_folder_does_not_inherit_the_archived_position(world: World, left: str) -> None:
    """File numbers and job ids start again at 1; none of them counts as archived."""
    for number in range(30):
        world.put(number, 500)
        world.delete(number)
    world.step()
    world.release_files(thorough=True)
    world.archive.close()
    world.store.abandon()
    now = world.rig.now
    world.rig.stop()
    for path in world.binlog.iterdir():
        if path.name != left:
            path.unlink()
    first, world.ended = len(world.ended), {}
    world.shared = new_shared()
    world.start(now)
    world.open()
    for number in range(30):
        world.put(number, 500)
        world.delete(number)
    world.step()
    assert len(list(world.store.scan())) == first + len(world.ended)


@pytest.mark.parametrize("power", [False, True])
def test_a_job_that_ends_at_the_archived_position_is_archived(world: World, power: bool) -> None:
    """The first entry after the archived position may be the end of a job."""
    for number in range(3):
        world.put(number, 50)
    world.delete(0)
    world.step()
    world.release_files(thorough=True)
    for _ in range(2):
        world.delete(0)
        if power:
            world.step()
        world.crash(power=power)
    world.check()


def test_a_damaged_file_waits_for_the_first_read(world: World) -> None:
    """The archiver may begin with the folder when the server needs no job of the file any more."""
    for number in range(6):
        world.put(number, 500)
    now = world.rig.now
    world.rig.close()
    path = world.binlog / "binlog.1"
    path.write_bytes(path.read_bytes().replace(b"3 xxx", b"3 xyx"))
    del world.live[4]
    world.start(now)
    for _ in range(5):
        world.delete(0)
    world.rig.advance(DEFERRAL)
    assert eventually(lambda: 1 in [each.number for each in list_done_files(world.binlog)])
    world.check()
    assert b"3 xyx" in (world.binlog / "binlog.1.bad").read_bytes()


def test_missing_files_do_not_keep_later_done_files(world: World) -> None:
    """If the file with a job's end is missing, the job stays open forever."""
    for number in range(20):
        world.put(number, 300)
    world.step()
    for _ in range(20):
        world.delete(0)
    for number in range(40):
        world.put(number, 300)
        world.delete(0)
    assert eventually(lambda: len(list_done_files(world.binlog)) > 5)
    waiting = list_done_files(world.binlog)
    remove_files(waiting[: len(waiting) - 2])
    world.step()
    assert eventually(world.no_done_files)


def test_files_before_missing_ones_do_not_wait_for_jobs_that_ended_there(world: World) -> None:
    """As on a standby that has missed files. Jobs that end behind them are archived."""

    def put_and_delete(count: int) -> int:
        """Return the number of the last file."""
        for number in range(count):
            world.put(number, 300)
            world.delete(len(world.live) - 1)
        return max(sizes_of(world.binlog))

    for number in range(20):
        world.put(number, 300)
    before = put_and_delete(20)
    for _ in range(20):
        world.delete(0)
    world.put(1, 300)
    behind = put_and_delete(20)
    last = put_and_delete(100)
    done = partial(list_done_files, world.binlog)
    assert eventually(lambda: done()[-1].number > behind)
    remove_files([each for each in done() if before <= each.number <= behind])
    world.step()
    world.release_files(thorough=True)
    assert done()[0].number < before, "they may have bodies of jobs that end later"
    open_job = min(world.live)
    world.delete(0)
    while max(sizes_of(world.binlog)) < last + 3:
        put_and_delete(10)
    world.step()
    assert eventually(world.no_done_files)
    assert open_job in {int(one.properties["KEYS"]) for one in world.store.scan()}


def test_a_store_without_space_for_the_archived_position_is_full(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(0, 300)
    world.delete(0)
    world.step()

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(ArchivedPositions, "save", refuse)
        with pytest.raises(StoreFullError, match="no room"):
            world.release_files(thorough=True)
    world.check()


def test_reading_is_retried_after_an_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put(0, 300)
    world.delete(0)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "a bad disk")

    with monkeypatch.context() as patch:
        patch.setattr(JobHistories, "read", refuse)
        assert not world.archive.step()
        assert "a bad disk" in world.archive.read_error
    world.check()
    assert not world.archive.read_error


@pytest.mark.slow
def test_a_shard_is_the_same_under_any_name(tmp_path: Path) -> None:
    """Each job is archived once, whether its folder is alone or one of several."""
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        with Rig(folder, history=True) as rig:
            client = rig.client()
            for _ in range(5):
                client.do(b"delete %d" % client.put(), b"DELETED")
            rig.stop()
    rules = StoreSettings(tmp_path / "history")
    archived = [
        archive_rest(rules, folders, pytest.fail)
        for folders in ([first, second], [second], [first])
    ]
    assert archived == [10, 0, 0]


def test_archiving_before_a_reshard_fails_on_an_unreadable_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Archiving before a reshard cannot retry later."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, "not for you")

    (tmp_path / "binlog").mkdir()
    monkeypatch.setattr(JobHistories, "read", refuse)
    with pytest.raises(OSError, match=r"cannot read a binlog: .*not for you"):
        archive_rest(StoreSettings(tmp_path / "history"), [tmp_path / "binlog"], pytest.fail)


def test_a_full_history_prevents_resharding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder stays as it is, and the message has advice for the operator."""

    def refuse(*_: object) -> None:
        raise StoreFullError("no room")

    (tmp_path / "binlog").mkdir()
    monkeypatch.setattr(Archive, "finish", refuse)
    history = ServeOptions(history=str(tmp_path / "history"))
    with pytest.raises(BinlogFolderError, match=r"no room; fix that, keep the number"):
        archive_before_reshard(history, [tmp_path / "binlog"])


@pytest.mark.costly
def test_a_store_truncated_when_opened_is_reported(tmp_path: Path) -> None:
    (tmp_path / "binlog").mkdir()
    with Rig(tmp_path / "binlog", history=True) as rig:
        client = rig.client()
        for _ in range(5):
            client.do(b"delete %d" % client.put(), b"DELETED")
        rig.stop()
    rules = StoreSettings(tmp_path / "history")
    assert archive_rest(rules, [tmp_path / "binlog"], pytest.fail) == 5
    (tmp_path / "history" / "abort").touch()
    with (tmp_path / "history" / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(300)
        log.write(b"\xff\xff\xff")
    reported: list[str] = []
    archive_rest(rules, [tmp_path / "binlog"], reported.append)
    (line,) = reported
    assert str(tmp_path / "history" / "setaside" / f"{0:020d}") in line


@pytest.mark.costly
def test_truncated_messages_are_archived_again_from_done_files(tmp_path: Path) -> None:
    """Even if the archived position says that the messages were stored."""
    folder, history = tmp_path / "binlog", tmp_path / "history"
    folder.mkdir()
    with Rig(folder, file_size=FILE_BYTES, history=True) as rig:
        client = rig.client()
        for _ in range(60):
            client.do(b"delete %d" % client.put(b"x" * 300), b"DELETED")
        rig.stop()
    rules = StoreSettings(history)
    assert archive_rest(rules, [folder], pytest.fail) == 60
    assert (history / ARCHIVED).exists()
    with StoreReader.open(history) as reader:
        first = [int(message.properties["KEYS"]) for message in reader.scan()]
        cut = list(reader.scan())[20].offset
    (history / "abort").touch()
    with (history / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(cut)
        log.write(b"\xff" * 8)
    reported: list[str] = []
    again = archive_rest(rules, [folder], reported.append)
    assert len(reported) == 1 and 0 < again < 40
    with StoreReader.open(history) as reader:
        found = [int(message.properties["KEYS"]) for message in reader.scan()]
        assert verify(reader).is_clean
    assert found == first[:20] + first[-again:]
    assert archive_rest(rules, [folder], pytest.fail) == 0


JOBS = 200
"""Enough to fill more than two files of the smallest log that the archiver accepts."""


def make_archived_folder(folder: Path, history: Path, jobs: int) -> list[int]:
    """Make and archive a binlog folder, keep all of its files, and return the ids of its jobs."""
    folder.mkdir()
    with Rig(folder, file_size=1 << 24, history=True) as rig:  # in one file, which is not removed
        client = rig.client()
        ids = [client.put(b"x" * 3000) for _ in range(jobs)]
        for job in ids:
            client.do(b"delete %d" % job, b"DELETED")
        rig.stop()
    small = Sizes(segment_bytes=1 << 18, queue_file_units=50, index_slots=50, index_entries=200)
    with Store.open(history, Options(sizes=small, background=False, retention=None)):
        pass
    return ids


def lose_index(history: Path) -> None:
    shutil.rmtree(history / "index")


def lose_last_log_file(history: Path) -> None:
    sorted((history / "commitlog").iterdir())[-1].unlink()


def lose_log(history: Path) -> None:
    for path in (history / "commitlog").iterdir():
        path.unlink()


def lose_last_queue_files(history: Path) -> None:
    for queue in history.glob("consumequeue/*/*"):
        sorted(queue.iterdir())[-1].unlink()


@pytest.mark.parametrize("was_killed", [False, True])
@pytest.mark.parametrize(
    ("lose", "words"),
    [
        (lose_index, "rebuilt the index"),
        (lose_last_log_file, "files of the log are missing"),
        (lose_log, "files of the log are missing"),
        (lose_last_queue_files, "rebuilt the queues"),
    ],
)
def test_removed_store_files_are_reported_and_archived_again_once(
    tmp_path: Path, lose: Callable[[Path], None], words: str, was_killed: bool
) -> None:
    """With and without `abort`; the binlog files still exist."""
    folder, history = tmp_path / "binlog", tmp_path / "history"
    jobs = make_archived_folder(folder, history, JOBS)
    rules = StoreSettings(history)
    assert archive_rest(rules, [folder], pytest.fail) == len(jobs)
    assert len(list((history / "commitlog").iterdir())) > 2
    if was_killed:
        (history / "abort").touch()
    lose(history)
    reported: list[str] = []
    again = archive_rest(rules, [folder], reported.append)
    (line,) = reported
    assert words in line and str(history) in line
    assert (again > 0) == (lose in (lose_last_log_file, lose_log))
    with StoreReader.open(history) as reader:
        assert sorted(int(each.properties["KEYS"]) for each in reader.scan()) == jobs
        assert verify(reader).is_clean
    assert archive_rest(rules, [folder], pytest.fail) == 0


def test_a_kill_while_archiving_again_loses_nothing(
    tmp_path: Path,
) -> None:
    """The archived position must not count again once the log is as long as before."""
    folder, history = tmp_path / "binlog", tmp_path / "history"
    jobs = make_archived_folder(folder, history, JOBS)
    rules = StoreSettings(history)
    assert archive_rest(rules, [folder], pytest.fail) == len(jobs)
    with StoreReader.open(history) as reader:
        found = position_of(list(reader.scan())[-20])
        assert found is not None
        reached = found[1]
    places = ArchivedPositions.load(history)
    assert places.log_end > 0
    # The log is longer than the archived position, as if more had been archived after it was saved.
    places.log_end = sorted(layout.segment_starts(history / "commitlog"))[1] + 1
    places.save(history)
    for path in sorted((history / "commitlog").iterdir())[1:]:
        path.unlink()
    with Store.open(history, rules.options(background=False)) as store:
        archive = Archive(store, [folder], lambda index: reached)
        archive.step()
        archive.close()
        assert store.log.end > places.log_end
        left = len(list(store.scan()))
        assert len(jobs) - 30 < left < len(jobs)
    assert archive_rest(rules, [folder], pytest.fail) == len(jobs) - left
    with StoreReader.open(history) as reader:
        assert sorted(int(each.properties["KEYS"]) for each in reader.scan()) == jobs


def test_binlog_files_stay_if_the_store_has_lost_a_file(world: World) -> None:
    """Until the store is opened again and the missing messages are archived again."""
    for number in range(40):
        world.put(number, 300)
        world.delete(0)
    world.step()
    assert eventually(lambda: bool(list_done_files(world.binlog)))
    waiting = list_done_files(world.binlog)
    lose_log(world.history)
    with pytest.raises(StoreFailedError, match="was removed"):
        world.release_files(thorough=True)
    assert list_done_files(world.binlog) == waiting
    world.crash(power=False)
    world.check()


def test_a_store_with_too_small_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "binlog").mkdir()
    sizes = Sizes(segment_bytes=1 << 14, queue_file_units=50, index_slots=50, index_entries=200)
    Store.open(tmp_path / "history", Options(sizes=sizes, retention=None)).close()
    with pytest.raises(StoreUsageError, match=r"16384 bytes, too small for timelines"):
        archive_rest(StoreSettings(tmp_path / "history"), [tmp_path / "binlog"], pytest.fail)
