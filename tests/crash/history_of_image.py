"""Archive the rest of a disk image, and compare its history with what was acknowledged."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from binlog.workload import Actor

from beanstalkd_py.archiver.archive import archive_rest
from beanstalkd_py.archiver.store_settings import StoreSettings
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.files.checkpoint import Dispatched
from beanstalkd_py.history.reader import StoreReader


def check_history(history: Path, binlog: Path, actors: list[Actor]) -> None:
    """Check that the history has each acknowledged deletion once, and no half record."""
    if has_messages(history):
        assert Dispatched.load(history / layout.DISPATCHED) is not None
    archive_rest(StoreSettings(history), [binlog], print)
    with StoreReader.open(history) as store:
        reported = Counter(int(message.properties["KEYS"]) for message in store.scan())
    assert [job for job, times in reported.items() if times > 1] == []
    pending = {actor.pending.job for actor in actors if actor.pending}
    gone = {job for actor in actors for job in actor.gone}
    assert gone <= reported.keys()
    assert reported.keys() <= gone | pending


def has_messages(history: Path) -> bool:
    try:
        with (history / layout.COMMIT_LOG / layout.segment_name(0)).open("rb") as log:
            return any(log.read(1024))
    except FileNotFoundError:
        return False
