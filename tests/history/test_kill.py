"""Kill -9 at any time: each acknowledged message is there once, and no message is incomplete."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from history.stores import BY_HAND, SMALL, opened
from processes import eventually

from beanstalkd_py.history.store import Message, Options, Store
from beanstalkd_py.history.verify import verify

START_S = 30.0
WRITER = """
import sys
from beanstalkd_py.history.store import Message, Options, Sizes, Store

options = Options(sizes=Sizes(4096, 16, 8, 32), retention=None, queue_flush_seconds=0.005)
with Store.open(sys.argv[1], options) as store:
    last = store.last()
    number = int(last.properties["UNIQ_KEY"]) + 1 if last else 0
    while True:
        store.append(
            [
                Message(
                    topic="ab"[n % 2],
                    body=b"x" * (n % 200),
                    properties={"UNIQ_KEY": str(n), "KEYS": f"k{n}"},
                )
                for n in range(number, number + 1 + number % 9)
            ],
            durable=True,
        )
        number += 1 + number % 9
        print(number, flush=True)
"""


def write_until_killed(folder: Path, seconds: float, acknowledged: Path) -> None:
    """Continue writing after the last message, and kill the writer at a random moment."""
    with acknowledged.open("a") as out:
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=out)
    try:
        before = acknowledged.stat().st_size
        assert eventually(lambda: acknowledged.stat().st_size > before, START_S)
        time.sleep(seconds)
        assert child.poll() is None
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()


def assert_each_once(folder: Path, acknowledged: Path) -> None:
    lines = acknowledged.read_text().split("\n")
    known = int(lines[-2]) if len(lines) > 1 else 0
    with opened(folder, Options(background=False, retention=None)) as store:
        keys = [each.properties["UNIQ_KEY"] for each in store.scan()]
        assert len(keys) >= known
        assert keys == [str(number) for number in range(len(keys))]
        report = verify(store)
        assert report.faults == []
        assert (report.messages, report.units, report.entries) == (
            len(keys),
            len(keys),
            2 * len(keys),
        )
        for number in random.Random(1).choices(range(len(keys)), k=20):
            (found,) = store.query("ab"[number % 2], f"k{number}")
            assert found.properties["UNIQ_KEY"] == str(number)


def test_acknowledged_messages_survive_kills(tmp_path):
    for _ in range(2):
        write_until_killed(tmp_path / "store", 0.05, tmp_path / "acknowledged")
        assert_each_once(tmp_path / "store", tmp_path / "acknowledged")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_acknowledged_messages_survive_many_kills(tmp_path):
    dice = random.Random(11)
    for _ in range(60):
        write_until_killed(tmp_path / "store", dice.random() * 0.3, tmp_path / "acknowledged")
    assert_each_once(tmp_path / "store", tmp_path / "acknowledged")
    with Store.open(tmp_path / "store", BY_HAND) as store:
        assert store.recovered.was_clean is False
        assert store.sizes == SMALL
        store.append([Message(topic="t")])
