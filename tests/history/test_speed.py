"""Speed of the store: print the measurements, and check the guaranteed limits."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from beanstalkd_py.history.message import pack_items
from beanstalkd_py.history.options import ARCHIVER_SIZES, Options
from beanstalkd_py.history.store import Message, Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

HOST = ("127.0.0.1", 10911)
BATCH = 5000
OPTIONS = Options(sizes=ARCHIVER_SIZES, retention=None)


def packed(numbers: Iterable[int], body: bytes, key: str = "{}") -> bytes:
    """Make messages as the archiver does; `key` is a format of the number."""
    return pack_items(
        (
            Message(
                topic=f"tube{number % 3}",
                body=body,
                properties={
                    "KEYS": key.format(number),
                    "TAGS": "deleted",
                    "UNIQ_KEY": f"a1-0-7-{key.format(number)}",
                },
                born_timestamp=1_700_000_000_000 + number,
            )
            for number in numbers
        ),
        HOST,
    )


TEMPLATE, WHICH = 10_000, b"@@@@"


def key_of(number: int) -> str:
    """Return a key of 8 digits; the first four are those of its batch."""
    return f"{number:08}"


def topic_of(number: int) -> str:
    return f"tube{number % TEMPLATE % 3}"


def fill(folder: Path, count: int, body: bytes) -> None:
    """Fill a store with `count` messages.

    Each batch is the same bytes with other keys, because making all messages in Python would take
    much longer than storing them.
    """
    template = packed(range(TEMPLATE), body, f"{WHICH.decode()}{{:04}}")
    assert template.count(WHICH) == 2 * TEMPLATE
    with Store.open(folder, OPTIONS) as store:
        for which in range(count // TEMPLATE):
            store.append(template.replace(WHICH, b"%04d" % which))
        store.dispatch()


def median_of(runs: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(runs))


def test_600_000_messages_a_second_on_one_core(tmp_path, capsys):
    """Measured in CPU time, so that other processes do not matter."""
    batches = [
        packed(range(first, first + BATCH), os.urandom(100)) for first in range(0, 500_000, BATCH)
    ]
    walls = []

    def one_run() -> float:
        folder = tmp_path / f"store{len(walls)}"
        with Store.open(folder, OPTIONS) as store:
            cpu, wall = time.process_time(), time.monotonic()
            for each in batches:
                store.append(each)
            while store.dispatched < store.log.end:
                time.sleep(0.001)
            walls.append(time.monotonic() - wall)
            return time.process_time() - cpu

    cpu = median_of(5, one_run) / 500_000
    wall = statistics.median(walls) / 500_000
    with capsys.disabled():
        print(f"\nappend, queue and index: {cpu * 1e6:.2f} us CPU, {1 / wall:,.0f} messages/s")
    assert 1 / cpu >= 600_000


def test_a_key_among_ten_million_is_found_in_5_ms(tmp_path, capsys):
    fill(tmp_path / "store", 10_000_000, b"x" * 40)
    dice = random.Random(5)
    with Store.open(tmp_path / "store", OPTIONS) as store:
        times = []
        for turn in range(2):  # the first turn warms the cache
            for _ in range(200):
                number = dice.randrange(10_000_000)
                begin = time.perf_counter()
                (found,) = store.query(topic_of(number), key_of(number))
                times.append(time.perf_counter() - begin)
                assert found.properties["KEYS"] == key_of(number)
            times = times if turn else []
    median, worst = statistics.median(times), sorted(times)[-3]
    with capsys.disabled():
        print(f"\nkey among 10 million: {median * 1e3:.2f} ms, 99% within {worst * 1e3:.2f} ms")
    assert median < 0.005


def test_a_store_of_10_gb_opens_in_a_second(tmp_path, capsys):
    fill(tmp_path / "store", 5_000_000, b"x" * 1900)

    def one_run() -> float:
        begin = time.monotonic()
        store = Store.open(tmp_path / "store", OPTIONS)
        taken = time.monotonic() - begin
        assert store.recovered.was_clean
        assert store.log.end - store.log.begin > 10**10
        store.close()
        return taken

    taken = median_of(5, one_run)
    with capsys.disabled():
        print(f"\nstore of 10 GB: opened in {taken * 1e3:.0f} ms")
    assert taken < 1
