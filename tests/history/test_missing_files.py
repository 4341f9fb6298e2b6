"""Files removed from a store: verify and opening report recorded data that is missing.

The store is open in this process, was killed, or was closed. `abort` is missing only after closing.
In the other states the positions in `dispatched` show what is missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from history.stores import BY_HAND, assert_holds, opened, some_messages

from beanstalkd_py.errors import StoreFailedError
from beanstalkd_py.history.store import Store, StoreReader
from beanstalkd_py.history.verify import MOST_FAULTS, Report, verify

STATES = ("running", "crashed", "closed")


@contextmanager
def store_in(state: str, folder: Path) -> Iterator[None]:
    """Make a store of 200 saved messages, and 3 unsaved ones in the same file."""
    store = Store.open(folder, BY_HAND)
    store.append(some_messages(12, 200))
    store.dispatch()
    store._save()
    store.append(some_messages(13, 3, first=200))
    if state == "closed":
        store.close()
    elif state == "crashed":
        store.abandon()
    yield
    store.abandon()


def remove_index(folder: Path) -> None:
    shutil.rmtree(folder / "index")


def remove_last_log_files(folder: Path) -> None:
    """Remove the last two files, because the last one has only unsaved messages."""
    for path in sorted((folder / "commitlog").iterdir())[-2:]:
        path.unlink()


def remove_log(folder: Path) -> None:
    for path in (folder / "commitlog").iterdir():
        path.unlink()


def remove_last_queue_files(folder: Path) -> None:
    for queue in folder.glob("consumequeue/*/*"):
        sorted(queue.iterdir())[-1].unlink()


LOSSES: dict[Callable[[Path], None], str] = {
    remove_index: "keys from this message on are not in the index",
    remove_last_log_files: "more bytes are recorded as having been on disk",
    remove_log: "more bytes are recorded as having been on disk",
    remove_last_queue_files: "units are missing",
}


def look(folder: Path) -> Report:
    with StoreReader.open(folder) as store:
        return verify(store)


@pytest.mark.parametrize("state", STATES)
def test_verify_reports_no_fault_in_a_complete_store(tmp_path: Path, state: str) -> None:
    with store_in(state, tmp_path / "store"):
        report = look(tmp_path / "store")
        assert report.faults == []
        assert report.pending == 0 if state == "closed" else 0 < report.pending <= 3


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("loss", LOSSES)
def test_verify_reports_missing_files(
    tmp_path: Path, state: str, loss: Callable[[Path], None]
) -> None:
    with store_in(state, tmp_path / "store"):
        loss(tmp_path / "store")
        report = look(tmp_path / "store")
        assert any(LOSSES[loss] in fault.what for fault in report.faults), report
        assert len(report.faults) < 40 and not report.stopped  # one fault per queue, not per unit


def test_an_end_recorded_by_another_program_counts(tmp_path: Path) -> None:
    with store_in("crashed", tmp_path / "store"), StoreReader.open(tmp_path / "store") as store:
        end = store.log.end
        assert verify(store, recorded_end=end).is_clean
        (fault,) = verify(store, recorded_end=end + 70).faults
        assert "70 more bytes" in fault.what


@pytest.mark.parametrize("state", ["crashed", "closed"])
@pytest.mark.parametrize("loss", LOSSES)
def test_opening_reports_missing_files_and_repairs_the_rest(
    tmp_path: Path, state: str, loss: Callable[[Path], None]
) -> None:
    folder = tmp_path / "store"
    with store_in(state, folder):
        pass
    with StoreReader.open(folder) as reader:
        end = reader.log.end
    loss(folder)
    with StoreReader.open(folder) as reader:
        left = len(list(reader.scan()))
        lost = end - reader.log.end
    messages = [*some_messages(12, 200), *some_messages(13, 3, first=200)]
    with Store.open(folder, BY_HAND) as store:
        recovered = store.recovered
        if loss in (remove_log, remove_last_log_files):
            # Unsaved messages are recorded only by closing the store.
            assert 0 < recovered.missing_bytes <= lost
            assert recovered.missing_bytes == lost or state == "crashed"
        else:
            assert recovered.missing_bytes == 0
            assert ("index" if loss is remove_index else "queues") in recovered.remade
        assert_holds(store, messages[:left])
    with Store.open(folder, BY_HAND) as store:
        assert (store.recovered.missing_bytes, store.recovered.remade) == (0, "")


def test_opening_a_complete_store_reports_nothing(tmp_path: Path) -> None:
    for state in ("crashed", "closed"):
        with store_in(state, tmp_path / state):
            pass
        with opened(tmp_path / state) as store:
            assert (store.recovered.missing_bytes, store.recovered.remade) == (0, "")


@pytest.mark.parametrize("loss", [remove_index, remove_last_log_files, remove_log])
def test_an_open_store_fails_when_its_files_are_removed(
    tmp_path: Path, loss: Callable[[Path], None]
) -> None:
    """Data written to a removed file is lost, so the store rejects more messages."""
    with opened(tmp_path / "store") as store:
        store.append(some_messages(12, 200))
        store.dispatch()
        store.check_files()
        loss(tmp_path / "store")
        with pytest.raises(StoreFailedError, match="was removed"):
            store.check_files()
        with pytest.raises(StoreFailedError):
            store.append(some_messages(14, 1))


def test_verify_reports_that_it_has_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Store.open(folder, BY_HAND) as store:
        store.append([each for each in some_messages(12, 1600) if each.sys_flag == 0])
    for path in folder.glob("consumequeue/*/*/*"):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data.rstrip(b"\0")), 20):
            data[at + 12] ^= 1
        path.write_bytes(data)
    report = look(folder)
    assert (len(report.faults), report.stopped) == (MOST_FAULTS, True)
