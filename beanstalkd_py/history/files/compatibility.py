"""RocketMQ stores that this package cannot read completely, and therefore refuses to write.

RocketMQ keeps a topic's queues as files of 20-byte units, which this package reads, as batch
consume queues (attribute queue.type=BatchCQ), or in RocksDB (storeType=defaultRocksDB).
"""

from __future__ import annotations

from pathlib import Path

from beanstalkd_py.errors import StoreUsageError
from beanstalkd_py.history.files import layout

LIGHT_QUEUE = "%LMQ%"
"""Prefix of a light message queue's topic. Its units refer to messages of other topics."""
_ROCKSDB_FILE = "CURRENT"
"""Every RocksDB database has this file."""


def batch_topics(store: Path) -> list[str]:
    """Return the topics whose queues are batch consume queues, sorted."""
    return sorted({topic for topic, _ in layout.queue_folders(store, layout.BATCH_QUEUES)})


def rocksdb_folder(store: Path) -> Path | None:
    """Return the folder of the RocksDB database that holds the queues, or None."""
    for name in (layout.CONSUME_QUEUE, layout.ROCKSDB_QUEUES):
        if (store / name / _ROCKSDB_FILE).is_file():
            return store / name
    return None


def unreadable(store: Path) -> list[str]:
    """Return one sentence for each kind of queue that cannot be read."""
    reasons = []
    if topics := batch_topics(store):
        reasons.append(
            f"cannot read the batch consume queues in {store / layout.BATCH_QUEUES}"
            f" (topics: {', '.join(topics)}); this version does not support them"
        )
    folder = rocksdb_folder(store)
    if folder is not None and not layout.queue_folders(store):
        reasons.append(
            f"cannot read the consume queues in {folder}: they are in RocksDB, which this version"
            " does not support"
        )
    return reasons


def refuse_writing(store: Path) -> None:
    """Raise StoreUsageError if an append would leave out queues that RocketMQ reads."""
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
    """Raise StoreUsageError if the store has light queues, which the log alone cannot restore."""
    topics = {topic for topic, _ in layout.queue_folders(store) if topic.startswith(LIGHT_QUEUE)}
    if topics:
        raise StoreUsageError(
            f"cannot open history store {store} for writing: it was not closed, and only RocketMQ"
            f" can recover its light message queues ({', '.join(sorted(topics))}); start RocketMQ"
            " on it and stop it, or give another folder"
        )
