"""Several schedules with simulated puts and a simulated clock, and the file of their progress."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from beanstalkd_py import errors
from beanstalkd_py.binlog.layout import SCHEDULES
from beanstalkd_py.schedules.schedule import Schedule
from beanstalkd_py.server.schedules.progress_file import Progress, load_progress, save_progress
from beanstalkd_py.server.schedules.progress_writer import ProgressWriter
from beanstalkd_py.server.schedules.scheduler import Scheduler

MINUTE = 60
NOON = 20_000 * 86400 + 12 * 3600
FIRST = Schedule("first", "* * * * *", "one")
SECOND = Schedule("second", "*/5 * * * *", "two", catch_up="none")


@dataclass
class Rig:
    """A scheduler whose puts are recorded, or fail with `refusal`."""

    now: float = NOON + 1
    draining: bool = False
    refusal: str = ""
    puts: list[tuple[str, str | None]] = field(default_factory=list)
    stored: int = 0

    def __post_init__(self) -> None:
        self.scheduler = self.start({})

    def start(self, progress: dict[str, Progress]) -> Scheduler:
        scheduler = Scheduler(
            self.put, lambda: self.draining, progress, lambda task: task(), lambda: self.now
        )
        scheduler.keep_progress(self)
        return scheduler

    def put(self, schedule: Schedule, key: str | None) -> int:
        if self.refusal:
            raise errors.PutError(self.refusal)
        self.puts.append((schedule.name, key))
        return len(self.puts)

    def wake(self) -> None:
        self.stored += 1

    def close(self) -> None:
        pass

    def at(self, now: float) -> list[tuple[str, str | None]]:
        """Return the puts at this time."""
        self.now = now
        self.puts.clear()
        self.scheduler.start_due()
        return list(self.puts)


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.scheduler.change([FIRST, SECOND])
    return made


def test_keys_have_schedule_and_tick(rig: Rig) -> None:
    assert rig.at(NOON + 4 * MINUTE + 0.5) == [("first", "schedule:first:2024-10-04T12:04:00Z")]
    assert rig.at(NOON + 5 * MINUTE) == [
        ("first", "schedule:first:2024-10-04T12:05:00Z"),
        ("second", "schedule:second:2024-10-04T12:05:00Z"),
    ]
    assert rig.at(NOON + 5 * MINUTE) == []


def test_ticks_during_a_drain_are_caught_up(rig: Rig) -> None:
    rig.draining = True
    assert rig.at(NOON + 5 * MINUTE) == rig.at(NOON + 6 * MINUTE) == []
    rig.draining = False
    assert rig.at(NOON + 6 * MINUTE + 1) == [("first", "schedule:first:2024-10-04T12:06:00Z")]
    assert rig.scheduler.progress()["second"].last >= NOON + 5 * MINUTE


def test_progress_is_stored_after_each_put(rig: Rig) -> None:
    before = rig.stored
    assert rig.at(NOON + 30) == []
    assert rig.stored == before
    rig.at(NOON + MINUTE)
    assert rig.stored == before + 1
    assert rig.scheduler.progress()["first"].last == NOON + MINUTE


def test_failures_are_logged_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "beanstalkd_py")
    logging.getLogger("beanstalkd_py").propagate = True
    rig.refusal = "OUT_OF_MEMORY"
    retry_all(rig.scheduler)
    rig.at(NOON + MINUTE)
    for _ in range(3):
        retry_all(rig.scheduler)
        rig.at(NOON + MINUTE)
    assert rig.scheduler.failing() == ["first"]
    (status, _) = rig.scheduler.statuses()
    assert (status.error, status.errors) == ("OUT_OF_MEMORY", 4)
    rig.refusal = ""
    retry_all(rig.scheduler)
    assert rig.at(NOON + MINUTE) == [("first", "schedule:first:2024-10-04T12:01:00Z")]
    assert rig.scheduler.failing() == []
    assert [record.message for record in caplog.records] == [
        (
            "schedule first: cannot put the job of 2024-10-04T12:01:00Z into tube one:"
            " OUT_OF_MEMORY; retrying"
        ),
        "schedule first: puts succeed again",
    ]


def test_a_stop_ends_puts_and_logs_no_failure(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("beanstalkd_py").propagate = True
    rig.refusal = "the worker closed the connection"
    rig.scheduler.stop()
    rig.scheduler.run()
    assert rig.at(NOON + MINUTE) == []
    assert caplog.records == []


def retry_all(scheduler: Scheduler) -> None:
    """End the delays before the next attempts."""
    for state in scheduler._states.values():
        state._retry_mono = 0.0


def test_a_reload_keeps_progress_and_counters(rig: Rig) -> None:
    rig.at(NOON + MINUTE)
    rig.scheduler.change([replace(FIRST, body="other")])
    (status,) = rig.scheduler.statuses()
    assert (status.puts, status.schedule.body) == (1, "other")
    assert rig.at(NOON + MINUTE + 1) == []
    assert rig.at(NOON + 2 * MINUTE) == [("first", "schedule:first:2024-10-04T12:02:00Z")]


def test_a_removed_schedule_loses_its_progress(rig: Rig) -> None:
    rig.scheduler.change([])
    assert rig.scheduler.progress() == {}
    assert rig.at(NOON + 9 * MINUTE) == []
    rig.scheduler.change([FIRST])
    assert rig.at(NOON + 9 * MINUTE + 1) == []


def test_a_start_continues_from_the_progress() -> None:
    rig = Rig()
    last = NOON - 3 * MINUTE
    rig.scheduler = rig.start({"first": Progress(FIRST.cron, "UTC", last, last), "gone": GONE})
    rig.scheduler.change([replace(FIRST, catch_up="all"), SECOND])
    assert len([rig.at(NOON + 1) for _ in range(3)]) == 3
    assert rig.scheduler.progress()["first"].last == NOON
    assert rig.scheduler.progress().keys() == {"first", "second"}


def test_a_start_without_a_schedule_drops_its_progress() -> None:
    rig = Rig()
    last = NOON - 3 * MINUTE
    rig.scheduler = rig.start({"first": Progress(FIRST.cron, "UTC", last, last)})
    rig.scheduler.change([SECOND])
    rig.scheduler.change([FIRST, SECOND])
    assert rig.at(NOON + 1) == []


GONE = Progress("0 0 * * *", "UTC", 5, 5)


def test_put_now_leaves_the_ticks(rig: Rig) -> None:
    assert rig.scheduler.put_now("first") == 1
    assert rig.puts == [("first", None)]
    assert rig.at(NOON + MINUTE) == [("first", "schedule:first:2024-10-04T12:01:00Z")]
    with pytest.raises(errors.PutError):
        rig.refusal = "DRAINING"
        rig.scheduler.put_now("first")


def test_the_file_of_the_progress(tmp_path: Path) -> None:
    assert load_progress(str(tmp_path)) == {}
    saved = {
        "b": Progress("0 0 * * *", "Europe/Berlin", NOON, NOON + 5, NOON - 3),
        "a": Progress("* * * * *", "UTC", NOON, NOON),
    }
    save_progress(str(tmp_path), saved)
    assert load_progress(str(tmp_path)) == saved
    assert [path.name for path in tmp_path.iterdir()] == [SCHEDULES]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": {}}', '{"a": 1}', "\xff"])
def test_a_damaged_file_of_the_progress(tmp_path: Path, text: str) -> None:
    (tmp_path / SCHEDULES).write_bytes(text.encode("latin-1"))
    with pytest.raises(errors.BinlogFolderError, match="correct or remove the file"):
        load_progress(str(tmp_path))


def test_a_naive_time_in_the_file(tmp_path: Path) -> None:
    save_progress(str(tmp_path), {"a": GONE})
    path = tmp_path / SCHEDULES
    path.write_text(path.read_text().replace("Z", ""))
    with pytest.raises(errors.BinlogFolderError, match="has no time zone"):
        load_progress(str(tmp_path))


@pytest.fixture
def progress() -> Iterator[dict[str, Progress]]:
    yield {"a": GONE}


def test_the_writer_writes_the_newest_progress(
    tmp_path: Path, progress: dict[str, Progress]
) -> None:
    writer = ProgressWriter(str(tmp_path), lambda: dict(progress))
    progress["b"] = GONE
    writer.wake()
    writer.close()
    assert load_progress(str(tmp_path)) == {"a": GONE, "b": GONE}


def test_the_writer_retries(
    tmp_path: Path, progress: dict[str, Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, 2, save_progress)
    writer = ProgressWriter(str(tmp_path), lambda: dict(progress))
    writer.wake()
    for _ in range(100):
        if load_progress(str(tmp_path)):
            break
        sleep(0.02)
    writer.close()
    assert load_progress(str(tmp_path)) == {"a": GONE}


def sleep(seconds: float) -> None:
    import gevent

    gevent.sleep(seconds)


def refuse(patch: pytest.MonkeyPatch, times: int, save: Callable[..., Any]) -> None:
    """Let the first writes fail as on a full disk."""
    left = [times]

    def failing(folder: str, values: dict[str, Progress]) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(28, "No space left on device")
        save(folder, values)

    module = "beanstalkd_py.server.schedules.progress_writer"
    patch.setattr(f"{module}.save_progress", failing)
    patch.setattr(f"{module}.RETRY_S", 0.01)
