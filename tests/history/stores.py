"""Small stores of random messages for tests, and complete checks of a store."""

from __future__ import annotations

import os
import random
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beanstalkd_py.history._store import ffi
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.store import Message, Options, Sizes, Store, Stored, StoreReader
from beanstalkd_py.history.verify import verify

DATA = Path(__file__).with_name("data")
SMALL = Sizes(segment_bytes=4096, queue_file_units=16, index_slots=8, index_entries=32)
BY_HAND = Options(sizes=SMALL, background=False, retention=None)
"""Options without background threads and expiry."""


def unpacked(kind: str, folder: Path) -> Path:
    """Unpack a store that RocketMQ wrote; return its path in the folder."""
    with tarfile.open(DATA / f"{kind}.tar.xz") as archive:
        # Python 3.11.2 of Debian 12 has no filters and ignores the attribute.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder / kind


def some_messages(seed: int, count: int, first: int = 0) -> list[Message]:
    """Make messages of every kind; the same seed makes the same messages."""
    dice = random.Random(seed)
    return [_some_message(dice, first + number) for number in range(count)]


def _some_message(dice: random.Random, number: int) -> Message:
    keys = [f"k{number}"] + [f"shared{dice.randrange(3)}"] * dice.randrange(2)
    properties = {"UNIQ_KEY": f"u{number}", "KEYS": " ".join(keys), "TAGS": dice.choice("abc")}
    topic = dice.choice(["mails", "a%2Fb", "t", "x" * 130])
    if dice.random() < 0.1:
        topic, properties["DELAY"] = "SCHEDULE_TOPIC_XXXX", str(dice.randrange(1, 19))
    return Message(
        topic=topic,
        queue_id=dice.randrange(2),
        body=dice.randbytes(dice.choice([0, 1, 30, 100, 300])),
        properties=properties if dice.random() < 0.9 else {},
        sys_flag=dice.choice([0] * 6 + [4, 8, 12]),
        flag=dice.randrange(-5, 5),
        born_timestamp=1_700_000_000_000 + number,
        born_host=dice.choice([("10.1.2.3", 4), ("2001:db8::1", 5)]),
        reconsume_times=dice.randrange(3),
    )


@contextmanager
def opened(folder: Path, options: Options = BY_HAND) -> Iterator[Store]:
    """Open a store, and abandon it at the end as a crash of the process does."""
    store = Store.open(folder, options)
    try:
        yield store
    finally:
        store.abandon()


def given(message: Message) -> tuple[object, ...]:
    """Return the fields that the writer has set."""
    return (
        message.topic,
        message.queue_id,
        message.body,
        {name: value for name, value in message.properties.items() if name != "__CRC32#"},
        message.flag,
        message.sys_flag & ~48,
        message.born_timestamp,
        message.born_host,
        message.reconsume_times,
    )


def assert_holds(store: Store | StoreReader, messages: list[Message]) -> list[Stored]:
    """Check that each way of reading the store finds exactly these messages."""
    stored = list(store.scan())
    assert [given(each) for each in stored] == [given(each) for each in messages]
    report = verify(store)
    assert report.faults == []
    assert report.pending == 0
    assert report.messages == len(messages)
    in_queues = [each for each in stored if each.sys_flag & 12 not in (4, 12)]
    names = [(topic, queue_id) for topic, ids in store.topics().items() for queue_id in ids]
    found = [each for name in names for each in queue_messages(store, *name)]
    assert sorted(found, key=lambda each: each.offset) == in_queues
    wanted: dict[tuple[str, str], list[Stored]] = {}
    for each in stored:
        for key in dict.fromkeys(each.keys) if each.sys_flag & 12 != 12 else []:
            wanted.setdefault((each.topic, key), []).append(each)
    for (topic, key), with_key in wanted.items():
        assert store.query(topic, key, limit=10_000) == with_key[::-1]
    return stored


class Checks:
    """Complete checks of many stores; one in the state of a checked one is not checked again."""

    def __init__(self) -> None:
        self._passed: list[tuple[object, ...]] = []

    def assert_holds(self, store: Store, messages: list[Message]) -> None:
        state = (list(messages), *state_of(store))
        if state not in self._passed:
            assert_holds(store, messages)
            self._passed.append(state)


def state_of(store: Store) -> tuple[object, ...]:
    """Return everything that reading the store depends on: positions, files and their bytes.

    The bytes are those in the files that the store has open.
    """
    log = store.log
    sequences = {"log": log.segments} | {
        f"{queue.topic}/{queue.queue_id}": queue.segments for queue in store.queues
    }
    return (
        (log.begin, log.end, log.last_offset, store.dispatched),
        {f"{queue.topic}/{queue.queue_id}": (queue.first, queue.end) for queue in store.queues},
        {
            name: [(start, segments.read(start, segments.size)) for start in segments.starts]
            for name, segments in sequences.items()
        },
        [(file.path.name, bytes(ffi.buffer(file.memory))) for file in store.index.files],
        sorted(set(os.listdir(store.folder)) - {layout.CUT_TAILS}),  # noqa: PTH208
        [
            _sizes_of(store.folder / name)
            for name in (layout.COMMIT_LOG, layout.CONSUME_QUEUE, layout.INDEX)
        ],
    )


def _sizes_of(folder: Path) -> dict[str, dict[str, int]]:
    """Return the sizes of all files by folder and name; also of those that no store knows."""
    return {
        path: {name: os.stat(os.path.join(path, name)).st_size for name in names}  # noqa: PTH116, PTH118
        for path, _, names in os.walk(folder)
    }


def queue_messages(store: Store | StoreReader, topic: str, queue_id: int = 0) -> list[Stored]:
    """Return the messages that the units of a queue refer to, in their order."""
    queue = store.queues.get(topic, queue_id)
    assert queue is not None
    begin, end = store.bounds(topic, queue_id)
    units = [unit for unit in queue.read(begin, end - begin) if not unit.is_filler]
    found = [message for unit in units if (message := store.message(unit.offset)) is not None]
    assert len(found) == len(units)
    return found


def image(folder: Path, to: Path) -> Path:
    """Copy the current files of a store, as if its process had been killed."""
    shutil.copytree(folder, to)
    return to


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file of the folder by relative path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
