"""The commit log: files, roll-over, and appends on a full or failing disk."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from history.stores import BY_HAND, SMALL, assert_holds, files_of, opened, some_messages
from processes import eventually

from beanstalkd_py.errors import (
    FlushTimeoutError,
    StoreFailedError,
    StoreFullError,
    StoreLockedError,
    StoreUsageError,
)
from beanstalkd_py.history.store import Message, Options, Sizes, Store
from beanstalkd_py.history.writing import upkeep
from beanstalkd_py.history.writing.flush import GroupCommit


def body(size: int) -> Message:
    """Make a message whose record has this size."""
    return Message(topic="t", body=bytes([7]) * (size - 92))


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_files_are_named_by_offset_and_created_with_full_size(tmp_path):
    with opened(tmp_path / "store") as store:
        store.append([body(1000)] * 9)
    names = sorted(path.name for path in (tmp_path / "store/commitlog").iterdir())
    assert names == ["00000000000000000000", "00000000000000004096", "00000000000000008192"]
    assert {path.stat().st_size for path in (tmp_path / "store/commitlog").iterdir()} == {4096}


def test_a_record_that_does_not_fit_starts_the_next_file_after_a_blank(tmp_path):
    with opened(tmp_path / "store") as store:
        appended = store.append([body(4000), body(4000)])
        assert appended.offsets == [0, 4096]
        assert (appended.begin, appended.end) == (0, 8096)
    first = (tmp_path / "store/commitlog" / ("0" * 20)).read_bytes()
    assert first[4000:4008] == bytes.fromhex("00000060 cbd43194")
    assert first[4008:] == bytes(88)


def test_only_a_large_record_takes_a_large_buffer(tmp_path):
    options = Options(sizes=Sizes(1 << 24, 16, 8, 32), max_body_bytes=1 << 23, background=False)
    tracemalloc.start()
    try:
        with Store.open(tmp_path / "store", options) as store:
            store.append([body(100)])
            assert tracemalloc.get_traced_memory()[1] < 1 << 22
            messages = [body(100), body(1 << 23), body(100)]
            store.append(messages)
            assert [it.body for it in store.scan()][1:] == [it.body for it in messages]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("size", "second"), [(4088, 4096), (4087, 4096), (96, 96)])
def test_space_for_the_blank_always_remains(tmp_path, size, second):
    with opened(tmp_path / "store") as store:
        assert store.append([body(size), body(4000 - 8)]).offsets == [0, second]
        assert_holds_after_dispatch(store)


def assert_holds_after_dispatch(store):
    store.dispatch()
    assert_holds(store, list(store.scan()))


def test_queue_offsets_count_per_queue_without_prepared_messages(tmp_path):
    messages = [
        Message(topic="a"),
        Message(topic="a", queue_id=1),
        Message(topic="a", sys_flag=4),
        Message(topic="a", sys_flag=12),
        Message(topic="a", sys_flag=8),
        Message(topic="b"),
        Message(topic="a"),
    ]
    with opened(tmp_path / "store") as store:
        assert store.append(messages).queue_offsets == [0, 0, 0, 0, 1, 0, 2]


def test_store_timestamps_never_decrease(tmp_path, monkeypatch):
    times = iter([1000.0, 900.0, 1001.0])
    monkeypatch.setattr("beanstalkd_py.history.store.time.time", lambda: next(times))
    with opened(tmp_path / "store") as store:
        for _ in range(3):
            store.append([Message(topic="t")])
        stamps = [each.store_timestamp for each in store.scan()]
    assert stamps == [1_000_000, 1_000_000, 1_001_000]


def test_a_batch_without_disk_space_is_not_stored_and_can_be_retried(tmp_path, monkeypatch):
    with opened(tmp_path / "store") as store:
        store.append([body(3000)])
        before = files_of(tmp_path / "store/commitlog")
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", no_space)
            with pytest.raises(StoreFullError):
                store.append([Message(topic="new"), body(1000), body(1000)])
        assert files_of(tmp_path / "store/commitlog") == before
        again = store.append([Message(topic="new"), body(1000), body(1000)])
        assert again.queue_offsets == [0, 1, 2]
        assert_holds_after_dispatch(store)


def test_a_failed_write_ends_the_store(tmp_path, monkeypatch):
    with opened(tmp_path / "store") as store:
        store.append([body(1000)])

        def fail(*_: object) -> int:
            raise OSError(errno.EIO, "broken")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", fail)
            with pytest.raises(StoreFailedError, match="broken"):
                store.append([body(1000)])
        with pytest.raises(StoreFailedError, match="open it anew"):
            store.append([body(1000)])
    with opened(tmp_path / "store") as store:
        assert len(list(store.scan())) == 1


def test_after_a_failed_sync_nothing_is_acknowledged(tmp_path, monkeypatch):
    store = Store.open(tmp_path / "store", Options(sizes=SMALL, flush="sync", background=False))
    store.append([body(100)])
    real = os.fdatasync

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StoreFailedError, match="lost"):
        store.append([body(100)])
    monkeypatch.setattr(os, "fdatasync", real)
    for attempt in (lambda: store.append([body(100)]), store.flush, store.dispatch, store.close):
        with pytest.raises(StoreFailedError):
            attempt()
    assert (tmp_path / "store/abort").exists()


def test_one_sync_serves_all_waiting_threads(tmp_path):
    store = Store.open(tmp_path / "store", Options(sizes=SMALL, flush="sync", background=False))
    never, real = threading.Event(), store.log.segments.sync

    def sync() -> None:
        never.wait(0.02)  # about the time of a disk's sync
        real()

    store.log.segments.sync = sync  # type: ignore[method-assign]
    before = store._commit.syncs
    threads = [
        threading.Thread(target=lambda: [store.append([body(100)]) for _ in range(5)])
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.log.flushed == store.log.end
    assert len(list(store.scan())) == 80
    assert store._commit.syncs - before <= 40
    store.close()


def test_a_slow_sync_is_reported(tmp_path):
    with opened(tmp_path / "store") as store:
        commit = GroupCommit(store.log, store._health, timeout=0.01)
        stuck, leave = threading.Event(), threading.Event()

        def sync() -> None:
            stuck.set()
            leave.wait(10)

        store.log.segments.sync = sync  # type: ignore[method-assign]
        store.append([body(100)])
        leader = threading.Thread(target=commit.flush)
        leader.start()
        stuck.wait(10)
        with pytest.raises(FlushTimeoutError):
            commit.wait(store.log.end)
        leave.set()
        leader.join()
        commit.wait(store.log.end)


def test_threads_share_a_store(tmp_path):
    options = Options(sizes=SMALL, retention=None)
    batches = {seed: some_messages(seed, 20, 1000 * seed) for seed in range(6)}
    with Store.open(tmp_path / "store", options) as store:
        threads = [
            threading.Thread(target=lambda each=each: [store.append([one]) for one in each])
            for each in batches.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.dispatch()
        stored = assert_holds(store, list(store.scan()))
    bodies = [each.born_timestamp for each in stored]
    assert sorted(bodies) == sorted(m.born_timestamp for each in batches.values() for m in each)
    for each in batches.values():  # each thread's order is kept
        mine = [one.born_timestamp for one in each]
        assert [born for born in bodies if born in set(mine)] == mine


def test_background_threads_flush_dispatch_and_save(tmp_path):
    options = Options(
        sizes=SMALL,
        flush_interval_seconds=0.01,
        queue_flush_seconds=0.01,
        retention=None,
    )
    with Store.open(tmp_path / "store", options) as store:
        store.append(some_messages(1, 50))
        assert eventually(lambda: store.log.flushed == store.dispatched == store.log.end)
        assert eventually(lambda: store.recorded and store.recorded.offset == store.log.end)
        assert_holds(store, list(store.scan()))


def test_background_threads_wait_while_the_disk_is_full(tmp_path, monkeypatch):
    messages = some_messages(1, 50)
    monkeypatch.setattr(upkeep, "RETRY_SECONDS", 0.01)
    with Store.open(tmp_path / "store", Options(sizes=SMALL, retention=None)) as store:
        real = os.posix_fallocate
        monkeypatch.setattr(
            os, "posix_fallocate", lambda fd, at, n: no_space() if n != 4096 else real(fd, at, n)
        )
        store.append(messages)
        assert eventually(lambda: store.no_space_error is not None)
        monkeypatch.setattr(os, "posix_fallocate", real)
        assert eventually(lambda: store.dispatched == store.log.end)
        assert eventually(lambda: store.no_space_error is None)
        assert_holds(store, messages)


def test_the_next_append_reports_a_background_error(tmp_path):
    store = Store.open(tmp_path / "store", Options(sizes=SMALL, retention=None))

    def fail(_: int) -> None:
        raise RuntimeError("broken invariant")

    store._dispatcher.run = fail  # type: ignore[method-assign]
    store.append([body(100)])
    assert eventually(lambda: store.failure is not None)
    with pytest.raises(StoreFailedError, match="broken invariant"):
        store.append([body(100)])
    with pytest.raises(StoreFailedError, match="broken invariant"):
        store.close()


def test_with_synchronous_flush_only_flushed_messages_are_dispatched(tmp_path):
    with opened(tmp_path / "store", Options(sizes=SMALL, flush="sync", background=False)) as store:
        store.append([body(100)], durable=False)
        store._dispatch_all()
        assert store.dispatched == 0
        store.append([body(100)])
        store._dispatch_all()
        assert store.dispatched == store.log.end


def locked_by_another_process(path: Path) -> bool:
    """Try to take RocketMQ's lock in another process; return whether it is held."""
    ask = (
        f"import fcntl; fcntl.lockf(open({str(path)!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
    )
    asked = subprocess.run([sys.executable, "-c", ask], stderr=subprocess.PIPE, check=False)
    assert asked.returncode == 0 or b"BlockingIOError" in asked.stderr
    return asked.returncode != 0


def test_an_open_store_is_locked(tmp_path):
    with opened(tmp_path / "store"):
        assert (
            tmp_path / "store/lock"
        ).read_bytes() == b"lock"  # closing this file does not release the lock
        assert locked_by_another_process(tmp_path / "store/lock")
        with pytest.raises(StoreLockedError, match="in use"):
            Store.open(tmp_path / "store")
        assert locked_by_another_process(tmp_path / "store/lock")
    assert not locked_by_another_process(tmp_path / "store/lock")
    with (tmp_path / "store/lock").open("r+") as held:
        child = os.fork()
        if child == 0:
            fcntl.lockf(held, fcntl.LOCK_EX, 1, 0)
            signal.pause()
        try:
            assert eventually(lambda: locked_by_another_process(tmp_path / "store/lock"))
            with pytest.raises(StoreLockedError, match="in use"):
                Store.open(tmp_path / "store")
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_abort_exists_until_a_clean_stop(tmp_path):
    store = Store.open(tmp_path / "store", BY_HAND)
    assert (tmp_path / "store/abort").read_text() == str(os.getpid())
    store.close()
    assert not (tmp_path / "store/abort").exists()


def test_the_checkpoint_has_the_time_of_the_last_flushed_message(tmp_path):
    with Store.open(tmp_path / "store", BY_HAND) as store:
        store.append(some_messages(3, 10))
        last = store.last()
    data = (tmp_path / "store/checkpoint").read_bytes()
    stamp = last.store_timestamp
    assert data == struct.pack(">5q", stamp, stamp, stamp, 0, last.offset).ljust(4096, b"\0")


@pytest.mark.parametrize(
    "sizes", [{"segment_bytes": 64}, {"queue_file_units": 0}, {"index_entries": 1}]
)
def test_impossible_sizes_are_rejected(sizes):
    with pytest.raises(StoreUsageError, match=next(iter(sizes))):
        Sizes(**sizes)


def test_an_existing_store_keeps_its_sizes(tmp_path):
    Store.open(tmp_path / "store", BY_HAND).close()
    with Store.open(tmp_path / "store", Options(background=False)) as store:
        assert store.sizes == SMALL
    with pytest.raises(StoreUsageError, match="segment_bytes=4096"):
        Store.open(tmp_path / "store", Options(sizes=Sizes(8192)))
    with pytest.raises(StoreUsageError, match="commitlog"):
        Store.open(tmp_path / "none", Options(create=False))
    assert not (tmp_path / "none").exists()
