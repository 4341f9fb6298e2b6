"""Recovery after any stop: the log ends before the first bad message, and the rest matches it."""

from __future__ import annotations

import errno
import os
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from history.stores import (
    BY_HAND,
    DATA,
    SMALL,
    Checks,
    assert_holds,
    files_of,
    given,
    image,
    opened,
    queue_messages,
    some_messages,
)

from beanstalkd_py.errors import StoreDamagedError
from beanstalkd_py.history.files import segments
from beanstalkd_py.history.store import Message, Options, Sizes, Store, StoreReader

BLOCK = 512


def log_file(folder: Path, offset: int) -> Path:
    return folder / "commitlog" / f"{offset - offset % SMALL.segment_bytes:020d}"


def spoil(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def make(
    folder: Path, count: int = 60, save_after: int | None = None, sizes: Sizes = SMALL
) -> list[Message]:
    """Make a store with all messages written and some saved, and abandon it as by a kill."""
    messages = some_messages(1, count)
    with opened(folder, replace(BY_HAND, sizes=sizes)) as store:
        for number, message in enumerate(messages):
            store.append([message])
            if number + 1 == save_after:
                store.dispatch()
                store._save()
        store.dispatch()
    return messages


def test_a_killed_process_loses_nothing(tmp_path):
    for save_after in (None, 1, 30, 60):
        folder = tmp_path / f"store{save_after}"
        messages = make(folder, save_after=save_after)
        with opened(folder) as store:
            assert not store.recovered.was_clean
            assert not store.recovered.rebuilt
            assert_holds(store, messages)


def test_a_clean_stop_leaves_nothing_to_do(tmp_path):
    messages = some_messages(2, 60)
    with Store.open(tmp_path / "store", BY_HAND) as store:
        store.append(messages)
    before = files_of(tmp_path / "store")
    with Store.open(tmp_path / "store", BY_HAND) as store:
        assert store.recovered.was_clean
        assert store.recovered.dispatched_from == store.log.end
        assert_holds(store, messages)
    assert files_of(tmp_path / "store") == before


def test_the_next_start_dispatches_the_rest(tmp_path):
    messages = some_messages(3, 40)
    with opened(tmp_path / "store") as store:
        store.append(messages)
    with opened(tmp_path / "store") as store:
        assert store.recovered.dispatched_from == 0
        assert_holds(store, messages)


def test_a_recovered_store_is_identical_to_one_that_never_crashed(tmp_path):
    messages = [
        Message(
            topic=each.topic, body=each.body, properties=each.properties, store_timestamp=10**12 + n
        )
        for n, each in enumerate(some_messages(4, 80))
    ]
    with Store.open(tmp_path / "quiet", BY_HAND) as store:
        store.append(messages)
    for begin in range(0, 80, 10):
        with opened(tmp_path / "crashing") as store:
            store.append(messages[begin : begin + 10])
            if begin % 20:
                store.dispatch()
    Store.open(tmp_path / "crashing", BY_HAND).close()
    quiet, crashing = files_of(tmp_path / "quiet"), files_of(tmp_path / "crashing")
    for part in ("commitlog", "consumequeue", "checkpoint"):
        assert {path: data for path, data in quiet.items() if path.startswith(part)} == {
            path: data for path, data in crashing.items() if path.startswith(part)
        }
    assert [data for path, data in quiet.items() if path[:5] == "index"] == [
        data for path, data in crashing.items() if path[:5] == "index"
    ]


def cuts(folder: Path, last: int) -> range:
    """Return every offset of the last messages, and a few before and after."""
    with StoreReader.open(folder) as store:
        stored = list(store.scan())[-last:]
        return range(stored[0].offset - 1, store.log.end + 9)


def stop_clock(patch: pytest.MonkeyPatch) -> None:
    """Stop the clock, so that equal recoveries make equal files."""
    now = time.time()
    patch.setattr(time, "time", lambda: now)


def cut_log(tmp_path: Path, how: str, step: int, patch: pytest.MonkeyPatch) -> None:
    """Cut the log; noise needs the CRC property, because plain records only protect the body."""
    sizes = replace(SMALL, property_crc=how == "noise")
    messages = make(tmp_path / "store", count=25, save_after=24, sizes=sizes)
    with StoreReader.open(tmp_path / "store") as store:
        ends = [each.offset + each.size for each in store.scan()]
    stop_clock(patch)
    checks = Checks()
    for cut in cuts(tmp_path / "store", last=2)[::step]:
        folder = image(tmp_path / "store", tmp_path / "cut")
        path, at = log_file(folder, cut), cut % SMALL.segment_bytes
        if how == "shortened":
            with path.open("r+b") as file:
                file.truncate(at)
        else:
            rest = path.stat().st_size - at
            spoil(path, at, bytes(rest) if how == "zeros" else random.Random(cut).randbytes(rest))
        kept = messages[: sum(end <= cut for end in ends)]
        with opened(folder, Options(background=False, retention=None)) as store:
            checks.assert_holds(store, kept)
            assert_whole_after_more(store, kept, checks)
        shutil.rmtree(folder)


@pytest.mark.parametrize("how", ["shortened", "zeros", "noise"])
def test_a_cut_log_keeps_the_messages_before_the_cut(tmp_path, monkeypatch, how):
    cut_log(tmp_path, how, 61, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["shortened", "zeros", "noise"])
def test_a_log_cut_at_any_byte_of_its_last_messages_keeps_those_before_the_cut(
    folder, monkeypatch, how
):
    cut_log(folder, how, 1, monkeypatch)


def assert_whole_after_more(store: Store, before: list[Message], checks: Checks) -> None:
    more = some_messages(99, 5, first=900)
    store.append(more)
    store.dispatch()
    checks.assert_holds(store, before + more)


def test_recovery_finds_the_last_message(tmp_path):
    messages = make(tmp_path / "store", count=30, save_after=10)
    with opened(tmp_path / "store") as store:
        last = store.last()
        assert last is not None
        assert given(last) == given(messages[-1])
        spoil(log_file(tmp_path / "store", last.offset), last.offset % 4096 + 4, bytes(4))
    with opened(tmp_path / "store") as store:
        last = store.last()
        assert last is not None
        assert given(last) == given(messages[-2])
        assert "no record begins here" in store.recovered.fault


def torn(folder: Path, old: dict[str, bytes], dice: random.Random) -> None:
    """Apply a power cut: each block written since the last sync, of `old`, is on disk or not."""
    for path, new in files_of(folder).items():
        before = old.get(path, bytes(len(new)))
        if before == new or path in ("checkpoint", "dispatched", "store.json", "lock", "abort"):
            continue
        if path not in old and dice.random() < 0.2:
            (folder / path).unlink()  # not even the name was on disk
            continue
        mixed = bytearray(new)
        for at in range(0, len(new), BLOCK):
            if dice.random() < 0.5:
                mixed[at : at + BLOCK] = before[at : at + BLOCK]
        (folder / path).write_bytes(mixed)


def power_cut(tmp_path: Path, seed: int) -> None:
    """Save a store now and then, cut the power, and check that every saved message is there."""
    dice = random.Random(seed)
    messages = some_messages(seed, dice.randrange(5, 90))
    folder = tmp_path / f"store{seed}"
    plan = [(dice.random() < 0.3, dice.random() < 0.1) for _ in messages]
    saved = max((number for number, (_, saves) in enumerate(plan, 1) if saves), default=0)
    with opened(folder) as store:
        durable = files_of(folder)
        for number, (dispatches, saves) in enumerate(plan, 1):
            store.append([messages[number - 1]])
            if dispatches:
                store.dispatch()
            if saves:
                store._save()
            if number == saved:
                durable = files_of(folder)
    torn(folder, durable, dice)
    with pytest.MonkeyPatch.context() as patch:
        stop_clock(patch)
        recover_twice(folder, messages, saved)


def recover_twice(folder: Path, messages: list[Message], saved: int) -> None:
    checks = Checks()
    for again in range(2):  # the second time after a kill during the first
        with opened(folder) as store:
            survivors = len(list(store.scan()))
            assert survivors >= saved
            checks.assert_holds(store, messages[:survivors])
            assert store.recovered.rebuilt is False or not again
            messages = messages[:survivors]
            assert_whole_after_more(store, messages, checks)
            messages += some_messages(99, 5, first=900)
            saved = 0


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_leaves_no_hole_in_a_queue_and_loses_no_index_entry(tmp_path, seed):
    power_cut(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ten", range(30))
def test_three_hundred_power_cuts(folder, ten):
    for seed in range(1000 + 10 * ten, 1010 + 10 * ten):
        power_cut(folder, seed)


# --- errors of RocketMQ's own recovery ------------------------------------------------------------


def test_units_lost_in_a_power_cut_are_restored(tmp_path):
    """RocketMQ replays from a timestamp ahead of the disk, and leaves a permanent hole."""
    messages = [Message(topic="busy", body=b"%d" % n) for n in range(600)]
    messages[::3] = [Message(topic="idle", body=b"%d" % n) for n in range(200)]
    with opened(tmp_path / "store") as store:
        for message in messages:
            store.append([message])
        store.dispatch()
    for path in sorted((tmp_path / "store/consumequeue/idle/0").iterdir())[2:]:
        path.unlink()
    spoil(sorted((tmp_path / "store/consumequeue/idle/0").iterdir())[1], 100, bytes(220))
    with opened(tmp_path / "store") as store:
        assert store.bounds("idle", 0) == (0, 200)
        bodies = [each.body for each in queue_messages(store, "idle")]
        assert bodies == [b"%d" % n for n in range(200)]
        assert_holds(store, messages)


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("lost", ["queue", "first file", "last file", "middle file", "all"])
def test_missing_queue_files_are_rebuilt(tmp_path, lost, was_clean):
    messages = [Message(topic=f"t{n % 2}", body=b"%d" % n) for n in range(200)]
    store = Store.open(tmp_path / "store", BY_HAND)
    store.append(messages)
    store.dispatch()
    if was_clean:
        store.close()
    else:
        store._save()
        store.abandon()
    files = sorted((tmp_path / "store/consumequeue/t1/0").iterdir())
    {
        "queue": lambda: shutil.rmtree(tmp_path / "store/consumequeue/t1"),
        "first file": files[0].unlink,
        "last file": files[-1].unlink,
        "middle file": files[3].unlink,
        "all": lambda: shutil.rmtree(tmp_path / "store/consumequeue"),
    }[lost]()
    with opened(tmp_path / "store") as store:
        assert_holds(store, messages)


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("lost", ["first", "last", "all"])
def test_missing_index_files_are_rebuilt(tmp_path, lost, was_clean):
    messages = some_messages(8, 200)
    store = Store.open(tmp_path / "store", BY_HAND)
    store.append(messages)
    store.dispatch()
    store._save()
    store.close() if was_clean else store.abandon()
    files = sorted((tmp_path / "store/index").iterdir())
    assert len(files) > 3
    for path in {"first": files[:1], "last": files[-1:], "all": files}[lost]:
        path.unlink()
    with opened(tmp_path / "store") as store:
        assert_holds(store, messages)


def test_an_index_file_that_is_not_full_survives_an_unclean_stop(tmp_path):
    """RocketMQ deletes it, and the next one starts where the replay begins."""
    messages = [Message(topic="t", properties={"KEYS": f"job{n}"}) for n in range(1500)]
    folder = tmp_path / "store"
    options = Options(sizes=None, background=False, retention=None)
    with opened(folder, BY_HAND) as store:
        store.append(messages)
        store.dispatch()
        assert not store.index.files[-1].is_full
    for _ in range(2):
        with opened(folder, options) as store:
            for key in ("job5", "job700", "job1300", "job1499"):
                assert len(store.query("t", key)) == 1


@pytest.mark.parametrize("was_clean", [True, False])
def test_records_after_a_bad_one_are_not_restored(tmp_path, was_clean):
    """RocketMQ only resets its position: after a new record of equal size it reads the old ones."""
    folder = tmp_path / "store"
    messages = [Message(topic="t", body=b"%03d" % n) for n in range(20)]
    with opened(folder) as store:
        offsets = store.append(messages).offsets
    spoil(log_file(folder, offsets[10]), offsets[10] + 4, b"\xff")
    with opened(folder) as store:
        assert len(list(store.scan())) == 10
        assert "no record begins here" in store.recovered.fault
        store.append([Message(topic="t", body=b"new")])
        store.dispatch()
        if was_clean:
            store.close()
    with opened(folder) as store:
        assert [each.body for each in store.scan()] == [b"%03d" % n for n in range(10)] + [b"new"]
        assert_holds(store, [*messages[:10], Message(topic="t", body=b"new")])


def test_bytes_after_a_bad_record_are_set_aside(tmp_path):
    """They may have valid messages; the second log ends at the same offset as the first."""
    folder = tmp_path / "store"
    messages = [Message(topic="t", body=b"%03d" % n * 100) for n in range(40)]
    aside = folder / "setaside"
    for number in range(2):
        with opened(folder) as store:
            assert store.recovered.tail_file is None
            offsets = store.append(messages).offsets
        start = offsets[10]
        files = sorted((folder / "commitlog").iterdir())
        spoil(log_file(folder, start), start % 4096, bytes(8))
        whole = b"".join(path.read_bytes() for path in files)[start:].rstrip(b"\0")
        with opened(folder) as store:
            path = aside / (f"{start:020d}" + (".1" if number else ""))
            assert store.recovered.tail_file == path
            assert path.read_bytes() == whole
            assert messages[-1].body in whole
        shutil.rmtree(folder / "commitlog")
        (folder / "dispatched").unlink()
        shutil.rmtree(folder / "consumequeue")
        shutil.rmtree(folder / "index")


def test_opening_removes_a_tail_left_by_rocketmq(tmp_path):
    folder = shutil.copytree(DATA / "normal", tmp_path / "store")
    with StoreReader.open(folder) as store:
        end = store.log.end
        messages = list(store.scan())
    path = folder / "commitlog" / "00000000000000081920"
    stale = (folder / "commitlog" / "00000000000000000000").read_bytes()[289:536]
    spoil(path, end - 81920 + 300, stale)
    with Store.open(folder, Options(background=False, retention=None)) as store:
        assert_holds(store, messages)
    assert path.read_bytes()[end - 81920 :].strip(b"\0") == b""


def test_a_crash_on_a_full_disk_duplicates_no_entry(tmp_path, monkeypatch):
    messages = some_messages(31, 150)
    with opened(tmp_path / "store") as store:
        store.append(messages)
        real, left = os.posix_fallocate, [9]

        def until_full(fd: int, offset: int, length: int) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "full")
            real(fd, offset, length)

        def write_half(fd: int, data: bytes | memoryview, offset: int) -> None:
            left[0] -= 1
            if left[0] < 0:
                real_write(fd, memoryview(data)[: len(data) // 2], offset)
                raise OSError(errno.ENOSPC, "full")
            real_write(fd, data, offset)

        real_write = segments.write_all
        monkeypatch.setattr(os, "posix_fallocate", until_full)
        monkeypatch.setattr(segments, "write_all", write_half)
        with pytest.raises(OSError, match="full"):
            store._dispatch_all()
        store._save()
        monkeypatch.setattr(os, "posix_fallocate", real)
        monkeypatch.setattr(segments, "write_all", real_write)
    with opened(tmp_path / "store") as store:
        assert not store.recovered.rebuilt
        assert_holds(store, messages)


def test_recovery_keeps_the_complete_messages_of_a_partial_batch(tmp_path):
    """The writer checks the last message and continues after it."""
    with opened(tmp_path / "store") as store:
        offsets = store.append(
            [Message(topic="t", properties={"UNIQ_KEY": str(n)}) for n in range(9)]
        )
        at = offsets.offsets[5] + 20
    with (tmp_path / "store/commitlog" / ("0" * 20)).open("r+b") as file:
        file.truncate(at)
    with opened(tmp_path / "store") as store:
        last = store.last()
        assert last is not None
        assert last.properties["UNIQ_KEY"] == "4"


def test_a_log_with_a_gap_is_rejected(tmp_path):
    make(tmp_path / "store", count=100, save_after=100)
    sorted((tmp_path / "store/commitlog").iterdir())[2].unlink()
    before = files_of(tmp_path / "store")
    with pytest.raises(StoreDamagedError, match="no file before it ends"):
        Store.open(tmp_path / "store", BY_HAND)
    assert files_of(tmp_path / "store") == before


def test_slots_of_the_index_that_are_newer_than_its_header(tmp_path: Path) -> None:
    """A power cut can leave the header of the last save with later slots."""
    sizes = replace(SMALL, index_slots=300, index_entries=1000)
    messages = some_messages(7, 90)
    folder = tmp_path / "store"
    options = replace(BY_HAND, sizes=sizes)
    with opened(folder, options) as store:
        store.append(messages[:60])
        store.dispatch()
        store._save()
        path = store.index.files[-1].path
        saved = path.read_bytes()
        store.append(messages[60:])
        store.dispatch()
        store.index.sync()
        later = path.read_bytes()
    entries = 40 + 4 * sizes.index_slots
    assert later[BLOCK:entries] != saved[BLOCK:entries]
    path.write_bytes(saved[:BLOCK] + later[BLOCK:entries] + saved[entries:])
    with opened(folder, options) as store:
        assert not store.recovered.rebuilt
        assert_holds(store, messages)
