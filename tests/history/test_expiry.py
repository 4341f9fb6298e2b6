"""Expiry removes the oldest files, and everything that refers to them."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
from history.stores import SMALL, assert_holds, opened, queue_messages, some_messages

from beanstalkd_py.errors import StoreFullError
from beanstalkd_py.history.store import Message, Options, Retention, Store
from beanstalkd_py.history.writing import expiry

HOUR = 3600
KEEP = Options(
    sizes=replace(SMALL, queue_file_units=4),
    background=False,
    retention=Retention(disk_crowded=1.1, disk_full=1.1),
)


def age(store: Store, files: int, hours: float) -> None:
    """Set the age of the oldest files of the log."""
    for start in store.log.segments.starts[:files]:
        then = time.time() - hours * HOUR
        os.utime(store.log.segments.path(start), (then, then))


def kept_of(store: Store, messages: list[Message]) -> list[Message]:
    return messages[len(messages) - len(list(store.scan())) :]


def ends_of(store: Store) -> dict[tuple[str, int], int]:
    """Return the next queue offset of every queue."""
    names = [(topic, number) for topic, numbers in store.topics().items() for number in numbers]
    return {name: store.bounds(*name)[1] for name in names}


def test_old_files_expire_with_their_queue_units_and_index_entries(tmp_path):
    messages = some_messages(1, 300)
    with opened(tmp_path / "store", KEEP) as store:
        store.append(messages)
        store.dispatch()
        count = len(store.log.segments.starts)
        age(store, 4, hours=73)
        age(store, 2, hours=80)
        expired = store.expire()
        assert expired.log_files == 4
        assert expired.queue_files > 0
        assert expired.index_files > 0
        assert len(store.log.segments.starts) == count - 4
        kept = kept_of(store, messages)
        assert 0 < len(kept) < len(messages)
        assert_holds(store, kept)
        assert store.query(messages[0].topic, "k0") == []
        begin, _ = store.bounds("t", 0)
        assert begin > 0
        assert queue_messages(store, "t")[0].queue_offset == begin
    with opened(tmp_path / "store", KEEP) as store:
        assert not store.recovered.rebuilt
        assert_holds(store, kept)
        store.append(messages[:10])
        store.dispatch()
        assert_holds(store, kept + messages[:10])


def test_a_store_that_was_rebuilt_after_expiry_keeps_its_queue_offsets(tmp_path):
    messages = some_messages(1, 300)
    messages[0] = Message(topic="rare", body=b"first and last")
    with opened(tmp_path / "store", KEEP) as store:
        store.append(messages)
        store.dispatch()
        age(store, 4, hours=73)
        store.expire()
        kept = kept_of(store, messages)
        ends = {
            (topic, n): store.bounds(topic, n)[1]
            for topic, ids in store.topics().items()
            for n in ids
        }
    (tmp_path / "store/dispatched").unlink()
    with opened(tmp_path / "store", KEEP) as store:
        assert store.recovered.rebuilt
        assert_holds(store, kept)
        assert ends_of(store) == ends
        assert store.append([Message(topic="rare")]).queue_offsets == [1]


def test_the_last_file_and_files_after_a_younger_one_are_kept(tmp_path):
    with opened(tmp_path / "store", KEEP) as store:
        store.append(some_messages(1, 100))
        store.dispatch()
        starts = list(store.log.segments.starts)
        age(store, len(starts), hours=100)
        os.utime(store.log.segments.path(starts[2]))
        assert store.expire().log_files == 2
        age(store, len(starts), hours=100)
        while store.expire().log_files:
            pass
        assert store.log.segments.starts == starts[-1:]


def test_the_number_of_files_removed_at_once_is_limited(tmp_path):
    options = Options(
        sizes=SMALL, background=False, retention=Retention(files_at_once=3, disk_crowded=1.1)
    )
    with opened(tmp_path / "store", options) as store:
        store.append(some_messages(1, 100))
        store.dispatch()
        age(store, 100, hours=100)
        assert store.expire().log_files == 3


def test_a_full_disk_expires_files_that_are_not_old(tmp_path, monkeypatch):
    fullness = iter([0.86, 0.86, 0.86, 0.84])
    options = Options(sizes=SMALL, background=False)
    with opened(tmp_path / "store", options) as store:
        store.append(some_messages(1, 100))
        store.dispatch()
        monkeypatch.setattr(expiry, "disk_used", lambda _: next(fullness))
        assert store.expire().log_files == 3


@pytest.mark.parametrize(
    ("used", "hours", "due"), [(0.5, (), False), (0.76, (), True), (0.5, range(24), True)]
)
def test_expired_files_are_removed_at_the_set_hour_or_when_the_disk_fills(
    tmp_path, monkeypatch, used, hours, due
):
    options = Options(sizes=SMALL, background=False, retention=Retention(at_hours=tuple(hours)))
    with opened(tmp_path / "store", options) as store:
        store.append(some_messages(1, 100))
        store.flush()
        age(store, 2, hours=73)
        monkeypatch.setattr(expiry, "disk_used", lambda _: used)
        before = len(store.log.segments.starts)
        store._expire_if_due()
        assert len(store.log.segments.starts) == (before - 2 if due else before)


def test_a_full_disk_refuses_appends_until_there_is_space(tmp_path, monkeypatch):
    with opened(tmp_path / "store", Options(sizes=SMALL, background=False)) as store:
        monkeypatch.setattr(expiry, "disk_used", lambda _: 0.91)
        store._expire_if_due()
        with pytest.raises(StoreFullError, match="too full"):
            store.append([Message(topic="t")])
        monkeypatch.setattr(expiry, "disk_used", lambda _: 0.5)
        store._expire_if_due()
        store.append([Message(topic="t")])


def test_nothing_expires_by_default(tmp_path):
    options = Options(sizes=SMALL, background=False, retention=None)
    with opened(tmp_path / "store", options) as store:
        store.append(some_messages(1, 100))
        age(store, 100, hours=10_000)
        assert not store.expire().any
