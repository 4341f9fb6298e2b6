"""Stores of RocketMQ that have queues which this package cannot read, and so must not write to.

RocketMQ keeps the queues of a topic in one of three forms: files of 20-byte units, which are read
here; batch consume queues (topics whose attribute queue.type is BatchCQ); or RocksDB (storeType
defaultRocksDB). Nothing here changes a file.
"""

from __future__ import annotations

from pathlib import Path

from beanstalkd_py.errors import StoreUsageError
from beanstalkd_py.history.files import layout

LIGHT_QUEUE = "%LMQ%"
"""A light message queue: its topic begins so, and its units lead to messages of other topics."""
_ROCKSDB_FILE = "CURRENT"
"""Every RocksDB database has this file."""


def batch_topics(store: Path) -> list[str]:
    """Topics whose queues are batch consume queues, in order."""
    return sorted({topic for topic, _ in layout.queue_folders(store, layout.BATCH_QUEUES)})


def rocksdb_folder(store: Path) -> Path | None:
    """The folder of the RocksDB database that has the queues. None: there is none."""
    for name in (layout.CONSUME_QUEUE, layout.ROCKSDB_QUEUES):
        if (store / name / _ROCKSDB_FILE).is_file():
            return store / name
    return None


def unreadable(store: Path) -> list[str]:
    """One sentence for each kind of queue that cannot be read."""
    told = []
    if topics := batch_topics(store):
        told.append(
            f"cannot read the batch consume queues in {store / layout.BATCH_QUEUES}"
            f" (topics: {', '.join(topics)}); this version does not support them"
        )
    folder = rocksdb_folder(store)
    if folder is not None and not layout.queue_folders(store):
        told.append(
            f"cannot read the consume queues in {folder}: they are in RocksDB, which this version"
            " does not support"
        )
    return told


def refuse_writing(store: Path) -> None:
    """StoreUsageError if appending to the store would leave queues behind that RocketMQ reads."""
    reason = ""
    if batch_topics(store):
        reason = f"it has batch consume queues in {store / layout.BATCH_QUEUES}"
    elif (folder := rocksdb_folder(store)) is not None:
        reason = f"its consume queues are in RocksDB in {folder}"
    if reason:
        raise StoreUsageError(
            f"cannot open history store {store} for writing: {reason}, which this version cannot"
            " write, and RocketMQ could not load the store afterwards; give another folder"
        )


def refuse_recovery(store: Path) -> None:
    """StoreUsageError if the store has light queues, which cannot be made again from the log."""
    topics = {topic for topic, _ in layout.queue_folders(store) if topic.startswith(LIGHT_QUEUE)}
    if topics:
        raise StoreUsageError(
            f"cannot open history store {store} for writing: it was not closed, and only RocketMQ"
            f" can recover its light message queues ({', '.join(sorted(topics))}); start RocketMQ"
            " on it and stop it, or give another folder"
        )
