"""List messages in the order of the log, with damage between them."""

from __future__ import annotations

import random

import pytest
from history.stores import BY_HAND, opened

from beanstalkd_py.history.queries.listing import messages_of_log, messages_of_topic
from beanstalkd_py.history.store import Message, StoreReader
from beanstalkd_py.history.verify import Fault

COUNT = 120


def some_job(number: int) -> Message:
    properties = {"KEYS": str(number)}
    body = f"<{number}>".encode() * 10
    return Message(topic="ab"[number % 2], queue_id=number % 3, body=body, properties=properties)


def numbers(messages) -> list[int]:
    return [int(message.properties["KEYS"]) for message in messages]


@pytest.mark.parametrize("seed", range(8))
def test_valid_messages_are_listed_and_damage_is_reported(tmp_path, seed):
    dice = random.Random(seed)
    # Not the last message: damage there ends the log.
    bad = set(dice.sample(range(COUNT - 1), dice.choice([1, 5, 60])))
    with opened(tmp_path / "store") as store:
        offsets = store.append([some_job(number) for number in range(COUNT)]).offsets
        store.dispatch()
        segments = store.log.segments
        for number in bad:
            at = offsets[number] + dice.choice([8, 92])  # its checksum or its body
            segments.write(at, bytes([segments.read(at, 1)[0] ^ 1]))
    faults: list[Fault] = []
    with StoreReader.open(tmp_path / "store") as reader:
        sound = [number for number in range(COUNT) if number not in bad]
        assert numbers(messages_of_log(reader, faults.append)) == sound
        assert len(faults) == len(bad)
        faults.clear()
        listed = numbers(messages_of_topic(reader, "a", faults.append))
        assert listed == [number for number in sound if number % 2 == 0]
        assert len(faults) == sum(number % 2 == 0 for number in bad)


def test_files_removed_by_the_writer_meanwhile_are_not_damage(tmp_path):
    with opened(tmp_path / "store", BY_HAND) as store:
        store.append([some_job(number) for number in range(COUNT)])
        store.dispatch()
        with StoreReader.open(tmp_path / "store") as reader:
            listed = messages_of_topic(reader, "a", lambda fault: pytest.fail(str(fault)))
            first = next(listed)
            store.log.segments.remove(0)
            store.log.segments.remove(4096)
            left = numbers([first, *listed])
        assert left[0] == 0
        assert left[-1] == COUNT - 2
        assert len(left) < COUNT // 2
